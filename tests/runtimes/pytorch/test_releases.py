"""Figures of every release of torch beside what its own binary asks for, on the torch that is installed.

The observations are PyTorch's CUDA builds themselves (`benchmarks/releases/observe.py`), on a CUDA runtime that computes nothing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from analyzer.errors import AnalyzerError
from benchmarks.releases import observed as shards
from benchmarks.releases.causes import cause_of, differing
from benchmarks.releases.figures import predicted

OBSERVED = shards.rows()
CASES = sorted({(device, name) for seen in OBSERVED.values() for device, of in seen.items() for name in of})


# Every other program on the GPU of the measurements, every tenth on the others; the campaign runs all.
SAMPLED = {case for number, case in enumerate(CASES) if number % (2 if case[0] == "h200" else 10) == 0}


@pytest.fixture(autouse=True, scope="module")
def _as_observed() -> Iterator[None]:
    with shards.convolutions():
        yield


@pytest.mark.parametrize(
    ("device", "name"),
    [pytest.param(*case, marks=[] if case in SAMPLED else [pytest.mark.campaign]) for case in CASES],
)
@pytest.mark.sampled(6)
def test_every_release_to_the_byte(device: str, name: str) -> None:
    """All figures are the binary's, but where `benchmarks/releases/causes.json` says why not."""
    seen = {release: of[device][name] for release, of in OBSERVED.items() if name in of.get(device, {})}
    found: list[list[int] | None] = [None] * len(seen)
    with contextlib.suppress(AnalyzerError):
        found = list(predicted(device, name, list(seen)))
    off = {
        release: (mine, real)
        for (release, real), mine in zip(seen.items(), found, strict=True)
        if mine != real and cause_of(release, device, name, differing(mine, real)) is None
    }
    assert not off


def test_a_row_stands_in_one_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, programs in (("torch_2.10", "a"), ("torch_2.9", "a"), ("torch_2.10_2", "b")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"devices": {"h200": {programs: [1]}}}))
    monkeypatch.setattr(shards, "DATA", tmp_path)
    assert shards.rows() == {"2.9": {"h200": {"a": [1]}}, "2.10": {"h200": {"a": [1], "b": [1]}}}
    assert list(shards.rows()) == ["2.9", "2.10"]
    assert shards.next_shard("2.10").name == "torch_2.10_3.json"
    assert shards.next_shard("2.16").name == "torch_2.16.json"
    (tmp_path / "torch_2.10_3.json").write_text(json.dumps({"devices": {"h200": {"b": [2]}}}))
    with pytest.raises(ValueError, match="h200 has b in another shard"):
        shards.rows()


def test_a_cause_explains_what_it_names_alone() -> None:
    assert differing([1, 2, 3, 4, 5], [1, 9, 3, 4, 9]) == {"reserved", "bytes"}
    assert differing(None, [1, 2, 3, 4, 5]) == {"refused"}
    assert cause_of("2.8", "l4", "patches", frozenset({"reserved"})) is not None
    assert cause_of("2.9", "l4", "patches", frozenset({"reserved"})) is None
    assert cause_of("2.8", "l4", "patches", frozenset({"reserved", "allocated"})) is None
    assert cause_of("2.15", "t4", "unet, bf16", frozenset({"refused"})) is not None
    assert cause_of("2.15", "l4", "unet, bf16", frozenset({"refused"})) is None
