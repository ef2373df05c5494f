"""An ONNX file read as a description: everything but the weights.

1. Only the structure is read. The file is mapped and walked field by field; tensors longer than `KEEP_BYTES`
   (whole numbers) or `KEEP_FLOAT_BYTES` are skipped where they stand, so neither embedded weights nor
   protobuf's 2 GB limit cost host memory. Their sizes follow from dims and element type.
2. External data is never loaded, except small tensors that decide shapes (`read_external`), and never from
   outside the model's folder: a location that is absolute, climbs with "..", or leaves through a symbolic
   link is refused. A missing data file is fine; one that is there and too short is said (`too_short`).
3. A file that cannot be a model is refused with a hint: missing, empty, truncated, not ONNX, made by a newer
   ONNX than the one installed, with no operator set, or with no nodes and no outputs.

Wire format: https://protobuf.dev/programming-guides/encoding; field numbers: `onnx.proto`.
Not modelled: encrypted or compressed files, the ORT flatbuffer format (named in the error).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from analyzer.errors import TargetError
from analyzer.files import allowed, irregular, more
from analyzer.onnx.node import DEFAULT_DOMAINS
from analyzer.onnx.types import DTYPES, display, element_count

# Shapes, axes and scales, which decide shapes, are below these; what is above need not be read.
KEEP_BYTES = 16384
KEEP_FLOAT_BYTES = 1024
_WHOLE_NUMBERS = frozenset({0, 6, 7, 9})  # int32, int64, bool, or not yet known
_EXTERNAL = 1  # TensorProto.DataLocation.EXTERNAL

# Message kind -> field number -> kind of the message in it.
_MESSAGES = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "function": {7: "node", 11: "attribute"},
    "tensor": {},
}
_BULK = frozenset(
    {4, 5, 6, 7, 9, 10, 11}
)  # TensorProto: float_data, int32_data, string_data, ..., raw_data, ...
_DEEPEST = 100  # protobuf's own recursion limit
# Of what is no tensor's content: a model of 20,000 nodes with their stack traces has some 100 MB in half a
# million fields.
MOST_BYTES, MOST_FIELDS = 256 << 20, 4_000_000
# A language model exported operator by operator has some 20,000, one with loops over experts more; each takes
# 0.2 to 0.5 ms to follow.
MOST_NODES = 100_000


def load(path: str | Path) -> Any:
    """Return the `onnx.ModelProto` at `path` without large tensors' contents.

    Raises TargetError for what is no model or reaches outside its folder.
    """
    file = Path(path)
    shown = display(str(path))
    try:
        if file.is_dir():
            raise TargetError(f"{shown} is a folder", "give the .onnx file inside it")
        if file.exists() and not file.is_file():
            raise TargetError(f"{shown} is no regular file", "give the path of an .onnx file")
        with file.open("rb") as stream:
            if not stream.seek(0, 2):
                raise TargetError(
                    f"{shown} is empty", "export the model again, or fetch the file (Git LFS leaves pointers)"
                )
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as view:
                data = without_bulk(view)
    except (OSError, ValueError) as error:
        if isinstance(error, _TooLargeError):
            hint = f"{more()}; the contents of tensors, which are not read, do not count"
            raise TargetError(f"{shown} is too large: {error}", hint) from None
        if isinstance(error, _WireError):
            raise TargetError(
                f"{shown} is truncated or is not an ONNX file ({error})", _not_onnx_hint(file)
            ) from None
        reason = getattr(error, "strerror", None) or str(error)
        raise TargetError(f"cannot read {shown}: {reason}", "check the path and its permissions") from None
    return parse(data, shown, _not_onnx_hint(file))


def parse(data: bytes, shown: str, hint: str = "export the model again") -> Any:
    """Return the checked `onnx.ModelProto` in `data`. Raises TargetError for what cannot be a model."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError:
        raise TargetError(f"{shown} is truncated or is not an ONNX file", hint) from None
    check_versions(model, shown, hint)
    # Small subgraphs are not walked on their own.
    if _node_count(model.graph.node) > allowed(MOST_NODES):
        raise TargetError(f"{shown} is too large: it has more than {allowed(MOST_NODES):,} nodes", more())
    if not all(isinstance(text, str) for text in _texts(model)):
        raise TargetError(f"{shown} is damaged: it has names that are no text", hint)
    return model


