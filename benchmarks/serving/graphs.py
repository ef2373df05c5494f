"""What the driver takes for CUDA graphs, by what is in them: python -m benchmarks serving graphs OUT.jsonl [NAME ...]

Run on a GPU that nobody else uses. Each experiment is a forked process of its own, which writes JSON lines: graphs of so many nodes are
captured, instantiated, uploaded and launched, and the bytes of the device in use that the allocator does not hold are said
(`mem_get_info` less `memory_reserved`). Graphs of one process are kept until it ends, since the driver keeps pages of those given back.

- flags: one graph instantiated 64 times with each flag, by this CUDA runtime and by another (CUDART: the path of its library), then
  uploaded and launched; shapes: many small graphs and few large ones; branches: 64 kernels on two, four and eight streams, forked
  once or for each layer; parameters: kernels with 8 to 4,000 bytes of them; kinds: memset and memcpy nodes, clusters, local and shared
  memory, programmatic dependent launches.
- engine: as a serving engine captures 32 and 8 layers, for 51 sizes a graph between two attentions each and a whole one.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from benchmarks.serving.outside import frame, outside, runtime

FLAGS = (0, 1, 4, 8)  # none, auto free on launch, device launch, node priority
SHAPES = (
    (1, 256),
    (8, 256),
    (64, 128),
    (250, 64),
    (320, 64),
    (513, 32),
    (700, 32),
    (1025, 24),
    (2100, 16),
    (5000, 6),
)
# Parameters of 8 bytes, kernels, graphs.
PARAMETERS = (
    *((pointers, 64, 256) for pointers in (1, 128, 144, 160, 192, 256, 384, 500)),
    *((1, nodes, 512) for nodes in (1, 4, 8, 9, 12, 13, 16, 17, 24, 25, 32, 33, 48, 64)),
)
SIZES = 51
_DEPENDENT = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
Say = Callable[..., None]
_held: list[Any] = []


class Launch:
    """A kernel with its arguments, launched on the current stream."""

    def __init__(
        self, kernel: Any, values: list[Any], grid: int = 1, threads: int = 32, shared: int = 0
    ) -> None:
        self.kernel, self.grid, self.threads, self.shared = kernel, grid, threads, shared
        self.values = values
        self.array = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        self.driver = ctypes.CDLL("libcuda.so.1")

    def __call__(self) -> None:
        import torch

        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        shape = (self.grid, 1, 1, self.threads, 1, 1, self.shared)
        assert self.driver.cuLaunchKernel(self.kernel.func, *shape, stream, self.array, None) == 0


class Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_int * 16))


class Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint),
    )  # fmt: skip


def compiled(source: str, name: str) -> Any:
    import torch

    return torch.cuda._compile_kernel(f'extern "C" __global__ void {source}', name)


def plain(out: Any, pointers: int = 1) -> Launch:
    """A kernel with so many parameters of 8 bytes."""
    names = ", ".join(f"int *p{i}" for i in range(pointers))
    kernel = compiled(f"k({names}) {{ if (p0 == p{pointers - 1} + 1) p0[0] = 1; }}", "k")
    return Launch(kernel, [ctypes.c_void_p(out.data_ptr()) for _ in range(pointers)])


def setup() -> tuple[Any, Any]:
    """Memory to point at, and a stream on which a kernel has run."""
    import torch

    out, stream = torch.empty(1 << 20, dtype=torch.int32, device="cuda"), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        plain(out)()
        out.fill_(0)  # a kernel of PyTorch's own, as the first capture launches
    torch.cuda.synchronize()
    return out, stream


def series(say: Say, name: str, capture: Callable[[], object], count: int, stream: Any, **more: Any) -> None:
    """So many graphs of what is launched; what they take captured and replayed."""
    import torch

    with torch.cuda.stream(stream):
        capture()
    before, kept = outside(), []
    _held.append(kept)
    for _ in range(count):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            capture()
        kept.append(graph)
    taken = outside() - before
    for graph in kept:
        graph.replay()
    say(name=name, count=count, taken=taken, replayed=outside() - before, **more)


def flags(say: Say, _: Any) -> None:
    import torch

    out, stream = setup()
    kernel, graph = plain(out), torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(64):
            kernel()
    raw, own, on = ctypes.c_void_p(graph.raw_cuda_graph()), runtime(), ctypes.c_void_p(stream.cuda_stream)
    other = os.environ.get("CUDART")
    for library in [own, *([ctypes.CDLL(other)] if other else [])]:
        version = ctypes.c_int()
        library.cudaRuntimeGetVersion(ctypes.byref(version))
        for flag in FLAGS:
            before, instances = outside(), [ctypes.c_void_p() for _ in range(64)]
            for one in instances:
                assert library.cudaGraphInstantiate(ctypes.byref(one), raw, ctypes.c_ulonglong(flag)) == 0
            said = {"taken": outside() - before}
            for step, what in (("uploaded", own.cudaGraphUpload), ("launched", own.cudaGraphLaunch)):
                for one in instances:
                    what(one, on)
                said[step] = outside() - before
            say(name="flags", runtime=version.value, flag=flag, count=64, nodes=64, **said)


def shapes(say: Say, which: tuple[int, int]) -> None:
    nodes, count = which
    out, stream = setup()
    kernel = plain(out)
    series(say, "shapes", lambda: [kernel() for _ in range(nodes)], count, stream, nodes=nodes)


def branches(say: Say, _: Any) -> None:
    import torch

    out, stream = setup()
    kernel = plain(out)
    for width in (2, 4, 8):
        sides = [torch.cuda.Stream() for _ in range(width - 1)]

        def forked(layers: int, width: int = width, sides: list[Any] = sides) -> None:
            main = torch.cuda.current_stream()
            for _ in range(layers):
                for side in sides:
                    side.wait_stream(main)
                for one in (main, *sides):
                    with torch.cuda.stream(one):
                        for _ in range(64 // width // layers):
                            kernel()
                for side in sides:
                    main.wait_stream(side)

        series(say, "branches once", lambda forked=forked: forked(1), 32, stream, width=width)
        series(say, "branches a layer", lambda forked=forked: forked(8), 32, stream, width=width)


def parameters(say: Say, which: tuple[int, int, int]) -> None:
    """Graphs of so many kernels that have so many parameters of 8 bytes each."""
    pointers, nodes, count = which
    out, stream = setup()
    kernel = plain(out, pointers)
    series(
        say,
        "parameters",
        lambda: [kernel() for _ in range(nodes)],
        count,
        stream,
        parameter_bytes=8 * pointers,
        nodes=nodes,
    )


def kinds(say: Say, _: Any) -> None:
    import torch

    out, stream = setup()
    library, at, kernel, some = runtime(), out.data_ptr(), plain(out), ctypes.c_size_t(4096)
    pointer = [ctypes.c_void_p(at)]
    cluster = Launch(
        compiled("__cluster_dims__(2,1,1) c(int *p) { if (!p) p[0] = 1; }", "c"), pointer, grid=8
    )
    local = Launch(frame(2048, "local"), [*pointer, ctypes.c_int(1)])
    wide = compiled("s(int *p) { extern __shared__ int a[]; a[threadIdx.x] = 1; if (!p) p[0] = a[1]; }", "s")
    wide.set_shared_memory_config(200 * 1024)
    shared = Launch(wide, pointer, grid=264, threads=1024, shared=200 * 1024)

    def on() -> ctypes.c_void_p:
        return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def dependent() -> None:
        attribute = Attribute(_DEPENDENT, b"", (ctypes.c_int * 16)(1))
        three = ctypes.c_uint * 3
        config = Config(three(1, 1, 1), three(32, 1, 1), 0, on().value, ctypes.pointer(attribute), 1)
        assert (
            kernel.driver.cuLaunchKernelEx(ctypes.byref(config), kernel.kernel.func, kernel.array, None) == 0
        )

    for name, launch in {
        "memset": lambda: library.cudaMemsetAsync(ctypes.c_void_p(at), 0, some, on()),
        "memcpy": lambda: library.cudaMemcpyAsync(ctypes.c_void_p(at), ctypes.c_void_p(at + 65536), some, 3, on()),
        "clusters": cluster, "local": local, "shared": shared, "dependent launches": dependent,
    }.items():  # fmt: skip
        series(say, name, lambda launch=launch: [launch() for _ in range(64)], 32, stream, nodes=64)


def engine(say: Say, layers: int) -> None:
    import torch

    out, stream = setup()
    kernel, pool = plain(out, 8), torch.cuda.graph_pool_handle()

    def graph(nodes: int) -> None:
        one = torch.cuda.CUDAGraph()
        with torch.cuda.graph(one, stream=stream, pool=pool):
            for _ in range(nodes):
                kernel()
        _held.append(one)

    with torch.cuda.stream(stream):
        kernel()
    begin = outside()
    for _ in range(SIZES * (layers + 1)):
        graph(9)
    pieces = outside()
    for _ in range(SIZES):
        graph(12 * layers)
    say(name="engine", layers=layers, pieces=pieces - begin, full=outside() - pieces)


PLAN: tuple[tuple[Callable[[Say, Any], None], Any], ...] = (
    (flags, None), *((shapes, shape) for shape in SHAPES), (engine, 32), (engine, 8), (branches, None), *((parameters, each) for each in PARAMETERS), (kinds, None),
)  # fmt: skip


@click.command()
@click.argument("out", type=Path)
@click.argument("names", nargs=-1)
def main(out: Path, names: tuple[str, ...]) -> None:
    """Run the experiments, or those named, and record what they said."""
    out.write_text("")

    def say(**row: Any) -> None:
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")

    for experiment, argument in PLAN:
        if names and experiment.__name__ not in names:
            continue
        child = os.fork()
        if child == 0:
            try:
                experiment(say, argument)
            except Exception as error:
                say(name=experiment.__name__, error=f"{type(error).__name__}: {error}"[:500])
            os._exit(0)
        os.waitpid(child, 0)
