"""Which kernels a provider has: by domain, operator, operator-set version and element types.

1. A kernel fits a node if its range of versions holds the version in which the node's operator was last
   changed, or begins at it; a kernel without an end is only for the version it begins at.
2. It fits the node's types if each type parameter it constrains has, among the node's operands, one of its
   types. An operand's parameter is what the operator's schema says; a constraint may also name an operand.
3. A node of a custom domain has whatever kernel its library brings: nothing is known of it, and it counts as
   there. ONNX Runtime's extensions run on the CPU.

Source: `core/framework/kernel_registry.cc` (`VerifyVersion`, `MatchKernelDefTypes`). The table is written by
`benchmarks/onnx/kernels.py`, which asks ONNX Runtime itself, of the release in the table, for the kernels of
both providers. Not modelled: kernels that a provider registers and then declines for a node's attributes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from analyzer.onnx.shapes import extensions

TABLE = Path(__file__).with_name("registered.json")
OWN_DOMAINS = frozenset({"", "ai.onnx.ml", "com.microsoft"})


def has_kernel(
    provider: str, domain: str, op: str, opset: int, inputs: Sequence[str], outputs: Sequence[str]
) -> bool:
    """Return whether the provider has a kernel. inputs, outputs: element types, "" if unknown."""
    if domain in extensions.DOMAINS:
        return provider == "cpu"
    if domain not in OWN_DOMAINS:
        return True
    since, formals = _formals(domain, op, opset)
    # Of ONNX Runtime's own operators no schema is at hand: T is taken to be the first operand's type if that
    # is a number with a fraction.
    own = {"T": inputs[0]} if inputs and "float" in inputs[0] else {}
    operands = _by_parameter(formals, inputs, outputs) if formals else own
    for first, last, types in _table().get(f"{provider}:{domain}", {}).get(op, ()):
        fits = first == since if last is None else first <= since <= last
        if (fits or since < 0) and _types_fit(types, operands):
            return True
    return False


def knows(provider: str, domain: str, op: str) -> bool:
    """Return whether the provider has a kernel of that name for any types and versions."""
    return op in _table().get(f"{provider}:{domain}", {})


def _types_fit(types: Mapping[str, Sequence[str]], operands: Mapping[str, str]) -> bool:
    return all(operands.get(name, "") in ("", *allowed) for name, allowed in types.items())


def _by_parameter(
    formals: tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> dict[str, str]:
    """Type parameters and operands' names -> the element type the node has there."""
    types: dict[str, str] = {}
    for declared, actual in zip(formals, (inputs, outputs), strict=True):
        for place, dtype in enumerate(actual):
            if declared and dtype:
                name, parameter = declared[min(place, len(declared) - 1)]
                types.setdefault(name, dtype)
                types.setdefault(parameter, dtype)
    return types


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    return dict(json.loads(TABLE.read_text()))


def since_version(op: str, opset: int, domain: str = "") -> int:
    """Return the version of an operator set in which the operator was last changed; -1 if that is unknown."""
    return _formals(domain, op, opset)[0]


@lru_cache(maxsize=4096)
def _formals(domain: str, op: str, opset: int) -> tuple[int, Any]:
    """Return the operator's last changed version (-1: unknown) and its (name, type) operands."""
    import onnx

    if domain != "com.microsoft" and onnx.defs.has(op, domain):
        try:
            schema = onnx.defs.get_schema(op, max_inclusive_version=opset, domain=domain)
        except onnx.defs.SchemaError:
            schema = onnx.defs.get_schema(op, domain=domain)
        inputs = tuple((formal.name, formal.type_str) for formal in schema.inputs)
        outputs = tuple((formal.name, formal.type_str) for formal in schema.outputs)
        return int(schema.since_version), (inputs, outputs)
    return -1, ()
