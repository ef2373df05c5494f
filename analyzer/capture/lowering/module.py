"""An ONNX graph as a PyTorch module, so that training it goes through the same analysis as any PyTorch model.

1. Each node is a child module named after it that calls what PyTorch has for the operator (`operators.py`);
   shapes come from ONNX's own inference at the batch. Results are dropped after their last reader, as Python
   drops locals.
2. Floating initializers of more than one element are parameters; single numbers, integers and the running
   statistics of BatchNormalization are buffers.
3. Integer results that can be computed beforehand (shapes, positions) are, as PyTorch computes them in
   Python.
4. Operators without a PyTorch equivalent here, and those with subgraphs, run as one opaque step that keeps
   its inputs and results for the backward pass: an upper bound, named in `notes`.

Not modelled: what the exporter removed (batch norms folded into convolutions, dropout) does not come back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from analyzer.capture.lowering import layers, operators  # noqa: F401 (they register their functions)
from analyzer.capture.lowering.call import FUNCTIONS, SETTINGS, NodeCall, opaque, torch_dtype
from analyzer.capture.onnx import plain
from analyzer.errors import InputError
from analyzer.onnx.model import read
from analyzer.onnx.node import DEFAULT_DOMAINS
from analyzer.onnx.shapes.bind import Described
from analyzer.onnx.shapes.infer import Inferred
from analyzer.onnx.structure import Structure, reads
from analyzer.onnx.types import display, display_shape, element_count
from analyzer.onnx.values import Values

LARGEST_BATCH = 1 << 20
_LARGEST_TENSOR = 1 << 58  # elements: torch counts bytes in 63 bits
_SETTINGS = ("int64", "int32", "bool")
_QUANTISED_NAMES = """
    int8 uint8 int4 uint4 int2 uint2 float4_e2m1 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz
    float8_e8m0fnu
