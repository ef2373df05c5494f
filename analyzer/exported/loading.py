"""An exported program made of what its archive says, without unpickling anything but tensors and without its
weights.

1. `torch.export.load` unpickles the sample inputs, and weights and constants where they are pickled, calling
   whatever they name; here they are looked into first (`pickles.py`, `program.py`), and read with
   `weights_only`.
2. Weights take no memory: those larger than `KEEP_BYTES` are on the meta device, of smaller ones (which may
   decide sizes) the contents are read. `real` reads all of them, for a run.
3. Code compiled beside the program (AOTInductor) is not loaded.

Formats: the zip of PyTorch 2.5 to 2.7 (`serialized_exported_program.json`), the PT2 archive since then.
Source: `torch/export/pt2_archive/_package.py`, `torch/export/__init__.py` (`load`).
"""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analyzer.exported import pickles, program
from analyzer.exported.archive import Archive
from analyzer.files import UnreadableError, irregular, parse_json

KEEP_BYTES = 16384
MOST_PROGRAM_BYTES = 64 << 20  # a language model of 100 layers has some 20 MB
MOST_PICKLED_BYTES = 256 << 20
_MODEL = "models/model.json"
_OF_SIZES = ("_operator", "math", "torch")


class RunsCodeError(Exception):
    """The file would run code of its own; the text names it."""


def load(path: Path, real: bool = False) -> Any:
    """Return the `torch.export.ExportedProgram` of a file. Raises UnreadableError for what is none, and
    RunsCodeError.

    real: weights with their contents.
    """
    if reason := irregular(path):
        raise UnreadableError(reason)
    with path.open("rb") as stream:
        archive = Archive(stream)
        if "serialized_exported_program.json" in archive.members:
            return _loaded_before_2_8(archive, real)
        root = next(iter(archive.members), "").partition("/")[0]
        if f"{root}/{_MODEL}" not in archive.members:
            raise UnreadableError(f"it has no {_MODEL} in it")
        return _loaded(archive, f"{root}/", real)


def _loaded(archive: Archive, root: str, real: bool) -> Any:
    """Load the PT2 archive."""
    document = _document(archive, f"{root}{_MODEL}")
    inputs = f"{root}data/sample_inputs/model.pt"
    examples = _unpickled(archive, inputs, "sample inputs", real) if archive.size(inputs) else None
    state = _tensors(archive, f"{root}data/weights/", "weights", real)
    constants = _tensors(archive, f"{root}data/constants/", "constants", real)
    return _deserialized(document, state, constants, examples)


def _loaded_before_2_8(archive: Archive, real: bool) -> Any:
    """Load the zip of PyTorch 2.5 to 2.7, whose weights are one pickle."""
    document = _document(archive, "serialized_exported_program.json")
    parts = []
    for part, kind in (("state_dict", "weights"), ("constants", "constants"), ("example_inputs", "inputs")):
        name = f"serialized_{part}.pt"
        present = name in archive.members and archive.size(name)
        parts.append(_unpickled(archive, name, kind, real) if present else {})
    state, constants, examples = parts
    return _deserialized(document, state, constants, examples or None)


def _document(archive: Archive, name: str) -> Any:
    """Return the program's JSON, which runs nothing. Raises UnreadableError and RunsCodeError."""
    try:
        document = parse_json(archive.read(name, MOST_PROGRAM_BYTES).decode("utf-8"))
    except UnicodeDecodeError:
        raise UnreadableError("its program is no text") from None
    if code := program.check(document):
        raise RunsCodeError(f"its program has {code}")
    return document


def _unpickled(archive: Archive, name: str, kind: str, real: bool) -> Any:
    """Return what a member of `torch.save` holds, large tensors on the meta device unless `real`."""
    import torch

    content = archive.read(name, MOST_PICKLED_BYTES)
    if code := pickles.check(content):
        raise RunsCodeError(f"its {kind} name {code}")
    place = "cpu" if real or len(content) <= KEEP_BYTES * 4 else "meta"
    return torch.load(io.BytesIO(content), map_location=place, weights_only=True)


