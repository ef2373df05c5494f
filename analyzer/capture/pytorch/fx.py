"""The captured program as a `torch.fx` graph of ATen calls: to read, to dump, and to execute on a real
device.

1. One iteration of the program. Tensors that are alive when it begins and read in it (weights, optimizer
   state, the batch on the host) are placeholders.
2. A tensor argument is the value that was last produced with the same storage, type, shape, strides and
   offset; where there is none (autograd unpacks saved tensors as new objects), an `as_strided` of another
   value of that storage.
3. Each node carries the operator's phase, module path and source line in `node.meta`.

Not modelled: values that only Python saw (`item`); they are constants in the graph.
"""

from __future__ import annotations

import operator as python_operator
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from analyzer.graph import Argument, Graph, Operator, TensorMeta

_CONSTANTS: dict[str, Any] = {
    str(value): value
    for value in vars(torch).values()
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format))
}


def to_fx(graph: Graph, step: int = 0, device: str = "cuda") -> fx.GraphModule:
    """Iteration `step` of a PyTorch capture as an executable module on `device`: a placeholder for
    each tensor that is there before, a call for each operator.

    Placeholders appear in the order they are first read; `node.meta["tensor"]` is each one's `TensorMeta`.
    """
    return _Translation(graph, device).run(
        [op for op in graph.operators if op.step == step and op.phase.value != "setup"]
    )


def dump(graph: Graph, step: int = 0) -> str:
    """Return the iteration as text, one line a call, with phase, module and source line."""
    lines = []
    for node in to_fx(graph, step).graph.nodes:
        text = node.format_node()
        if text:
            place = " ".join(
                part
                for part in (node.meta.get("phase"), node.meta.get("module"), node.meta.get("source"))
                if part
            )
            lines.append(f"{text}  # {place}" if place else text)
    return "\n".join(lines) + "\n"


class _Translation:
    def __init__(self, graph: Graph, device: str) -> None:
        self._source = graph
        self._device = torch.device(device)
        self._graph = fx.Graph()
        self._exact: dict[TensorMeta, fx.Node] = {}
        self._any: dict[int, dict[str, fx.Node]] = {}
        self._placeholders = fx.Graph()

    def run(self, operators: list[Operator]) -> fx.GraphModule:
        """Return the operators as a module: a placeholder for each storage read before it is made, a node for
        each call."""
        for storage, meta in self._read_before_made(operators).items():
            name = re.sub(r"\W+", "_", self._source.storages[storage].name) or "tensor"
            name = f"_{name}" if name[0].isdigit() else name  # a child of nn.Sequential
            node = self._graph.placeholder(f"{name}_{storage}")
            # The whole storage, so that every view of it can be made from here.
            itemsize = torch.empty(0, dtype=getattr(torch, meta.dtype)).element_size()
            count = self._source.storages[storage].nbytes // itemsize
            flat = TensorMeta(storage, (count,), (1,), meta.dtype)
            node.meta["tensor"] = flat
            node.meta["on_device"] = self._source.storages[storage].on_device
            self._remember(flat, node)
        last: Any = ()
        for operator in operators:
            node = self._call(operator)
            last = node if operator.phase.value in ("forward", "loss") else last
        self._graph.output(last)
        return fx.GraphModule(torch.nn.Module(), self._graph)

    @staticmethod
    def _read_before_made(operators: list[Operator]) -> dict[int, TensorMeta]:
        written: set[int] = set()
        read: dict[int, TensorMeta] = {}
        for operator in operators:
            for tensor in operator.inputs:
                if tensor.storage not in written:
                    read.setdefault(tensor.storage, tensor)
            written.update(output.storage for output in operator.outputs if output is not None)
        return read

    def _call(self, operator: Operator) -> fx.Node:
        """Add a node for an operator, and one for each of its results."""
        namespace, _, called = operator.name.partition("::")
        name, _, overload = called.partition(".")
        target = getattr(getattr(getattr(torch.ops, namespace), name), overload)
        args = tuple(self._argument(argument) for argument in operator.arguments)
        node = self._graph.call_function(target, args, self._keywords(operator.keywords))
        node.meta.update(
            phase=operator.phase.value,
            module=operator.module,
            source=operator.source,
            operator=operator.index,
        )
        returns = target._schema.returns
        single = len(returns) == 1 and not isinstance(returns[0].type, torch.ListType)
        # Plain numbers among the results (sizes, in attention) are none of the operator's outputs.
        tensors = [place for place, result in enumerate(returns) if "Tensor" in str(result.type)]
        places = tensors if len(returns) > 1 else range(len(operator.outputs))
        for position, output in zip(places, operator.outputs, strict=True):
            if output is None:
                continue
            value = node if single else self._graph.call_function(python_operator.getitem, (node, position))
            self._remember(output, value)
        return node

    def _keywords(self, keywords: Mapping[str, Argument]) -> dict[str, Any]:
        return {
            name: self._device if name == "device" else self._argument(value)
            for name, value in keywords.items()
        }

    def _argument(self, argument: Argument) -> Any:
        if isinstance(argument, TensorMeta):
            return self._value(argument)
        if isinstance(argument, tuple):
            return [self._argument(part) for part in argument]
        if isinstance(argument, str):
            return _CONSTANTS.get(argument, argument)
        return argument

    def _value(self, meta: TensorMeta) -> fx.Node:
        """Return the node of a tensor: the exact one, or a view of another tensor of its storage."""
        node = self._exact.get(meta)
        if node is not None:
            return node
        by_type = self._any[meta.storage]
        base = by_type.get(meta.dtype)
        if base is None:
            base = self._graph.call_function(
                torch.ops.aten.view.dtype, (next(iter(by_type.values())), getattr(torch, meta.dtype))
            )
        node = self._graph.call_function(
            torch.ops.aten.as_strided.default, (base, list(meta.shape), list(meta.stride), meta.offset)
        )
        self._exact[meta] = node
        return node

    def _remember(self, meta: TensorMeta, node: fx.Node) -> None:
        self._exact[meta] = node
        self._any.setdefault(meta.storage, {})[meta.dtype] = node