def check_versions(model: Any, shown: str, hint: str = "export the model again") -> None:
    """Raises TargetError if the model is of a version this ONNX cannot follow, or is no model at all."""
    import onnx

    if not model.HasField("graph") or (not model.graph.node and not model.graph.output):
        raise TargetError(f"{shown} holds no ONNX graph", hint)
    if not 1 <= model.ir_version <= onnx.IR_VERSION:
        raise TargetError(
            f"{shown} has IR version {model.ir_version}; ONNX {onnx.__version__} reads 1 to"
            f" {onnx.IR_VERSION}",
            "upgrade the onnx package" if model.ir_version > onnx.IR_VERSION else hint,
        )
    newest = onnx.defs.onnx_opset_version()
    default = [entry.version for entry in model.opset_import if entry.domain in DEFAULT_DOMAINS]
    if not default and model.ir_version >= 3 and any(not node.domain for node in model.graph.node):
        raise TargetError(
            f"{shown} names no operator set", "export the model again with opset_version=17 or later"
        )
    for version in default:
        if not 1 <= version <= newest:
            raise TargetError(
                f"{shown} uses operator set {version}; ONNX {onnx.__version__} knows 1 to {newest}",
                "upgrade the onnx package, or export with a lower opset_version",
            )


def check_external(model: Any, folder: Path) -> None:
    """Raise TargetError if a tensor's external data lies outside `folder`; it is never read."""
    checked: set[str] = set()
    for tensor in tensors(model.graph):
        if tensor.data_location == _EXTERNAL:
            location = external_entries(tensor).get("location", "")
            if location not in checked:
                checked.add(location)
                inside(folder, location, tensor.name)


def too_short(model: Any, folder: Path) -> tuple[str, ...]:
    """Return a sentence for each file of external data that is there and ends before the tensors in it do:
    ONNX Runtime refuses it. Files are not read, only measured; `check_external` comes first."""
    ends: dict[str, tuple[int, str]] = {}
    for tensor in tensors(model.graph):
        if tensor.data_location != _EXTERNAL or any(size < 0 for size in tensor.dims):
            continue
        entries = external_entries(tensor)
        try:
            first = int(entries.get("offset") or 0)
        except ValueError:
            continue
        end = first + stored_bytes(tensor)
        location = entries.get("location", "")
        if end > ends.get(location, (0, ""))[0]:
            ends[location] = (end, tensor.name)
    texts = []
    for location, (end, name) in ends.items():
        try:
            held = (folder / location).stat().st_size
        except (OSError, ValueError):
            continue  # not there, which is fine
        if held < end:
            texts.append(
                f"{display(location)} holds {held:,} bytes, {display(name)!r} ends at byte {end:,}: fetch the"
                " whole file (Git LFS leaves pointers)"
            )
    return tuple(texts)


def absent(model: Any, folder: Path) -> tuple[str, ...]:
    """Return a sentence on files of external data that are not there, with the bytes of their tensors by the
    model; () where all are. `check_external` comes first."""
    by_file: dict[str, int] = {}
    for tensor in tensors(model.graph):
        if tensor.data_location == _EXTERNAL and all(size >= 0 for size in tensor.dims):
            location = external_entries(tensor).get("location", "")
            by_file[location] = by_file.get(location, 0) + stored_bytes(tensor)
    missing = {location: nbytes for location, nbytes in by_file.items() if not _is_there(folder / location)}
    if not missing:
        return ()
    first, *others = missing
    files = f"the file of weights {display(first)!r} is"
    if others:
        files = f"{len(missing):,} files of weights ({display(first)!r}, ...) are"
    mib = f"{sum(missing.values()) / 2**20:,.1f} MiB"
    return (f"{files} not beside the model: sizes come from the model's file, {mib} for these weights",)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def stored_bytes(tensor: Any) -> int:
    """Return a tensor's bytes in a file; 0 for an unknown type."""
    from analyzer.graph import nbytes_of

    dtype = DTYPES.get(tensor.data_type, "string")
    return 0 if dtype == "string" else nbytes_of(element_count(tuple(tensor.dims)), dtype)