def _tensors(archive: Archive, folder: str, kind: str, real: bool) -> dict[str, Any]:
    """Return weights or constants by name; those that share a member share a storage."""
    import torch
    from torch._export.serde import schema, serialize

    if f"{folder}model.pt" in archive.members:  # of PyTorch 2.8
        held: dict[str, Any] = _unpickled(archive, f"{folder}model.pt", kind, real)
        return held
    name = f"{folder}model_{kind}_config.json"
    content = parse_json(archive.read(name, MOST_PROGRAM_BYTES).decode("utf-8", "replace"))
    if not hasattr(schema, "PayloadConfig"):  # since PyTorch 2.9
        raise UnreadableError(f"a newer PyTorch than this one ({torch.__version__}) wrote it")
    if code := program.check(content):
        raise RunsCodeError(f"its {kind} have {code}")
    config: Mapping[str, Any] = serialize._dict_to_dataclass(schema.PayloadConfig, content).config
    flat: dict[str, torch.Tensor] = {}
    tensors: dict[str, Any] = {}
    for key, payload in config.items():
        member = f"{folder}{payload.path_name}"
        if payload.tensor_meta is None or payload.use_pickle:
            if payload.path_name.startswith(("custom_obj_", "opaque_obj_")):
                raise RunsCodeError(f"the constant {key} is an object of a class")
            tensors[key] = _unpickled(archive, member, kind, real)
            continue
        meta = payload.tensor_meta
        if member not in flat:
            flat[member] = _flat(archive, member, serialize.deserialize_scalar_type(meta.dtype), real)
        sizes = serialize.deserialize_size(meta.sizes)
        if not archive.size(member):
            flat[member] = torch.empty(sizes, dtype=flat[member].dtype, device="meta")
        tensor = torch.as_strided(
            flat[member],
            sizes,
            serialize.deserialize_stride(meta.strides),
            serialize.deserialize_storage_offset(meta.storage_offset),
        )
        is_parameter = payload.is_param and tensor.dtype.is_floating_point | tensor.dtype.is_complex
        tensors[key] = (
            torch.nn.Parameter(tensor, requires_grad=meta.requires_grad) if is_parameter else tensor
        )
    return tensors


def _flat(archive: Archive, member: str, dtype: Any, real: bool) -> Any:
    """Return a member as one row of elements, of a large one the size alone."""
    import torch

    nbytes = archive.size(member)
    if not real and nbytes > KEEP_BYTES:
        return torch.empty(nbytes // dtype.itemsize, dtype=dtype, device="meta")
    content = bytearray(archive.read(member, nbytes if archive.is_stored(member) else MOST_PICKLED_BYTES))
    return torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)


def _deserialized(document: Any, state: Any, constants: Any, examples: Any) -> Any:
    """Return the program of its parts, all of which have been looked into."""
    import torch
    from torch._export.serde import schema, serialize

    logging.disable(logging.CRITICAL)  # torch logs the traceback of what is said in one line here
    try:
        described = serialize._dict_to_dataclass(schema.ExportedProgram, document)
        loaded = serialize.ExportedProgramDeserializer().deserialize(described, state, constants, examples)
    finally:
        logging.disable(logging.NOTSET)
    for module in loaded.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if node.op == "call_function" and not _computes(node.target):
                raise RunsCodeError(f"its program has the operator {str(node.target)[:80]!r}")
    return loaded


def _computes(target: Any) -> bool:
    """Return whether a target is the dispatcher's or of sizes: not a method beside operators, nor one that
    TorchScript alone has (`aten::save`)."""
    import torch

    if isinstance(target, torch._ops.OpOverload):
        return bool(torch._C._dispatch_has_kernel(target.name()))
    return isinstance(target, torch._ops.HigherOrderOperator) or target.__module__ in _OF_SIZES
