"""CUDA graphs of a program that runs on no GPU: what is captured runs once, and replaying it takes no memory.

1. While a graph is captured, memory comes from a pool of its own, which no other work is served from; graphs
   that name the same pool (`graph_pool_handle`, `CUDAGraph.pool`) share it
   (`c10/cuda/CUDACachingAllocator.cpp`, `PrivatePool`). Blocks are kept apart by stream in the same way, so a
   capture runs on a stream nobody else has.
2. `replay` runs kernels on memory that is there already.
3. The first graph to be captured takes two tensors for the seed and offset of random numbers, on the stream
   that is current, before its pool is used; they go with the last graph
   (`CUDAGeneratorState::register_graph`, aten/src/ATen/cuda/CUDAGeneratorImpl.cpp).
4. `torch.cuda.graph` makes a stream of its own current while it captures, the same for all graphs
   (`torch/cuda/graphs.py`).

Not modelled: segments of such a pool stay although the cache is emptied, as long as a graph uses them.
"""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any

import torch

from analyzer.graph import STREAMS

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

# Behind the numbers of the streams a program can make (`streams.py`).
_FIRST_STREAM = 1000


def graphs(recorder: Recorder) -> dict[str, Any]:
    """Name below `torch` -> CUDA graphs of the pretended device."""
    pools = itertools.count(1)
    capturing: list[int] = []
    registered = set[int]()
    seeds: list[torch.Tensor] = []

    def unregister(number: int) -> None:
        registered.discard(number)
        if not registered:
            seeds.clear()

    def new_pool() -> tuple[int, int]:
        return (0, next(pools))

    class CUDAGraph:
        """`torch.cuda.CUDAGraph`."""

        def __init__(self, keep_graph: bool = False) -> None:
            self._keeps, self._pool, self._before = keep_graph, (0, 0), 0

        def capture_begin(self, pool: Any = None, *_: Any, **__: Any) -> None:
            """Begin the capture: allocations come from the graph's pool from here on."""
            if not seeds:
                seeds.extend(torch.empty(1, dtype=torch.int64, device="cuda") for _ in range(2))
            if id(self) not in registered:
                registered.add(id(self))
                weakref.finalize(self, unregister, id(self)).atexit = False
            self._pool = new_pool() if pool is None else pool
            self._before = recorder.streams.now(recorder.gpus.current)
            recorder.streams.made_any = True
            gpu = recorder.gpus.current
            recorder.streams.set(gpu * STREAMS + _FIRST_STREAM + self._pool[1])
            capturing.append(self._pool[1])

        def capture_end(self) -> None:
            """Memory comes from where it came from before."""
            recorder.streams.set(self._before)
            capturing.pop()

        def replay(self) -> None:
            """Do nothing: a replay runs on the memory of the capture."""

        def pool(self) -> tuple[int, int]:
            """Return the id of the pool, which other graphs may share."""
            return self._pool

        def _nothing(self, *_: Any, **__: Any) -> None:
            """There is no graph to change or to show."""

        instantiate = reset = enable_debug_mode = debug_dump = register_generator_state = _nothing

    class graph:
        """`torch.cuda.graph`, which empties the cache before it captures (`torch/cuda/graphs.py`)."""

        default_capture_stream: Any = None

        def __init__(
            self, cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None, *_: Any, **__: Any
        ) -> None:
            self._graph, self._pool = cuda_graph, pool
            if stream is None and graph.default_capture_stream is None:
                graph.default_capture_stream = torch.cuda.Stream()
            self._stream = stream or graph.default_capture_stream

        def __enter__(self) -> None:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            self._stream.__enter__()
            self._graph.capture_begin(self._pool)

        def __exit__(self, *_: object) -> None:
            self._graph.capture_end()
            self._stream.__exit__()

    return {
        "cuda.CUDAGraph": CUDAGraph,
        "cuda.graph": graph,
        "cuda.graph_pool_handle": new_pool,
        "cuda.is_current_stream_capturing": lambda: bool(capturing),
    }