def inside(folder: Path, location: str, name: str) -> Path:
    """Return the path of external data if it lies in the model's folder. Raises TargetError otherwise."""
    parts = (*PurePosixPath(location).parts, *PureWindowsPath(location).parts)
    rooted = PurePosixPath(location).is_absolute() or bool(
        PureWindowsPath(location).drive or PureWindowsPath(location).root
    )
    problem = ""
    if not location or "\0" in location:
        problem = "has no usable location"
    elif rooted or ".." in parts:
        problem = "is stored outside the model's folder"
    else:
        try:
            if not (folder / location).resolve().is_relative_to(folder.resolve()):
                problem = "leaves the model's folder through a symbolic link"
            elif reason := irregular(folder / location):
                problem = f"is not read, because {reason}"
        except (OSError, RuntimeError, ValueError):
            problem = "has no usable location"
    if problem:
        raise TargetError(
            f"external data of {display(name) or 'a tensor'} {problem}: {display(location)!r}",
            "save the model again with its data beside it (onnx.save_model(..., save_as_external_data=True,"
            " location=...))",
        )
    return folder / location


def external_entries(tensor: Any) -> dict[str, str]:
    """`location`, `offset`, `length` of a tensor's external data."""
    return {entry.key: entry.value for entry in tensor.external_data}


def read_external(tensor: Any, folder: Path | None) -> bytes | None:
    """Return the bytes of a small external tensor, None if it is large, absent, or too short."""
    from analyzer.graph import nbytes_of

    if folder is None or tensor.data_type not in DTYPES or any(size < 0 for size in tensor.dims):
        return None
    length = nbytes_of(element_count(tuple(tensor.dims)), DTYPES[tensor.data_type])
    entries = external_entries(tensor)
    if length > KEEP_BYTES or DTYPES[tensor.data_type] == "string":
        return None
    try:
        with inside(folder, entries.get("location", ""), tensor.name).open("rb") as stream:
            stream.seek(int(entries.get("offset") or 0))
            data = stream.read(length)
    except (OSError, ValueError, OverflowError):
        return None
    return data if len(data) == length else None


