"""`analyze explain` on every kind of file: what a user has, what is cut off, and what is none of these."""

from __future__ import annotations

import io
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from analyzer.cli import main
from analyzer.recordings.estimate import explain
from analyzer.recordings.opened import end_of, message_of
from tests.recordings.recorded import runs, written

MIB = 2**20


def text_of(path: Path, capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert main(["explain", "-q", str(path)]) == code
    return " ".join(capsys.readouterr().out.split())


def loaded(name: str, folder: Path) -> dict[str, Any]:
    """A recorded snapshot as Python's own pickle reads it: ours, so that it may."""
    value: dict[str, Any] = pickle.loads(written(name, folder).read_bytes())
    return value


def test_a_ring_buffer_that_lost_its_start_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = text_of(written("mlp_adam.plain.last900", tmp_path), capsys)
    assert "replayed to the byte: all 900 entries" in said
    assert "the history begins later than the program" in said and "a peak before that is not seen" in said


def test_expandable_segments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was held is the record's; the settings' table begins with the one in force, and has the default beside it."""
    name = "ends_growing.expandable.900MiB"
    found, row = explain(written(name, tmp_path)), runs()[name]
    assert found.estimate.peak_reserved == row["reserved_peak"] and not found.parted
    assert [way.setting for way in found.ways][:2] == ["expandable_segments:True", "the default settings"]
    said = text_of(tmp_path / f"{name}.pickle", capsys, 1)
    assert "PYTORCH_ALLOC_CONF=expandable_segments:True" in said and said.startswith("out of memory")


@pytest.mark.parametrize("name", ["graphs.plain", "streams.plain"])
def test_pools_of_graphs_and_streams(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A private pool's segments stay when the cache is emptied; blocks that another stream uses are kept."""
    found, row = explain(written(name, tmp_path)), runs()[name]
    assert (found.estimate.peak_allocated, found.estimate.peak_reserved) == (
        row["allocated_peak"],
        row["reserved_peak"],
    )
    assert f"replayed to the byte: all {found.event_count:,} entries" in text_of(
        tmp_path / f"{name}.pickle", capsys
    )
    private = [
        s for s in loaded(name, tmp_path)["segments"] if tuple(s.get("segment_pool_id", (0, 0))) != (0, 0)
    ]
    assert bool(private) == (name == "graphs.plain")


def test_of_two_devices_the_one_that_failed_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the one that holds more; and which it is is said."""
    first, second = loaded("mlp_adam.plain", tmp_path), loaded("ends_training.plain.700MiB", tmp_path)
    both = {
        **first,
        "segments": [
            *({**s, "device": 0} for s in first["segments"]),
            *({**s, "device": 1} for s in second["segments"]),
        ],
        "device_traces": [first["device_traces"][0], second["device_traces"][0]],
    }
    path = tmp_path / "two.pickle"
    path.write_bytes(pickle.dumps(both))
    said = text_of(path, capsys, 1)
    assert "2 devices are recorded; this is device 1" in said and said.startswith("out of memory")
    assert explain(path).estimate.peak_reserved == runs()["ends_training.plain.700MiB"]["reserved_peak"]
    swapped = {
        **both,
        "device_traces": [first["device_traces"][0], []],
        "segments": both["segments"][: len(first["segments"])],
    }
    path.write_bytes(pickle.dumps(swapped))
    assert explain(path).estimate.peak_reserved == runs()["mlp_adam.plain"]["reserved_peak"]


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_one_clear_line(
    part: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written("mlp_adam.plain", tmp_path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * part)])
    assert main(["explain", str(path)]) == 2
    said = capsys.readouterr().err
    assert "damaged or cut off" in said and "Traceback" not in said


class Executes:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path("executed").touch, ())


def test_a_hostile_snapshot_executes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it lies among entries that are read in one piece, in a frame, or where a text was expected."""
    monkeypatch.chdir(tmp_path)
    for place in ("entry", "frame", "key", "end"):
        frame = {"name": "f", "filename": "a.py", "line": 1}
        entries: list[Any] = [
            {
                "action": "alloc",
                "addr": 2**40 + 512 * at,
                "size": 512,
                "stream": 0,
                "time_us": at,
                "frames": [frame],
            }
            for at in range(50)
        ]
        hostile = Executes()
        if place == "entry":
            entries[40] = hostile
        elif place == "frame":
            entries[40] = {**entries[40], "frames": [frame, hostile]}
        elif place == "key":
            entries[40] = {**entries[40], "size": hostile}
        value = {
            "segments": [],
            "device_traces": [entries],
            **({"settings": hostile} if place == "end" else {}),
        }
        (tmp_path / "hostile.pickle").write_bytes(pickle.dumps(value))
        assert main(["explain", "hostile.pickle"]) == 2
        assert "nothing of it was executed" in capsys.readouterr().err
        assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "content", ["epoch 1 loss 0.3\nepoch 2 loss 0.2\n", "", "MemoryError\n", "\x00\x01\x02 no text"]
)
def test_a_text_of_no_error_says_what_would_be_read(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.log"
    path.write_text(content)
    assert main(["explain", str(path)]) == 2
    said = capsys.readouterr().err
    assert "no error for want of memory is in it that is known here" in said and "give a snapshot" in said


def test_a_log_larger_than_memory_is_read_at_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.log"
    with path.open("wb") as file:
        file.truncate(2**33)
        file.seek(0, 2)
        file.write(b"\nCUDA failure 2: out of memory\n")
    assert "the CUDA driver had no memory" in text_of(path, capsys, 1)


def test_a_stream_without_end_is_kept_at_its_end() -> None:
    class Endless(io.RawIOBase):
        left = 200

        def readable(self) -> bool:
            return True

        def readinto(self, into: Any) -> int:
            self.left -= 1
            last = b"x" * (len(into) - 30) + b"\nCUDA failure 2: out of memory\n"[:30]
            into[:] = b"y" * len(into) if self.left else last
            return len(into) if self.left >= 0 else 0

    text = end_of(Endless())  # type: ignore[arg-type]
    assert len(text) == 64 * MIB and message_of(text, "stdin").source == "ONNX Runtime"


def test_compare_of_recordings_names_what_grew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before and after, with both figures in the order of the command line; and a recording beside an estimate."""
    before, after = written("losses_kept.plain", tmp_path), written("mlp_adam.plain", tmp_path)
    assert main(["compare", str(after), str(before)]) == 1
    assert "needs more" in capsys.readouterr().out
    assert main(["compare", str(before), str(after)]) == 0
    assert "needs less" in capsys.readouterr().out
    assert main(["explain", "-q", str(before), "--format", "json", "-o", str(tmp_path / "before.json")]) == 0
    assert main(["compare", str(tmp_path / "before.json"), str(before)]) == 0
    document = json.loads((tmp_path / "before.json").read_text())
    assert document["peak_reserved"] == runs()["losses_kept.plain"]["reserved_peak"]
    assert main(["compare", str(before), str(tmp_path / "nothing.pickle")]) == 2


def page_of(name: str, folder: Path) -> tuple[str, dict[str, Any]]:
    """The page of a recorded run, and what its scripts draw."""
    path = folder / "page.html"
    main(["explain", "-q", str(written(name, folder)), "--format", "html", "-o", str(path)])
    page = path.read_text()
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return page, json.loads(data)["views"][0]


def test_the_page_is_that_of_an_estimate(tmp_path: Path) -> None:
    """Course, live set, segments; divided by lines, since a recording knows no modules; the limit where one is known."""
    page, view = page_of("ends_growing.plain.900MiB", tmp_path)
    row = runs()["ends_growing.plain.900MiB"]
    assert max(view["reserved"]) == row["reserved_peak"] and max(view["allocated"]) == row["allocated_peak"]
    assert view["limit"] == row["reserved_peak"] and 'data-act="limit"' in page
    assert '<option value="line" selected>' in page
    assert sum(nbytes for _, nbytes, _, died in view["segments"] if died < 0) == row["reserved_current"]
    for title in (
        "Course",
        "In use",
        "Segments and blocks",
        "Tensors in use",
        "Holders of the peak",
        "Notes",
    ):
        assert f"{title}</h2>" in page
    assert view["categories"] == ["parameters", "activations"]


def test_the_page_of_a_recording_without_stacks_or_limit_claims_neither(tmp_path: Path) -> None:
    page, view = page_of("growing_batches.plain", tmp_path)
    assert view["limit"] is None and 'data-act="limit"' not in page
    assert (
        "not known (no stacks were recorded)" in re.sub(r"<[^>]*>", "", page)
        and "autograd" not in page.partition('id="data"')[0]
    )
    assert view["categories"] == ["not known"] and "activations" not in page.partition('id="data"')[0]
    found = explain(tmp_path / "growing_batches.plain.pickle").estimate
    assert set(found.timeline.category) <= {"", "not known"} and found.breakdown == {
        "not known": found.peak_allocated
    }


def test_the_page_of_an_error_names_its_source_once(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("CUDA failure 2: out of memory\n")
    main(["explain", "-q", str(tmp_path / "log.txt"), "--format", "html", "-o", str(tmp_path / "log.html")])
    page = (tmp_path / "log.html").read_text()
    assert "message of ONNX Runtime</h1>" in page
    assert page.count("out of memory: the CUDA driver had no memory") == 1 + page.count(
        "<title>out of memory"
    )
