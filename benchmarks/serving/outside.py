"""What a process takes of a GPU outside PyTorch's allocator, step by step: python -m benchmarks serving measure OUT.json [NAME ...]

Run on a GPU that nobody else uses. Each experiment is a process of its own, which says after every step how many bytes of the device
are in use that its allocator does not hold (`mem_get_info` less `memory_reserved`). Kernels are compiled by NVRTC, so that the bytes of
local memory a thread takes (STACK), of code and of parameters are ours to choose.

- context: the bare context, a first kernel, a first matrix product.
- local N: a first kernel that takes N bytes of local memory a thread; `locals`: growing ones, one after the other.
- code N: a first kernel of some N KiB of code; `codes`: ten of each size.
- graph: CUDA graphs of so many kernels, captured, replayed and given back.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

LOCALS = (16, 64, 128, 256, 384, 512, 640, 768, 896, 1024, 1280, 1536, 2048, 3072, 4096, 8192, 16384, 65536)
CODES = (16, 64)
GRAPHS = (1, 8, 32, 128, 256, 512, 1024)


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


def wide(kib: int, name: str) -> Any:
    """A kernel of about that many KiB of code."""
    import torch

    lines = "\n".join(
        f"x = x * {i * 2 + 3}u + (x >> {i % 13 + 1}); if (x == {i}u) out[{i % 7}] = x;"
        for i in range(kib * 9)
    )
    return torch.cuda._compile_kernel(
        f'extern "C" __global__ void {name}(unsigned *out, unsigned x) {{ {lines} out[0] = x; }}', name
    )


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


def local(step: Steps, nbytes: int) -> None:
    import torch

    out = torch.empty(16, dtype=torch.int32, device="cuda")
    step("empty")
    kernel = frame(nbytes)
    step("compiled")
    kernel(grid=(1, 1, 1), block=(1, 1, 1), args=(out, 1))
    step(f"local {nbytes}")
    frame(4, "small")(grid=(1, 1, 1), block=(1, 1, 1), args=(out, 1))
    step("a small one behind")


def locals_(step: Steps) -> None:
    import torch

    out = torch.empty(16, dtype=torch.int32, device="cuda")
    step("empty")
    for nbytes in LOCALS:
        frame(nbytes)(grid=(1, 1, 1), block=(1, 1, 1), args=(out, 1))
        step(f"local {nbytes}")


def codes(step: Steps) -> None:
    import torch

    out = torch.empty(16, dtype=torch.int32, device="cuda")
    frame(4)(grid=(1, 1, 1), block=(1, 1, 1), args=(out, 1))
    step("first")
    kept = []
    for kib in CODES:
        for i in range(10):
            kernel = wide(kib, f"wide{kib}_{i}")
            kernel(grid=(1, 1, 1), block=(1, 1, 1), args=(out, 1))
            kept.append(kernel)
            step(f"code {kib} KiB, {i}")


def used_aside() -> tuple[Any, Any, Any]:
    """Two matrices, and a stream on which a product and a sum of them have run."""
    import torch

    x = torch.ones(256, 256, device="cuda", dtype=torch.bfloat16)
    y, stream = torch.empty_like(x), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.mm(x, x, out=y)
        y.add_(1)
    return x, y, stream


def runtime() -> ctypes.CDLL:
    """The CUDA runtime that PyTorch has loaded."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return ctypes.CDLL(next(line.split()[-1] for line in maps if "libcudart" in line))


def graph(step: Steps, products: bool) -> None:
    import torch

    x, y, stream = used_aside()
    step("before")
    kept = []
    for count in GRAPHS:
        pool = torch.cuda.graph_pool_handle()
        for repeat in range(3):
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g, pool=pool, stream=stream):
                for _ in range(count):
                    torch.mm(x, x, out=y) if products else y.add_(1)
            step(f"{count} captured, {repeat}")
            g.replay()
            step(f"{count} replayed, {repeat}")
            kept.append(g)
    kept.clear()
    del g
    torch.cuda.empty_cache()
    step("given back")


