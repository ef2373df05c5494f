"""Calls that unpickling would make, read from a pickle's opcodes: nothing is unpickled here.

1. A pickle calls what it names with GLOBAL. `torch.save` names classes of storages and functions that
   rebuild tensors; any other name is code of the file's choice.
2. Other opcodes that name something (STACK_GLOBAL, INST, extensions) are of protocols `torch.save` does not
   use; they are refused, as `torch.load(weights_only=True)` does.

Source: `torch/_weights_only_unpickler.py` (`_get_allowed_globals`); this list is shorter: no type that takes
memory by a number alone (`bytearray`), and no subclass of a tensor.
"""

from __future__ import annotations

import pickletools
import re

from analyzer.exported.archive import Archive
from analyzer.files import UnreadableError, allowed

MOST_BYTES, MOST_OPCODES = 16 << 20, 1_000_000
_NAMING = ("STACK_GLOBAL", "INST", "OBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4")
_ALLOWED = re.compile(
    r"collections OrderedDict|(__builtin__|builtins) (set|complex|slice)|_codecs encode"
    r"|torch\._utils (_rebuild_tensor|_rebuild_tensor_v2|_rebuild_tensor_v3|_rebuild_parameter"
    r"|_rebuild_parameter_with_state|_rebuild_qtensor|_rebuild_sparse_tensor|_rebuild_nested_tensor"
    r"|_rebuild_meta_tensor_no_storage|_rebuild_device_tensor_from_cpu_tensor)"
    r"|torch\.nn\.parameter Parameter|torch\._tensor Tensor|torch (Tensor|Size|device)"
    r"|torch\.serialization _get_layout"
    r"|torch (\w+Storage|bool|u?int\d+|float\w+|bfloat16|complex\d+|q[us]?int\w+|per_\w+_affine|strided"
    r"|sparse_\w+|contiguous_format|channels_last\w*|preserve_format)"
    r"|torch\.storage (UntypedStorage|TypedStorage)"
)


def check(content: bytes) -> str:
    """Return what an archive of `torch.save` would call besides tensors, "" where it names nothing else.
    Raises UnreadableError for what is no such archive."""
    archive = Archive(content)
    pickles = [name for name in archive.members if name.endswith(".pkl")]
    if len(pickles) != 1:
        raise UnreadableError("it is no archive of torch.save: it has no single pickle in it")
    return foreign(archive.read(pickles[0], MOST_BYTES))


def foreign(pickle: bytes) -> str:
    """Return the first thing a pickle names that is no tensor's ("os.system"), "" without one. Raises
    UnreadableError."""
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(pickle)):
            if count > allowed(MOST_OPCODES):
                raise UnreadableError(f"it has more than {allowed(MOST_OPCODES):,} opcodes")
            if opcode.name == "GLOBAL" and not _ALLOWED.fullmatch(str(argument)):
                return str(argument).replace(" ", ".")
            if opcode.name in _NAMING:
                return f"something by {opcode.name}"
    except (ValueError, UnicodeDecodeError, OverflowError, IndexError) as error:
        raise UnreadableError(f"a pickle in it is damaged ({error})") from None
    return ""
