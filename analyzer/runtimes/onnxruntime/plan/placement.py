"""Which provider runs each node.

1. "cpu": every node. "cuda": every node the CUDA provider has a kernel for (`kernels/registered.py`) and does
   not decline (`kernels/declined.py`), then shape arithmetic goes back to the CPU.
2. Nodes that only work on values in host memory run on the CPU: starting from the nodes that write to host
   memory (`Shape`), a node goes to the CPU if every input is such a value, a constant of integers, or on the
   host already, and the node itself is not one that produces the host value. Source:
   `core/framework/fallback_cpu_capability.cc` (`GetCpuPreferredNodes`).

Not modelled: copies ONNX Runtime inserts between providers when a kernel is missing (noted by `session`).
"""

from __future__ import annotations

from analyzer.runtimes.onnxruntime.graph import RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels import declared
from analyzer.runtimes.onnxruntime.kernels.declined import declines
from analyzer.runtimes.onnxruntime.plan.order import topological

_SMALL_TYPES = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"})


def assign(graph: RuntimeGraph, provider: str) -> None:
    """Set every node's provider; "" where none has a kernel for it."""
    for node in graph.nodes.values():
        providers = dict.fromkeys((provider, "cpu"))
        node.provider = next(
            (
                one
                for one in providers
                if declared.has_kernel(one, node, graph) and not (one == "cuda" and declines(node))
            ),
            "",
        )
    if provider == "cpu":
        return
    order = topological(graph)
    on_host: set[str] = set()
    for node in order:
        if node.provider in ("cpu", ""):
            continue
        for place, name in enumerate(node.outputs):
            if name and declared.output_on_host("cuda", node.kernel, place):
                on_host.add(name)
    # A node moves when everything it reads is on the host already or a small constant, and at least one is on
    # the host.
    for node in order:
        if node.provider in ("cpu", "") or node.bodies or any(name in on_host for name in node.outputs):
            continue
        names = [name for name in node.inputs if name]
        if not names or not any(name in on_host for name in names):
            continue
        if not all(name in on_host or name in graph.initializers for name in names):
            continue
        if not all(
            graph.values[name].dtype in _SMALL_TYPES | {"float32", "float64"} for name in node.outputs if name
        ):
            continue
        if node.kernel in declared.STAYS_ON_GPU:
            continue
        node.provider = "cpu"
        on_host.update(name for name in node.outputs if name)
