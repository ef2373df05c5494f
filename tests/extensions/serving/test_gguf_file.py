"""Headers of GGUF files: read within bounds, and copied with a hole for the weights."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from analyzer.errors import TargetError
from analyzer_serving.engines import gguf_file
from tests.extensions.serving.ggufs import SMALL, header, text, written


def test_a_header_says_what_the_file_holds(tmp_path: Path) -> None:
    found = gguf_file.read(written(tmp_path, SMALL))
    assert found.model("block_count") == 2 and found.values["tokenizer.ggml.tokens"] == 3 and found.parts == 1
    assert [(one.name, one.nbytes) for one in found.tensors] == [
        ("token_embd.weight", 3 * 144),  # Q4_K: 144 bytes for 256 elements
        ("output_norm.weight", 1024),
    ]
    assert found.start % 32 == 0 and found.nbytes == found.start + 448 + 1024


def test_a_copy_has_the_header_and_a_hole(tmp_path: Path) -> None:
    """Of a file with weights, and of a header alone, alike: no weight is read."""
    tensors = {"w": ((2**20, 1024), 8, 0)}  # 1.1 GiB in Q8_0
    found = gguf_file.read(written(tmp_path, header({"general.architecture": "llama"}, tensors)))
    gguf_file.hollow(found, tmp_path / "hollow")
    state = (tmp_path / "hollow").stat()
    assert state.st_size == found.start + 2**30 // 32 * 34 and state.st_blocks * 512 < 2**20
    assert (tmp_path / "hollow").open("rb").read(4) == b"GGUF"


def _damaged() -> list[bytes]:
    """Sixty damaged headers: cut short, counts and sizes without bound, types there are none of."""
    huge = struct.pack("<Q", 2**63)
    cut = [SMALL[: len(SMALL) * part // 30] for part in range(30)]
    counts = [SMALL[:8] + huge + SMALL[16:], SMALL[:16] + huge + SMALL[24:], SMALL[:24] + huge + SMALL[32:]]
    versions = [b"GGUF" + struct.pack("<I", number) + SMALL[8:] for number in (0, 1, 4, 2**31, 0x03000000)]
    magics = [magic + SMALL[4:] for magic in (b"GGML", b"\0\0\0\0", b"gguf", b"PK\3\4")]
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a.key")
    kinds = [head + struct.pack("<I", kind) + bytes(8) for kind in (13, 99, 2**32 - 1)]
    arrays = [
        head + struct.pack("<IIQ", 9, kind, count)
        for kind, count in ((4, 2**40), (8, 2**40), (9, 1), (99, 1), (0, 2**24), (8, 5))
    ]
    tensors = [
        header({}, {"w": (shape, kind, offset)})
        for shape, kind, offset in (
            ((255,), 12, 0),
            ((256,), 4, 0),
            ((256,), 200, 0),
            ((2**40, 2**40), 0, 0),
            ((2**46 + 256,), 12, 0),
            ((1, 1, 1, 1, 1), 0, 0),
            ((256,), 12, 2**62),
        )
    ]
    odd = [header({"general.alignment": value}, {"w": ((32,), 0, 0)}) for value in (0, 2**31, "32")]
    made = cut + counts + versions + magics + kinds + arrays + tensors + odd
    return [one for one in made if len(one) != len(SMALL) or one != SMALL][:60]


@pytest.mark.parametrize("content", _damaged())
def test_damaged_headers_end_in_one_line(tmp_path: Path, content: bytes) -> None:
    began = time.monotonic()
    with pytest.raises(TargetError, match="is no GGUF file that can be loaded") as error:
        gguf_file.read(written(tmp_path, content))
    assert "\n" not in str(error.value) and time.monotonic() - began < 10


def test_there_are_sixty() -> None:
    assert len(_damaged()) == 60
