"""Streams, storages that are resized, and what both do to the caching allocator's pools."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from analyzer.analysis import Analysis
from analyzer.options import Options
from analyzer.runtimes.events import Free, Malloc, Use, Wait
from analyzer_programs.program import follow

MIB = 2**20


def followed(folder: Path, text: str) -> Analysis:
    """The analysis of a program of this text."""
    script = folder / "program.py"
    script.write_text(f"import torch\n{text}")
    found, error = follow(script, [], Options(device="h200"), {})
    assert error is None
    return found


def mallocs(found: Analysis) -> list[tuple[int, int | None]]:
    """Bytes and stream of every request."""
    return [(event.nbytes, event.stream) for event in found.events if isinstance(event, Malloc)]


def test_each_stream_has_segments_of_its_own(tmp_path: Path) -> None:
    found = followed(
        tmp_path,
        """
a = torch.empty(2**20, device="cuda")
side = torch.cuda.Stream()
assert side != torch.cuda.default_stream() and torch.cuda.current_stream() == torch.cuda.default_stream()
with torch.cuda.stream(side):
    assert torch.cuda.current_stream() == side
    b = torch.empty(2**20, device="cuda")
    with torch.cuda.stream(None):
        c = torch.empty(2**20, device="cuda")
with torch.cuda.Stream(priority=-1):
    d = torch.empty(2**20, device="cuda")
e = torch.empty(2**20, device="cuda")
""",
    )
    assert mallocs(found) == [(4 * MIB, 0), (4 * MIB, 1), (4 * MIB, 1), (4 * MIB, 33), (4 * MIB, 0)]
    assert found.estimate.peak_reserved == 3 * 20 * MIB  # a segment a stream, each of 20 MiB


def test_streams_come_from_a_pool_of_32(tmp_path: Path) -> None:
    followed(
        tmp_path,
        """
made = [torch.cuda.Stream() for _ in range(33)]
assert made[32] == made[0] != made[31]
torch.cuda.set_stream(made[1])
assert torch.cuda.current_stream() == made[1]
""",
    )


def test_the_backward_pass_runs_on_the_stream_of_its_forward(tmp_path: Path) -> None:
    found = followed(
        tmp_path,
        """
x = torch.empty(2**20, device="cuda", requires_grad=True)
with torch.cuda.stream(torch.cuda.Stream()):
    y = x.exp()
z = y.sin().sum()
z.backward()
""",
    )
    streams = [
        (found.graph.operators[event.operator].name, event.stream)
        for event in found.events
        if isinstance(event, Malloc) and event.nbytes == 4 * MIB
    ]
    # y = exp on the side stream, so exp's backward (mul) there too; sin's (cos, mul) on the default one.
    assert streams == [
        ("aten::empty.memory_format", 0),
        ("aten::exp.default", 1),
        ("aten::sin.default", 0),
        ("aten::cos.default", 0),
        ("aten::mul.Tensor", 0),
        ("aten::mul.Tensor", 1),
    ]


def test_a_block_used_by_another_stream_serves_nobody_until_the_host_has_waited(tmp_path: Path) -> None:
    found = followed(
        tmp_path,
        """
side = torch.cuda.Stream()
a = torch.empty(16 * 2**20, dtype=torch.uint8, device="cuda")
a.record_stream(side)
del a
assert torch.cuda.memory_allocated() == 0
b = torch.empty(16 * 2**20, dtype=torch.uint8, device="cuda")
assert torch.cuda.memory_reserved() == 32 * 2**20
del b
torch.cuda.synchronize()
c = torch.empty(16 * 2**20, dtype=torch.uint8, device="cuda")
d = torch.empty(16 * 2**20, dtype=torch.uint8, device="cuda")
assert torch.cuda.memory_reserved() == 32 * 2**20
""",
    )
    assert [type(event) for event in found.events[:8]] == [
        Malloc, Use, Free, Malloc, Free, Wait, Malloc, Malloc,
    ]  # fmt: skip


def test_a_resized_storage_takes_new_memory_and_gives_the_old_back(tmp_path: Path) -> None:
    found = followed(
        tmp_path,
        """
t = torch.empty(2**20, device="cuda")
storage = t.untyped_storage()
storage.resize_(0)
assert torch.cuda.memory_allocated() == 0
storage.resize_(4 * 2**20)
assert torch.cuda.memory_allocated() == 4 * 2**20
t.add_(1)
del t, storage
assert torch.cuda.memory_allocated() == 0
grown = torch.empty(2**20, device="cuda").resize_(2**21)
assert torch.cuda.memory_allocated() == 8 * 2**20
""",
    )
    assert found.estimate.peak_allocated == 12 * MIB  # old and new together while it grows
