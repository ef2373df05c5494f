"""cuDNN asked in a process of its own: answers kept, crashes survived; where the library is, what it says for GPUs that are not there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from analyzer.devices import load
from analyzer.libraries.cudnn import asker as module
from analyzer.libraries.cudnn.asker import Asker
from analyzer.libraries.cudnn.convolution import OPERATIONS, Convolution, Plan, Question
from analyzer.libraries.cudnn.finding import Library
from tests.libraries.cudnn.fakes import LIBRARIES, needs_cudnn

CALL = Convolution("forward", "float32", False, (8, 64, 56, 56), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1))
NOWHERE = Library("/nowhere/libcudnn.so.9", "", (9, 19))

# Answers as cuDNN does: a plan of as many bytes as the batch is; ends as by a signal at batch 13.
PRETENDED = """
import json, os, sys
device = json.loads(sys.stdin.readline())
if device["deviceVer"] == 666: os.abort()
print(json.dumps({"ranks_unusable": True}), flush=True)
for line in sys.stdin:
    with open(sys.argv[1], "a") as log: log.write(line)
    found = []
    for question in json.loads(line):
        batch = question[4][0]
        if batch == 13: os.abort()
        found.append([[1, batch, True, False, [[2, 5]]]])
    print(json.dumps(found), flush=True)
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lines a pretended library was sent."""
    script = tmp_path / "pretended.py"
    script.write_text(PRETENDED)
    sent = tmp_path / "sent"
    monkeypatch.setattr(module, "command", lambda _: [sys.executable, str(script), str(sent)])
    return sent


def at(batch: int) -> Question:
    return Question(CALL._replace(x_shape=(batch, *CALL.x_shape[1:])), CALL.y_shape)


def plans(asker: Asker, question: Question) -> tuple[Plan, ...] | None:
    return asker.ask([question])[0]


def test_an_answer_is_kept_on_disk_and_nobody_is_asked_again(log: Path, tmp_path: Path) -> None:
    first = Asker(NOWHERE, '{"deviceVer": 900}', tmp_path)
    assert plans(first, at(4)) == (Plan(1, 4, True, False, ((2, 5),)),)
    assert first.ask([at(4), at(5), at(5)])[1:] == [plans(first, at(5))] * 2
    first.close()
    again = Asker(NOWHERE, '{"deviceVer": 900}', tmp_path)
    assert again.ask([at(5), at(4)]) == [plans(first, at(5)), plans(first, at(4))]
    assert len(log.read_text().splitlines()) == 2 and again._process is None
    other = Asker(NOWHERE, '{"deviceVer": 890}', tmp_path)
    assert plans(other, at(4)) and len(log.read_text().splitlines()) == 3
    other.close()


def test_a_whole_list_answers_the_question_for_the_first(log: Path, tmp_path: Path) -> None:
    asker = Asker(NOWHERE, '{"deviceVer": 900}', tmp_path)
    assert plans(asker, at(4)._replace(whole=True)) == plans(asker, at(4))
    assert len(log.read_text().splitlines()) == 1
    asker.close()


@pytest.mark.usefixtures("log")
def test_a_question_that_ends_the_library_has_no_answer_and_the_others_have(tmp_path: Path) -> None:
    asker = Asker(NOWHERE, '{"deviceVer": 900}', tmp_path)
    found = asker.ask([at(12), at(13), at(14)])
    assert [plans and plans[0].workspace_bytes for plans in found] == [12, None, 14]
    asker.close()
    assert Asker(NOWHERE, '{"deviceVer": 900}', tmp_path)._known == {}  # read when first asked


def test_a_gpu_the_release_does_not_know_is_given_up(log: Path, tmp_path: Path) -> None:
    asker = Asker(NOWHERE, '{"deviceVer": 666}', tmp_path)
    assert asker.ask([at(1), at(2)]) == [None, None]
    assert not log.exists() and asker._running() is None


def test_a_cache_that_cannot_be_written_is_done_without(log: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    asker = Asker(NOWHERE, '{"deviceVer": 900}', tmp_path / "file")
    assert plans(asker, at(3)) and plans(asker, at(3)) and len(log.read_text().splitlines()) == 1
    asker.close()


@pytest.mark.usefixtures("log")
def test_a_broken_cache_is_asked_again(tmp_path: Path) -> None:
    asker = Asker(NOWHERE, '{"deviceVer": 900}', tmp_path)
    asker._path.parent.mkdir(parents=True)
    asker._path.write_text("no database")
    assert plans(asker, at(3))
    asker.close()


def test_a_library_that_is_not_there_answers_nothing(tmp_path: Path) -> None:
    assert Asker(NOWHERE, '{"deviceVer": 900}', tmp_path).ask([at(1)]) == [None]


@needs_cudnn
@pytest.mark.parametrize("name", ["t4", "a100-80gb", "h100", "h200", "rtx3090", "rtx4090", "rtx5090", "b300"])
def test_cudnn_answers_for_a_gpu_that_is_not_there(name: str, tmp_path: Path) -> None:
    asker = Asker(LIBRARIES[0], json.dumps(dict(load(name).cudnn_device)), tmp_path)
    found = asker.ask(
        [Question.of(CALL._replace(operation=operation), whole=True) for operation in OPERATIONS]
    )
    asker.close()
    assert all(plans and len(plans) > 5 and plans[-1].workspace_bytes >= 0 for plans in found)


@needs_cudnn
def test_figures_nobody_looked_up_decide_nothing(tmp_path: Path) -> None:
    """L2 and clocks halved and doubled: the first plan takes the same."""
    questions = [
        Question.of(CALL._replace(operation=operation, x_shape=(batch, *CALL.x_shape[1:])))
        for operation in OPERATIONS
        for batch in (1, 7, 32)
    ]
    for name in ("a100-80gb", "rtx4090", "rtx5090"):
        device = dict(load(name).cudnn_device)
        seen = []
        for factor in (1, 2):
            changed = {
                key: device[key] * factor for key in ("l2CacheSize", "smClockRateKHz", "memClockRateKHz")
            }
            asker = Asker(LIBRARIES[0], json.dumps(device | changed), tmp_path)
            seen.append([plans and plans[0].workspace_bytes for plans in asker.ask(questions)])
            asker.close()
        assert seen[0] == seen[1], name
