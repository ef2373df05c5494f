"""The captured graph executed on a real device, every tensor freed at its last use: the measured side of
`graph_peak`.

1. The iteration in which the estimate peaks is executed as a `torch.fx` graph (`capture/pytorch/fx.py`) by
   `torch.fx.Interpreter`, which drops each value after the last node that uses it. That is independent of
   `liveness/`, which predicted the peak from live ranges of storages.
2. The same tensors are kept as in the estimate: those alive when the iteration begins (weights, buffers,
   optimizer state, also those no operator reads) and the batch of the iteration, to the end of their live
   ranges. A value nobody reads is dropped at once.
3. Live bytes are read after each node while its inputs and results are both there, as requested of the
   allocator: without operators' temporary memory, and without rounding. Library workspaces are switched off.
4. Values are random, integers 0: they decide nothing about memory, and as indices they are valid.

Not modelled: autograd; the graph's backward operators are ordinary nodes here.
"""

from __future__ import annotations

import bisect
import os
from typing import Any, Protocol

import torch
from torch import fx

from analyzer.capture.pytorch.fx import to_fx
from analyzer.graph import Graph, Run, TensorMeta
from analyzer.liveness.lifetimes import Lifetimes, lifetimes, peak
from analyzer.options import Options
from analyzer.pipeline import analysis

ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":0:0", "CUBLASLT_WORKSPACE_SIZE": "0"}


class LiveBytes(Protocol):
    """Reads how many bytes of tensors are alive on the device."""

    def read(self) -> int: ...


class CudaLiveBytes:
    """Bytes requested of the caching allocator and not given back."""

    def read(self) -> int:
        return int(torch.cuda.memory_stats()["requested_bytes.all.current"])


def run(target: str, options: Options) -> dict[str, Any]:
    """Capture `target` again and execute the iteration that peaks, on CUDA."""
    analysed = analysis(target, options)
    if torch.cuda.is_initialized():
        raise RuntimeError("the capture initialised CUDA")
    if os.environ.get("CUBLAS_WORKSPACE_CONFIG") != ENVIRONMENT["CUBLAS_WORKSPACE_CONFIG"]:
        raise RuntimeError("library workspaces are on")
    torch.zeros(1, device="cuda")
    live, node_count = execute(analysed.graph, "cuda", CudaLiveBytes())
    return {"graph_peak": analysed.estimate.graph_peak, "live_peak": live, "node_count": node_count}


def execute(graph: Graph, device: str, meter: LiveBytes) -> tuple[int, int]:
    """Execute the iteration in which `graph` peaks; values go after their last node.

    Returns the most bytes alive after a node, and how many nodes.
    """
    ranges = lifetimes(graph)
    graph_peak = peak(graph, ranges=ranges)
    runs = {moment.operator: place for place, moment in enumerate(graph.program) if isinstance(moment, Run)}
    following = bisect.bisect_left(list(runs.values()), graph_peak.position)
    step = graph.operators[list(runs)[min(following, len(runs) - 1)]].step
    with torch.no_grad():
        executor = _Executor(to_fx(graph, step, device), graph, ranges, runs, step, device, meter)
        # The values come from `placeholder` itself: a list here would keep every one of them alive.
        executor.run(*[None] * executor.placeholder_count)
    return executor.peak_bytes, executor.node_count


class _Executor(fx.Interpreter):
    """Runs nodes one by one and reads the live bytes after each, what the estimate keeps being kept."""

    def __init__(
        self,
        module: fx.GraphModule,
        graph: Graph,
        ranges: Lifetimes,
        runs: dict[int, int],
        step: int,
        device: str,
        meter: LiveBytes,
    ) -> None:
        super().__init__(module)
        self._source, self._ranges, self._runs = graph, ranges, runs
        self._device, self._meter = device, meter
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        self.placeholder_count = len(placeholders)
        self.node_count = 0
        self._kept: dict[int, Any] = {}
        self._before = meter.read()
        self.peak_bytes = 0
        typed = {node.meta["tensor"].storage: node.meta["tensor"] for node in placeholders}
        position = min(
            place
            for index, place in runs.items()
            if graph.operators[index].step == step and graph.operators[index].phase.value != "setup"
        )
        for storage in {*typed, *ranges.alive_at(position - 1)}:
            if not graph.storages[storage].on_device:
                continue
            nbytes = graph.storages[storage].nbytes
            meta = typed.get(storage, TensorMeta(storage, (nbytes,), (1,), "uint8"))
            self._kept[storage] = self._make(meta, device)

    def _make(self, meta: TensorMeta, device: str) -> torch.Tensor:
        """Random values, integers 0: they decide nothing about memory."""
        tensor = torch.zeros(meta.shape, dtype=getattr(torch, meta.dtype), device=device)
        if tensor.is_floating_point():
            tensor.uniform_(0.001, 0.02)
        return tensor

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:  # noqa: ARG002
        raise AssertionError("placeholders are made in run_node")

    def run_node(self, n: fx.Node) -> Any:
        """Run a node; afterwards free the storages whose last use it was."""
        if n.op == "placeholder":
            next(self.args_iter)
            meta = n.meta["tensor"]
            kept = self._kept.get(meta.storage)
            return self._make(meta, "cpu") if kept is None else kept
        operator = n.meta.get("operator")
        if operator is not None:
            self._forget(self._runs[operator])
        result = super().run_node(n)
        if n.op == "call_function":
            self.node_count += 1
            self.peak_bytes = max(self.peak_bytes, self._meter.read() - self._before)
            if operator is not None:
                self._keep(operator, result)
            if not n.users:
                return None
        return result

    def _forget(self, position: int) -> None:
        """Free kept tensors whose live range ends here."""
        over = [storage for storage in self._kept if self._ranges.last[storage] < position]
        for storage in over:
            del self._kept[storage]

    def _keep(self, operator: int, result: Any) -> None:
        """Keep a result that later iterations use: the batch, optimizer state, buffers."""
        outputs = self._source.operators[operator].outputs
        results = result if isinstance(result, (tuple, list)) else [result]
        results = [entry for entry in results if entry is None or isinstance(entry, torch.Tensor)]
        for meta, tensor in zip(outputs, results, strict=False):
            if meta is not None and tensor is not None:
                storage = self._source.storages[meta.storage]
                if storage.category.value in ("inputs", "optimizer state", "buffers") and storage.on_device:
                    self._kept.setdefault(meta.storage, tensor)