def pieces(step: Steps) -> None:
    """As a serving engine captures: for each of 51 sizes 33 graphs of 8 kernels, in one pool."""
    import torch

    x, y, stream = used_aside()
    step("before")
    pool, kept = torch.cuda.graph_pool_handle(), []
    for size in range(51):
        for _ in range(33):
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g, pool=pool, stream=stream):
                for i in range(8):
                    torch.mm(x, x, out=y) if i % 2 else y.add_(1)
            kept.append(g)
        if size in (0, 1, 2, 4, 9, 19, 34, 50):
            step(f"{size + 1} sizes")
    for g in kept:
        g.replay()
    step("replayed")
    kept.clear()
    del g
    torch.cuda.empty_cache()
    step("given back")


def layers(step: Steps, count: int) -> None:
    """As vLLM captures a Llama-3.1-8B of so many layers, with PyTorch's own kernels: for each of 51 sizes a run, a graph for what lies
    before, between and behind the attention, then for each size a run and a graph of the whole. All layers have the same weights."""
    import torch
    from torch.nn import functional

    sizes = sorted([1, 2, 4, *range(8, 257, 8), *range(272, 513, 16)], reverse=True)
    into_qkv, into_o, into_gate, into_down = (
        torch.zeros(out, into, device="cuda", dtype=torch.bfloat16)
        for out, into in ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
    )
    keys, values = torch.zeros(2, 512, 8, 32, 128, device="cuda", dtype=torch.bfloat16)
    x0, scale = torch.zeros(512, 4096, device="cuda", dtype=torch.bfloat16), into_qkv[0]

    def norm(x: Any) -> Any:
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * scale

    def before(x: Any) -> Any:
        return functional.linear(norm(x), into_qkv)

    def behind(x: Any, attended: Any) -> Any:
        x = x + functional.linear(attended, into_o)
        gate = functional.linear(norm(x), into_gate)
        return x + functional.linear(functional.silu(gate[:, :14336]) * gate[:, 14336:], into_down)

    def between(x: Any, attended: Any) -> Any:
        x = behind(x, attended)
        return x, before(x)

    def attention(qkv: Any) -> Any:
        n = qkv.shape[0]
        k = keys[:n].repeat_interleave(1, 1)
        q = qkv[:, :4096].view(n, 32, 1, 128)
        return functional.scaled_dot_product_attention(q, k, values[:n], enable_gqa=True).reshape(n, 4096)

    def whole(x: Any) -> Any:
        qkv = before(x)
        for _ in range(count - 1):
            x, qkv = between(x, attention(qkv))
        return behind(x, attention(qkv))

    pool, stream, kept = torch.cuda.graph_pool_handle(), torch.cuda.Stream(), []

    def captured(function: Any, *arguments: Any) -> Any:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            out = function(*arguments)
        kept.append(graph)
        return out

    with torch.cuda.stream(stream), torch.no_grad():
        whole(x0)
        before(torch.zeros(8192, 4096, device="cuda", dtype=torch.bfloat16))
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        step("before")
        for size in sizes:
            x = x0[:size]
            whole(x)
            step(f"warm {size}")
            qkv = captured(before, x)
            for _ in range(count - 1):
                x, qkv = captured(between, x, attention(qkv))
            captured(behind, x, attention(qkv))
            step(f"piece {size}")
        for size in sizes:
            whole(x0[:size])
            step(f"warm {size}")
            captured(whole, x0[:size])
            step(f"full {size}")


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


