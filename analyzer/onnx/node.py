"""One ONNX node: what messages call it, and whether it has the inputs, outputs and attributes its operator
demands.

1. ONNX's own operators are asked for in its schemas, as ONNX Runtime does when it opens a model
   (`OpSchema::Verify`). One that is newer than the model's operator set is held to its newest schema.
2. For contrib operators only what decides sizes is checked. Other operators pass: nothing is known of them.

The rules about operators rely on this: they take required inputs and attribute types for granted.

Source: `onnx/defs/schema.cc`; `docs/ContribOperators.md` of ONNX Runtime 1.31.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from analyzer.errors import TargetError
from analyzer.onnx.types import display
from analyzer.tables import by_name

DEFAULT_DOMAINS = ("", "ai.onnx")
DAMAGED = "the file is damaged: export the model again"

# Contrib operators by the number of inputs up to the last required one; the first input and output always
# are.
_CONTRIB_OF_INPUTS = {
    1: "FastGelu Gelu MultiHeadAttention QuickGelu",
    2: "Attention BiasDropout BiasGelu BiasSoftmax BiasSplitGelu DequantizeLinear FusedConv FusedGemm"
    " FusedMatMul FusedMatMulActivation QuantizeLinear SimplifiedLayerNormalization TransposeMatMul",
    3: "BiasAdd GatherBlockQuantized MatMulBnb4 MatMulFpQ4 MatMulNBits SkipLayerNormalization"
    " SkipSimplifiedLayerNormalization",
    4: "QAttention RotaryEmbedding",
    7: "EmbedLayerNormalization GroupQueryAttention",
}
_CONTRIB_INPUTS = by_name(_CONTRIB_OF_INPUTS)

# Types of contrib operators' attributes that decide sizes (AttributeProto: 2 a whole number, 7 several).
_CONTRIB_OF_TYPE = {
    2: "K N axis bits block_size gather_axis group kv_num_heads num_heads quantize_axis transA transB"
    " transBatchA transBatchB",
    7: "dilations kernel_shape pads qkv_hidden_sizes strides",
}
_CONTRIB_ATTRIBUTES = by_name(_CONTRIB_OF_TYPE)


def check_node(node: Any, opset: int) -> None:
    """Raise TargetError for an invalid node. opset: the model's version of ONNX's operators."""
    default = node.domain in DEFAULT_DOMAINS
    schema = _schema(node.op_type, opset) if default else None
    attributes = _CONTRIB_ATTRIBUTES
    if schema is not None:
        _check_names(node, node.input, schema.inputs, "input")
        _check_names(node, node.output, schema.outputs, "output")
        attributes = schema.attributes
    elif default or node.domain == "com.microsoft":
        least = _CONTRIB_INPUTS.get(node.op_type, 0)
        if least and not (_count(node.input) >= least and node.input[0] and node.output and node.output[0]):
            raise TargetError(f"{node_name(node)} lacks some of its {least} inputs, or its output", DAMAGED)
    for attribute in node.attribute:
        if attribute.type != attributes.get(attribute.name, attribute.type):
            raise TargetError(
                f"attribute {display(attribute.name)} of {node_name(node)} has the wrong type", DAMAGED
            )
        if node.op_type == "Split" and attribute.name == "num_outputs" and attribute.i != len(node.output):
            # ONNX's inference writes past the end of a vector here (`defs/tensor/defs.cc`, onnx 1.23).
            raise TargetError(
                f"{node_name(node)} has {len(node.output)} outputs and says {attribute.i}", DAMAGED
            )


def node_name(node: Any) -> str:
    """Return a node's name for messages: "node 'conv1' (Conv)", or by its first output if it has no name."""
    shown = f"{display(node.domain)}.{display(node.op_type)}" if node.domain else display(node.op_type)
    if node.name:
        return f"node {display(node.name)!r} ({shown})"
    output = next((name for name in node.output if name), "")
    return f"the {shown} that makes {display(output)!r}"


@dataclass(frozen=True, slots=True)
class _Names:
    """A schema's inputs or outputs. demanded: whether each, the last one variadic, may not be left out."""

    names: tuple[str, ...]
    demanded: tuple[bool, ...]
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class _Schema:
    inputs: _Names
    outputs: _Names
    attributes: dict[str, int]


@lru_cache(maxsize=1024)
def _schema(operator: str, opset: int) -> _Schema | None:
    """The operator's schema in the model's operator set, or its newest one, None if ONNX has none. ONNX
    makes new objects of everything in it at each question, which is asked for each node."""
    import onnx

    option = onnx.defs.OpSchema.FormalParameterOption

    def names(formals: Any, demanded: tuple[Any, ...], least: int, most: int) -> _Names:
        return _Names(
            tuple(formal.name for formal in formals),
            tuple(formal.option in demanded for formal in formals),
            least,
            most,
        )

    if onnx.defs.has(operator):
        for version in (opset, onnx.defs.onnx_opset_version()):
            try:
                schema: Any = onnx.defs.get_schema(operator, version, "")
            except onnx.defs.SchemaError:
                continue
            return _Schema(
                names(schema.inputs, (option.Single, option.Variadic), schema.min_input, schema.max_input),
                names(schema.outputs, (option.Single,), schema.min_output, schema.max_output),
                {name: int(formal.type) for name, formal in schema.attributes.items()},
            )
    return None


def _check_names(node: Any, names: Any, formals: _Names, what: str) -> None:
    """Raise TargetError if a node has too few or too many inputs or outputs, or lacks a required one."""
    count = _count(names)
    if not formals.least <= count <= formals.most:
        wanted = formals.least if count < formals.least else formals.most
        raise TargetError(f"{node_name(node)} has {count} {what}s, not {wanted}", DAMAGED)
    for place, name in enumerate(names if formals.names else ()):
        if not name and formals.demanded[min(place, len(formals.names) - 1)]:
            formal = formals.names[min(place, len(formals.names) - 1)]
            raise TargetError(f"{node_name(node)} lacks its {what} {formal}", DAMAGED)


def _count(names: Any) -> int:
    """Return the number of names up to the last non-empty one (empty: optional, omitted)."""
    return max((place for place, name in enumerate(names, 1) if name), default=0)