"""
_QUANTISED = frozenset(_QUANTISED_NAMES.split())
_STATISTICS = {"BatchNormalization": (3, 4)}  # inputs that are running statistics


@dataclass(frozen=True, slots=True)
class Lowered:
    """The module, its inputs in the graph's order (meta tensors), and what had to be bounded.

    why_not: why nothing in it can be trained, "" if something can.
    """

    module: nn.Module
    inputs: tuple[Tensor, ...]
    notes: tuple[str, ...]
    why_not: str = ""


def lower(path: str | Path, *, batch: int | None = None, inputs: Described | None = None) -> Lowered:
    """Return the module of an ONNX file. Raises TargetError and InputError as `capture_onnx` does."""
    if batch is not None and isinstance(batch, int) and batch > LARGEST_BATCH:
        raise InputError(f"training is analysed up to batch {LARGEST_BATCH}", "give a smaller batch")
    model = read(path, batch, inputs)
    structure, shapes = model.structure, model.shapes
    types = shapes.actual.types
    for name in (*structure.inputs, *structure.initializers):
        if element_count(types[name].sizes or ()) > _LARGEST_TENSOR:
            raise InputError(
                f"{display(name)!r} is too large to train: {display_shape(types[name].shape)}",
                "training is analysed by torch, whose tensors stay below 2^63 bytes",
            )
    module = OnnxModule(structure, shapes.actual)
    quantised = _quantised(structure, shapes.actual)
    kinds = [types[name] for name in structure.initializers]
    constants = any("float" in kind.dtype and element_count(kind.sizes or ()) > 1 for kind in kinds)
    trains = any(True for _ in module.parameters())
    feeds = tuple(
        torch.empty(types[name].sizes or (), dtype=torch_dtype(types[name].dtype), device="meta")
        for name in structure.inputs
    )
    notes = [*shapes.binding.notes, *shapes.actual.notes]
    if quantised:
        notes.append(
            f"not trained, since no gradient goes through whole numbers: {_weights_in_words(quantised)}"
        )
    if module.opaque_count:
        named = ", ".join(f"{name} ({count})" for name, count in sorted(module.opaque_count.items()))
        notes.append(f"bounded in training, keeping all inputs and results for the backward pass: {named}")
    why_not = "" if trains else _why_not(quantised, constants)
    return Lowered(module, feeds, tuple(dict.fromkeys(notes)), why_not)


def _quantised(structure: Structure, inferred: Inferred) -> Counter[str]:
    """Weights (of two dimensions or more) in types that no optimizer trains, by type."""
    kinds = (inferred.types[name] for name in structure.initializers)
    return Counter(value.dtype for value in kinds if value.dtype in _QUANTISED and len(value.sizes or ()) > 1)


def _weights_in_words(quantised: Counter[str]) -> str:
    return " and ".join(
        f"{count:,} weight{'s' if count > 1 else ''} of type {dtype}"
        for dtype, count in sorted(quantised.items())
    )


def _why_not(quantised: Counter[str], constants: bool) -> str:
    """Why a file has nothing to train. constants: whether it has floating-point tensors."""
    if quantised:
        return f"it is quantised, {_weights_in_words(quantised)}"
    return (
        "its floating-point weights are running statistics or settings" if constants else "it has no weights"
    )


class _Node(nn.Module):
    """A module that computes one node of the graph."""

    def __init__(self, call: NodeCall, function: Any) -> None:
        super().__init__()
        self.call, self.function = call, function

    def forward(self, *inputs: Tensor | None) -> Any:
        return self.function(self.call, *inputs)


class OnnxModule(nn.Module):
    """The graph: `forward` takes its inputs in order and returns its output, or a tuple of them."""

    def __init__(self, structure: Structure, inferred: Inferred) -> None:
        super().__init__()
        self.opaque_count: Counter[str] = Counter()
        self._inputs = tuple(structure.inputs)
        self._outputs = structure.outputs
        self._held: dict[str, str] = {}  # value name -> name of the parameter or buffer
        self._steps: list[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = []
        values = inferred.values
        constant = {
            name: array
            for name in structure.producers
            if inferred.types[name].dtype in _SETTINGS
            and (array := values.get(name) if values is not None else None) is not None
        }
        nodes = [
            (place, node)
            for place, node in enumerate(structure.nodes)
            if not all(name in constant for name in node.output if name)
        ]
        statistics = {
            node.input[position]
            for _, node in nodes
            for position in _STATISTICS.get(node.op_type, ())
            if position < len(node.input)
        }
        operands = [(*_tensors(node, values), *reads(structure, place)) for place, node in nodes]
        wanted = {name for names in operands for name in names} | set(self._outputs)
        for name in (*structure.initializers, *constant):
            if name in wanted:
                self._hold(name, inferred, constant.get(name), trained=name not in statistics)
        last = {name: index for index, names in enumerate(operands) for name in names if name}
        for index, (place, node) in enumerate(nodes):
            call = _node_call(node, inferred)
            domain = "" if node.domain in DEFAULT_DOMAINS else node.domain
            function = FUNCTIONS.get((domain, node.op_type))
            if function is None or place in structure.subgraphs:
                function = opaque
                self.opaque_count[f"{domain}.{node.op_type}" if domain else node.op_type] += 1
            child = self._unused_attribute(node.name or f"{node.op_type}_{place}")
            self.add_module(child, _Node(call, function))
            dead = tuple(
                name
                for name in dict.fromkeys((*operands[index], *node.output))
                if name
                and name not in self._held
                and name not in self._outputs
                and last.get(name, index) == index
            )
            self._steps.append((child, operands[index], tuple(node.output), dead))

    def _hold(self, name: str, inferred: Inferred, array: Any, *, trained: bool) -> None:
        """Store a value under a unique attribute: a parameter if it is trained, else a buffer."""
        value = inferred.types[name]
        sizes, dtype = value.sizes or (), torch_dtype(value.dtype)
        self._held[name] = key = self._unused_attribute(name)
        if array is None and inferred.values is not None and not dtype.is_floating_point:
            array = inferred.values.get(name)
        trained = trained and value.dtype not in _QUANTISED
        if value.dtype not in _SETTINGS:
            array = None  # only these decide shapes; of the others PyTorch cannot even hold some
        if dtype.is_floating_point and element_count(sizes) > 1 and trained:
            self.register_parameter(key, nn.Parameter(torch.empty(sizes, dtype=dtype, device="meta")))
        elif array is not None:
            self.register_buffer(key, torch.tensor(array.tolist(), dtype=dtype).reshape(sizes))
        else:
            self.register_buffer(key, torch.empty(sizes, dtype=dtype, device="meta"))

    def _unused_attribute(self, name: str) -> str:
        base = re.sub(r"[^\w/:-]", "/", name).strip("/") or "value"
        key, count = base, 1
        while hasattr(self, key):
            count += 1
            key = f"{base}:{count}"
        return key

    def forward(self, *inputs: Tensor) -> Any:
        """Run the nodes in order; results are dropped after their last reader."""
        values: dict[str, Tensor | None] = dict(zip(self._inputs, inputs, strict=True))
        for name, key in self._held.items():
            values[name] = getattr(self, key)
        for child, arguments, results, dead in self._steps:
            child_outputs = getattr(self, child)(*(values[name] if name else None for name in arguments))
            for name, value in zip(results, _sequence(child_outputs), strict=False):
                if name:
                    values[name] = value
            del child_outputs
            for name in dead:
                values.pop(name, None)
        outputs = tuple(values[name] for name in self._outputs)
        return outputs[0] if len(outputs) == 1 else outputs


def _tensors(node: Any, values: Values | None) -> tuple[str, ...]:
    """Return the node's inputs; "" in place of constant ones that are settings and no tensors in PyTorch."""
    first = SETTINGS.get(node.op_type, len(node.input)) if node.domain in DEFAULT_DOMAINS else len(node.input)
    return tuple(
        "" if place >= first and name and values is not None and values.get(name) is not None else name
        for place, name in enumerate(node.input)
    )


def _sequence(outputs: Any) -> Sequence[Tensor | None]:
    return outputs if isinstance(outputs, (tuple, list)) else (outputs,)


def _node_call(node: Any, inferred: Inferred) -> NodeCall:
    """Return the node as its lowering takes it: attributes, result shapes and types, inputs' known values."""
    types = [inferred.types[name] for name in node.output if name]
    values = inferred.values
    constants = tuple(
        values.get(name)
        if values is not None and name and inferred.types[name].dtype not in ("", "string")
        else None
        for name in node.input
    )
    return NodeCall(
        node.op_type,
        {attribute.name: plain(attribute) for attribute in node.attribute},
        tuple(value.sizes or () for value in types),
        tuple(value.dtype for value in types),
        constants,
    )
