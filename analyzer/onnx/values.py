"""Values of small constant tensors, computed when a shape depends on them.

1. A value is known if it is an initializer (or Constant) whose data is here, the Shape or Size of a value
   whose shape is known, or the result of a pure operator on known values.
2. Results are computed only when small (`LARGEST_COUNT` elements, judged by their inferred shape beforehand),
   by ONNX's own reference implementation, so an untrusted file cannot make this allocate or run anything
   large.
3. Values are computed on demand and remembered: most models need none.

Not modelled: random operators, strings, control flow, operators outside the default domain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from analyzer.onnx.file import read_external
from analyzer.onnx.node import DEFAULT_DOMAINS
from analyzer.onnx.types import ValueType, element_count

LARGEST_COUNT = 65536
_DEEPEST = 150  # a level takes two Python frames

# Pure operators that occur in shape arithmetic; results no larger than their inferred shape.
_PURE = """
    Abs Add And ArgMax ArgMin BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Clip Compress
    Concat ConstantOfShape CumSum Div Equal Expand Flatten Floor Gather GatherElements GatherND Greater
    GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg NonZero Not OneHot Or Pad Pow Range ReduceMax
    ReduceMean ReduceMin ReduceProd ReduceSum Reshape Round ScatterElements ScatterND Sign Slice Split Sqrt
    Squeeze Sub Sum Tile TopK Transpose Trilu Unique Unsqueeze Where Xor
"""
PURE = frozenset(_PURE.split())


class Values:
    """Lazily computed constants of one graph and the graphs around it.

    type_of: value name -> what is known of it now. constants: name -> TensorProto. producers: name -> node.
    """

    def __init__(
        self,
        constants: Mapping[str, Any],
        producers: Mapping[str, Any],
        type_of: Callable[[str], ValueType | None],
        *,
        folder: Path | None,
        opsets: dict[str, int],
        outer: Values | None = None,
    ) -> None:
        self._constants = constants
        self._producers = producers
        self._type_of = type_of
        self._folder = folder
        self._opsets = opsets
        self._outer = outer
        self._memory: dict[str, Any] = {}

    def get(self, name: str, depth: int = 0) -> Any:
        """Return the value as a numpy array, or None if it is not a small constant."""
        if name not in self._memory:
            if depth > _DEEPEST:
                return None
            value = self._compute(name, depth)
            if (
                value is None
                and name not in self._constants
                and name not in self._producers
                and self._outer is not None
            ):
                return self._outer.get(name, depth + 1)
            if value is None and name in self._producers:
                return None  # its inputs' shapes may become known later
            self._memory[name] = value
        return self._memory[name]

    def _compute(self, name: str, depth: int) -> Any:
        """Return a constant's value, computed from the nodes before it; None if unknown or too large."""
        if name in self._constants:
            return self._tensor(self._constants[name])
        node = self._producers.get(name)
        if node is None or node.domain not in DEFAULT_DOMAINS:
            return None
        if node.op_type in ("Shape", "Size"):
            return self._shape(node)
        if node.op_type not in PURE:
            return None
        sizes = [value.sizes if (value := self._type_of(out)) else None for out in node.output if out]
        if any(size is None or element_count(size) > LARGEST_COUNT for size in sizes):
            return None
        feeds = {}
        for item in node.input:
            if item:
                feeds[item] = self.get(item, depth + 1)
                if feeds[item] is None:
                    return None
        return self._run(node, feeds, name)

    def _run(self, node: Any, feeds: dict[str, Any], name: str) -> Any:
        """Return a node's result by ONNX's reference implementation; None if that fails or is large."""
        import warnings

        import numpy
        import onnx
        from onnx.reference import ReferenceEvaluator

        graph = onnx.GraphProto(
            node=[node],
            input=[onnx.ValueInfoProto(name=item) for item in feeds],
            output=[onnx.ValueInfoProto(name=item) for item in node.output if item],
        )
        try:
            with warnings.catch_warnings(), numpy.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                results = ReferenceEvaluator(graph, opsets=self._opsets).run(None, feeds)
        except (
            Exception
        ):  # the reference implementation raises whatever numpy does; the value then stays unknown
            return None
        outputs = {
            out: numpy.asarray(result)
            for out, result in zip(filter(None, node.output), results, strict=False)
        }
        value = outputs.get(name)
        return value if value is not None and value.size <= LARGEST_COUNT else None

    def _shape(self, node: Any) -> Any:
        """Return what `Shape` or `Size` gives, None where the sizes are unknown or overflow."""
        import numpy

        value = self._type_of(node.input[0]) if node.input else None
        if value is None or value.sizes is None or value.kind != "tensor":
            return None
        if max(value.sizes, default=0) >= 1 << 62 or element_count(value.sizes) >= 1 << 62:
            return None
        if node.op_type == "Size":
            return numpy.array(element_count(value.sizes), dtype=numpy.int64)
        bounds = {attribute.name: attribute.i for attribute in node.attribute}
        return numpy.array(value.sizes[bounds.get("start", 0) : bounds.get("end")], dtype=numpy.int64)

    def _tensor(self, proto: Any) -> Any:
        """Return a small initializer as an array, None where it is large, damaged or its file absent."""
        import onnx

        if any(size < 0 for size in proto.dims) or element_count(tuple(proto.dims)) > LARGEST_COUNT:
            return None
        if proto.data_location == onnx.TensorProto.EXTERNAL:
            data = read_external(proto, self._folder)
            if data is None:
                return None
            tensor = onnx.TensorProto(
                dims=proto.dims, data_type=proto.data_type, name=proto.name, raw_data=data
            )
            proto = tensor
        try:
            return onnx.numpy_helper.to_array(proto)
        except (ValueError, TypeError, KeyError, NotImplementedError, UnicodeDecodeError):
            return None


def constant_tensor(node: Any) -> Any:
    """Return the TensorProto a Constant node holds, None if it holds none (strings, sparse)."""
    import onnx

    for attribute in node.attribute:
        match attribute.name:
            case "value":
                return attribute.t
            case "value_int":
                return onnx.TensorProto(data_type=onnx.TensorProto.INT64, int64_data=[attribute.i])
            case "value_ints":
                return onnx.TensorProto(
                    data_type=onnx.TensorProto.INT64, dims=[len(attribute.ints)], int64_data=attribute.ints
                )
            case "value_float":
                return onnx.TensorProto(data_type=onnx.TensorProto.FLOAT, float_data=[attribute.f])
            case "value_floats":
                return onnx.TensorProto(
                    data_type=onnx.TensorProto.FLOAT,
                    dims=[len(attribute.floats)],
                    float_data=attribute.floats,
                )
            case "value_string":
                return onnx.TensorProto(data_type=onnx.TensorProto.STRING, string_data=[attribute.s])
            case "value_strings":
                return onnx.TensorProto(
                    data_type=onnx.TensorProto.STRING,
                    dims=[len(attribute.strings)],
                    string_data=attribute.strings,
                )
    return None