def instances(step: Steps, capture: Any, count: int = 128) -> None:
    """That many graphs of what `capture` launches; how many nodes one has."""
    import torch

    stream, kept = torch.cuda.Stream(), []
    with torch.cuda.stream(stream):
        capture()
        capture()
    torch.cuda.synchronize()
    probe = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(probe, stream=stream):
        capture()
    library = runtime()
    nodes = ctypes.c_size_t()
    library.cudaGraphGetNodes(ctypes.c_void_p(probe.raw_cuda_graph()), None, ctypes.byref(nodes))
    found = (ctypes.c_void_p * nodes.value)()
    library.cudaGraphGetNodes(ctypes.c_void_p(probe.raw_cuda_graph()), found, ctypes.byref(nodes))
    kinds = []
    for node in found:
        kind = ctypes.c_int()
        library.cudaGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind))
        kinds.append(kind.value)
    pool = torch.cuda.graph_pool_handle()
    step(f"{nodes.value} nodes of kinds {sorted(set(kinds))}")
    for i in range(1, count + 1):
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g, stream=stream, pool=pool):
            capture()
        kept.append(g)
        if i in (count // 4, count // 2, count):
            step(f"{i} graphs")


def linears(step: Steps, tokens: int) -> None:
    """The four linear layers of a block of Llama-3.1-8B, bfloat16."""
    import torch

    shapes = ((4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096))
    weights = [torch.zeros(out, into, device="cuda", dtype=torch.bfloat16) for into, out in shapes]
    inputs = [torch.zeros(tokens, into, device="cuda", dtype=torch.bfloat16) for into, _ in shapes]
    outs = [torch.zeros(tokens, out, device="cuda", dtype=torch.bfloat16) for _, out in shapes]
    instances(
        step, lambda: [torch.mm(x, w.t(), out=y) for x, w, y in zip(inputs, weights, outs, strict=True)]
    )


def pieces_of(step: Steps, what: str) -> None:
    """Eight launches of one kind."""
    import torch

    x = torch.zeros(64, 4096, device="cuda", dtype=torch.bfloat16)
    y = torch.zeros_like(x)
    q = torch.zeros(64, 32, 128, 128, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(16, dtype=torch.int32, device="cuda")
    kernels = [frame(4, f"k{i}") for i in range(8)]
    big = frame(2048, "big")
    doubled = torch.compile(lambda a: (a * 2 + 1).relu(), dynamic=False) if what == "triton" else None

    def capture() -> None:
        for i in range(8):
            match what:
                case "add":
                    y.add_(x)
                case "kinds":
                    kernels[i](grid=(1, 1, 1), block=(1, 1, 1), args=(out, 1))
                case "local":
                    big(grid=(1, 1, 1), block=(1, 1, 1), args=(out, 1))
                case "memset":
                    y.zero_()
                case "copy":
                    y.copy_(x)
                case "attention":
                    torch.nn.functional.scaled_dot_product_attention(q, q, q)
                case "triton":
                    assert doubled is not None
                    doubled(x)

    instances(step, capture)


EXPERIMENTS: dict[str, Any] = {
    "context": context,
    **{f"local {n}": (lambda step, n=n: local(step, n)) for n in LOCALS},
    "locals": locals_,
    "codes": codes,
    "graph kernels": lambda step: graph(step, False),
    "graph products": lambda step: graph(step, True),
    "pieces": pieces,
    **{f"linears {m}": (lambda step, m=m: linears(step, m)) for m in (1, 8, 64, 256, 512)},
    **{
        f"pieces of {w}": (lambda step, w=w: pieces_of(step, w))
        for w in ("add", "kinds", "local", "memset", "copy", "attention", "triton")
    },
    **{f"layers {count}": (lambda step, count=count: layers(step, count)) for count in (8, 32)},
    "streams": streams,
    "pool": pool,
    **{
        f"many {n} {p}": (lambda step, n=n, p=p: many(step, n, p))
        for n, p in (
            (1, 1),
            (2, 1),
            (4, 1),
            (8, 1),
            (16, 1),
            (32, 1),
            (64, 1),
            (256, 1),
            (1, 32),
            (8, 32),
            (64, 32),
            (256, 32),
            (64, 8),
            (64, 128),
        )
    },
}


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
