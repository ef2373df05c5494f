"""The same start of vLLM on a GPU, so that the emulated one has a run of the same release beside it.

    PYTHONPATH=extensions/analyzer_serving/engines/inside python benchmarks/serving/on_gpu.py [--kept] OUT MODEL [ARGUMENT ...]

In an environment with vLLM, on a GPU that nobody else uses; it has the starter's modules on its path, as the emulated start has them.

OUT: what `extensions/analyzer_serving/engines/inside/vllm_start.py` writes, and "captures": for each batch whose graphs are captured, in vLLM's order, its
mode, tokens, and the bytes free on the GPU and reserved by the allocator before and after. --kept: graphs are captured and instantiated
apart; "graphs" then has, for each, its nodes by kind and the bytes that were free before the capture, before its instance and after it.
MODEL: a folder with a config.json; weights are random.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import json
import sys
from pathlib import Path
from typing import Any

import vllm_answers
import vllm_start


def state() -> list[int]:
    """Bytes free on the GPU, and reserved by the allocator."""
    import torch

    torch.cuda.synchronize()
    return [torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()]


def watch_captures(seen: dict[str, Any]) -> None:
    """Record the memory around each batch's capture, in the model runner that captures them one by one."""
    import torch
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    captured = GPUModelRunner._warmup_and_capture

    @functools.wraps(captured)
    def _warmup_and_capture(
        self: Any, desc: Any, cudagraph_runtime_mode: Any, *rest: Any, **named: Any
    ) -> Any:
        before = state()
        found = captured(self, desc, cudagraph_runtime_mode, *rest, **named)
        seen["captures"].append([cudagraph_runtime_mode.name, desc.num_tokens, *before, *state()])
        return found

    GPUModelRunner._warmup_and_capture = _warmup_and_capture
    seen["gpu"] = [
        torch.cuda.get_device_name(),
        Path("/proc/driver/nvidia/version").read_text().split("\n")[0],
    ]


def watch_graphs(seen: dict[str, Any]) -> None:
    """Capture and instantiate each graph apart, and record its nodes and the memory of both."""
    import torch

    runtime = ctypes.CDLL("libcudart.so.13")
    own = torch.cuda.CUDAGraph

    class Kept(own):  # type: ignore[misc, valid-type]
        """A graph that is instantiated when its capture ends, with the memory of both recorded."""

        def __new__(cls) -> Any:
            return super().__new__(cls, True)

        def __init__(self) -> None:
            super().__init__(True)

        def capture_begin(self, *arguments: Any, **named: Any) -> None:
            self.free = torch.cuda.mem_get_info()[0]
            super().capture_begin(*arguments, **named)

        def capture_end(self) -> None:
            super().capture_end()
            captured, reserved = torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()
            self.instantiate()
            kinds = nodes_of(runtime, self.raw_cuda_graph())
            seen["graphs"].append([dict(kinds), self.free, captured, torch.cuda.mem_get_info()[0], reserved])

    torch.cuda.CUDAGraph = Kept  # type: ignore[misc]


def nodes_of(runtime: ctypes.CDLL, graph: int) -> collections.Counter[int]:
    """How many nodes a graph has, by cudaGraphNodeType."""
    count = ctypes.c_size_t()
    runtime.cudaGraphGetNodes(ctypes.c_void_p(graph), None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * count.value)()
    runtime.cudaGraphGetNodes(ctypes.c_void_p(graph), nodes, ctypes.byref(count))
    kinds: collections.Counter[int] = collections.Counter()
    for node in nodes:
        kind = ctypes.c_int()
        runtime.cudaGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind))
        kinds[kind.value] += 1
    return kinds


def answer_weights() -> None:
    """Of what is answered without a GPU, what stands in for files of weights alone."""
    vllm_answers.answer_gptq()


def main() -> None:
    words = sys.argv[1:]
    kept = words[0] == "--kept"
    out, model, *arguments = words[kept:]
    seen: dict[str, Any] = {"ranks": [], "captures": [], "graphs": []}
    vllm_answers.answer_all = answer_weights
    watch_captures(seen)
    if kept:
        watch_graphs(seen)
    try:
        vllm_start.start(model, arguments, seen)
    finally:
        Path(out).write_text(json.dumps(seen), "utf-8")


if __name__ == "__main__":
    main()
