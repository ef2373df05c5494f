"""What a process takes of a GPU outside PyTorch's allocator, step by step: python -m benchmarks serving measure OUT.json [NAME ...]

Run on a GPU that nobody else uses. Each experiment is a process of its own, which says after every step how many bytes of the device
are in use that its allocator does not hold (`mem_get_info` less `memory_reserved`). Kernels are compiled by NVRTC, so that the bytes of
local memory a thread takes, and of parameters, are ours to choose.

- context: the bare context, a first kernel, a first matrix product.
- locals: kernels that take more and more local memory a thread, one after the other.
- streams, pool: streams of the CUDA runtime and of PyTorch.
- many N P: graphs of N kernels with P pointers each, captured and given back. What else may be in a graph: `graphs.py`.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

LOCALS = (16, 64, 128, 256, 384, 512, 640, 768, 896, 1024, 1280, 1536, 2048, 3072, 4096, 8192, 16384, 65536)
# Nodes of each graph, pointers of each kernel.
MANY = (
    *((nodes, 1) for nodes in (1, 2, 4, 8, 16, 32, 64, 256)),
    *((nodes, 32) for nodes in (1, 8, 64, 256)),
    (64, 8),
    (64, 128),
)


def outside() -> int:
    """Bytes of the device in use that the allocator does not hold."""
    import torch

    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def frame(nbytes: int, name: str = "frame") -> Any:
    """A kernel with an array of that many bytes a thread, indexed by data so that it lies in local memory."""
    import torch

    words = max(nbytes // 4, 1)
    source = f"""
    extern "C" __global__ void {name}(int *out, int n) {{
      volatile int a[{words}];
      for (int i = 0; i < {words}; i++) a[i] = n + i;
      if (n >= 0) out[0] = a[n % {words}];
    }}"""
    return torch.cuda._compile_kernel(source, name)


class Steps:
    def __init__(self) -> None:
        self.rows: list[tuple[str, int]] = []

    def __call__(self, name: str) -> None:
        self.rows.append((name, outside()))


def context(step: Steps) -> None:
    import torch

    torch.cuda.init()
    torch.cuda.current_stream().synchronize()
    step("context")
    out = torch.empty(16, dtype=torch.int32, device="cuda")
    step("empty")
    frame(4)(grid=(1, 1, 1), block=(1, 1, 1), args=(out, 1))
    step("a kernel of NVRTC")
    out.fill_(0)
    step("fill_")
    torch.randn(1024, device="cuda")
    step("randn")
    torch.ones(256, 256, device="cuda", dtype=torch.bfloat16) @ torch.ones(
        256, 256, device="cuda", dtype=torch.bfloat16
    )
    step("matrix product bfloat16")
    torch.ones(256, 256, device="cuda") @ torch.ones(256, 256, device="cuda")
    step("matrix product float32")
    torch.randn(1024, 128256, device="cuda").softmax(-1)
    step("softmax")
    torch.randn(64, 128256, device="cuda").sort(-1)
    step("sort")
    q = torch.ones(1, 8, 128, 128, device="cuda", dtype=torch.bfloat16)
    torch.nn.functional.scaled_dot_product_attention(q, q, q)
    step("attention")


def locals_(step: Steps) -> None:
    import torch

    out = torch.empty(16, dtype=torch.int32, device="cuda")
    step("empty")
    for nbytes in LOCALS:
        frame(nbytes)(grid=(1, 1, 1), block=(1, 1, 1), args=(out, 1))
        step(f"local {nbytes}")


def runtime() -> ctypes.CDLL:
    """The CUDA runtime that PyTorch has loaded."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return ctypes.CDLL(next(line.split()[-1] for line in maps if "libcudart" in line))


def streams(step: Steps) -> None:
    """A stream of PyTorch's pool, which makes the pool; streams of the runtime's own; another priority."""
    import torch

    torch.zeros(1, device="cuda")
    step("first kernel")
    handles = (ctypes.c_void_p * 64)()
    library = runtime()
    for i in range(64):
        library.cudaStreamCreateWithFlags(ctypes.byref(handles, 8 * i), 1)
        if i in (0, 1, 3, 7, 15, 31, 63):
            step(f"{i + 1} streams of the runtime's")
    one = torch.cuda.Stream()
    step("pool")
    with torch.cuda.stream(one):
        torch.zeros(1, device="cuda")
    step("kernel in it")
    torch.cuda.Stream(priority=-1)
    step("another priority")
    x = torch.ones(256, 256, device="cuda", dtype=torch.bfloat16)
    x @ x
    step("product")
    with torch.cuda.stream(one):
        x @ x
    step("product in it")


def pool(step: Steps) -> None:
    """The pool alone."""
    import torch

    torch.zeros(1, device="cuda")
    step("first kernel")
    one = torch.cuda.Stream()
    step("pool")
    with torch.cuda.stream(one):
        torch.zeros(1, device="cuda")
    step("kernel in it")
    x = torch.ones(256, 256, device="cuda", dtype=torch.bfloat16)
    x @ x
    step("product")


def many(step: Steps, nodes: int, pointers: int) -> None:
    """Graphs of so many kernels with so many parameters of 8 bytes."""
    import torch

    out = torch.empty(16, dtype=torch.int32, device="cuda")
    names = ", ".join(f"int *p{i}" for i in range(pointers))
    kernel = torch.cuda._compile_kernel(
        f'extern "C" __global__ void k({names}) {{ p0[0] = p{pointers - 1}[1]; }}', "k"
    )
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        kernel(grid=(1, 1, 1), block=(1, 1, 1), args=(out,) * pointers)
    torch.cuda.synchronize()
    kept = []
    step("before")
    for i in range(1, 257):
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g, stream=stream):
            for _ in range(nodes):
                kernel(grid=(1, 1, 1), block=(1, 1, 1), args=(out,) * pointers)
        kept.append(g)
        if i & (i - 1) == 0:
            step(f"{i} graphs")
    kept.clear()
    del g
    step("given back")
    for _ in range(64):
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g, stream=stream):
            for _ in range(nodes):
                kernel(grid=(1, 1, 1), block=(1, 1, 1), args=(out,) * pointers)
        kept.append(g)
    step("64 again")


EXPERIMENTS: dict[str, Callable[[Steps], None]] = {
    "context": context, "locals": locals_, "streams": streams, "pool": pool,
    **{f"many {nodes} {pointers}": partial(many, nodes=nodes, pointers=pointers) for nodes, pointers in MANY},
}  # fmt: skip


def one(name: str) -> None:
    """One experiment, in this process; its steps are its last line."""
    step = Steps()
    try:
        EXPERIMENTS[name](step)
    except Exception as error:
        step.rows.append((f"error: {error}"[:500], -1))
    print("@" + json.dumps(step.rows))


@click.command()
@click.argument("out", type=Path)
@click.argument("names", nargs=-1)
def main(out: Path, names: tuple[str, ...]) -> None:
    """Run the experiments, or those named, and record what they said."""
    import torch

    rows = []
    for name in names or tuple(EXPERIMENTS):
        ran = subprocess.run(
            [sys.executable, __file__, name], capture_output=True, text=True, check=False, timeout=300
        )
        found = [line[1:] for line in ran.stdout.splitlines() if line.startswith("@")]
        rows.append(
            {
                "name": name,
                "steps": json.loads(found[-1]) if found else [],
                "error": "" if found else ran.stderr[-800:],
            }
        )
        print(name, rows[-1]["steps"] or rows[-1]["error"], flush=True)
    about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    out.write_text(json.dumps({**about, "experiments": rows}, indent=1))


if __name__ == "__main__":
    one(sys.argv[1])