def tensors(graph: Any) -> Iterator[Any]:
    """Yield every tensor of a graph: initializers and attributes, subgraphs included."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from tensors(attribute.g)
            for inner in attribute.graphs:
                yield from tensors(inner)


def _node_count(nodes: Any) -> int:
    """Return how many nodes there are, those of subgraphs included."""
    inner = (attribute.g.node for node in nodes for attribute in node.attribute if attribute.HasField("g"))
    return len(nodes) + sum(map(_node_count, inner))


def _texts(model: Any) -> Iterator[Any]:
    """Yield every name in a model (protobuf gives invalid UTF-8 as bytes)."""
    yield from (entry.domain for entry in model.opset_import)
    yield from _graph_texts(model.graph)
    for function in model.functions:
        yield from (function.name, function.domain, *function.input, *function.output, *function.attribute)
        yield from (entry.domain for entry in function.opset_import)
        yield from _node_texts(function.node)


def _graph_texts(graph: Any) -> Iterator[Any]:
    yield graph.name
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
        yield from _tensor_texts(tensor)
    yield from _node_texts(graph.node)


def _node_texts(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield from (attribute.name, attribute.ref_attr_name)
            if attribute.HasField("g"):
                yield from _graph_texts(attribute.g)
            if attribute.HasField("t"):
                yield from _tensor_texts(attribute.t)
        for entry in node.metadata_props:
            yield from (entry.key, entry.value)


def _tensor_texts(tensor: Any) -> Iterator[Any]:
    yield tensor.name
    for entry in tensor.external_data:
        yield from (entry.key, entry.value)


class _WireError(ValueError):
    """The bytes are no protobuf message."""


class _TooLargeError(_WireError):
    """There is more of it than is read."""


def without_bulk(view: Any) -> bytes:
    """Return the serialized model in `view` (bytes or a mapping) without tensor contents longer than
    KEEP_BYTES, skipped where they stand."""
    return b"".join(_copy(view, 0, len(view), "model", 0, _Bounds()))


class _Bounds:
    """Counts what was read of a file, and limits it."""

    def __init__(self) -> None:
        self.nbytes = self.fields = self.nodes = 0
        self._most_bytes, self._most_fields = allowed(MOST_BYTES), allowed(MOST_FIELDS)
        self._most_nodes = allowed(MOST_NODES)

    def keep(self, view: Any, start: int, end: int) -> bytes:
        """Return this part of the file. Raises _TooLargeError if too much was read."""
        self.nbytes += end - start
        if self.nbytes > self._most_bytes:
            raise _TooLargeError(f"more than {self._most_bytes >> 20} MiB of it are no tensor's content")
        return bytes(view[start:end])

    def field(self) -> None:
        """Count one more field. Raises _TooLargeError if there are too many."""
        self.fields += 1
        if self.fields > self._most_fields:
            raise _TooLargeError(f"it has more than {self._most_fields:,} fields")

    def node(self) -> None:
        """Count one more node. Raises _TooLargeError if there are too many."""
        self.nodes += 1
        if self.nodes > self._most_nodes:
            raise _TooLargeError(f"it has more than {self._most_nodes:,} nodes")


def _copy(view: Any, start: int, end: int, kind: str, depth: int, bounds: _Bounds) -> list[bytes]:
    """Copy a protobuf message without its large tensor contents; return the parts."""
    if depth > _DEEPEST:
        raise _WireError("nested too deeply")
    inner = _MESSAGES[kind]
    element_type = 0
    parts: list[bytes] = []
    kept = place = start
    while place < end:
        field_start = place
        tag, place = _varint(view, place, end)
        bounds.field()
        if not tag >> 3:
            raise _WireError(f"field 0 at byte {field_start}")
        wire = tag & 7
        if wire == 2:
            length, place = _varint(view, place, end)
            if inner.get(tag >> 3) == "node":
                bounds.node()
            body, place = place, place + length
            if length > KEEP_FLOAT_BYTES and place <= end:
                message = inner.get(tag >> 3)
                bulk = kind == "tensor" and tag >> 3 in _BULK
                keeps_bytes = element_type in _WHOLE_NUMBERS if kind == "tensor" else message != "tensor"
                if (message or bulk) and (length > KEEP_BYTES or not keeps_bytes):
                    parts.append(bounds.keep(view, kept, field_start))
                    kept = place
                    if message:
                        content = _copy(view, body, place, message, depth + 1, bounds)
                        parts += [_encode_varint(tag), _encode_varint(sum(map(len, content))), *content]
        elif wire == 0:
            number, place = _varint(view, place, end)
            if kind == "tensor" and tag >> 3 == 2:  # TensorProto.data_type, serialized before the contents
                element_type = number
        elif wire == 1:
            place += 8
        elif wire == 5:
            place += 4
        else:
            raise _WireError(f"wire type {wire} at byte {field_start}")
    if place != end:
        raise _WireError(f"a field ends at byte {place}, its message at {end}")
    parts.append(bounds.keep(view, kept, end))
    return parts


def _varint(view: Any, place: int, end: int) -> tuple[int, int]:
    """Read a variable-length integer; return (value, next place). Raises _WireError."""
    value = shift = 0
    while place < end and shift < 70:
        byte = view[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise _WireError(f"no number at byte {place}")


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _not_onnx_hint(file: Path) -> str:
    """Return a guess of what else the file is, from its first bytes."""
    try:
        with file.open("rb") as stream:
            head = stream.read(64)
    except OSError:
        return "check the path and its permissions"
    if head.startswith(b"version https://git-lfs"):
        return "this is a Git LFS pointer: run `git lfs pull`"
    if head.startswith(b"PK"):
        return "this is a zip archive (a PyTorch checkpoint or .pt2?): export to ONNX with torch.onnx.export"
    if head[4:8] == b"ORTM":
        return "this is ONNX Runtime's .ort format: give the .onnx file it was made from"
    return "export the model again, or copy the whole file"
