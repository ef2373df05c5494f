"""Engines cuDNN compiles at run time, beside what an H100's handle listed, and where nobody lists them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from analyzer.devices import load
from analyzer.libraries.cudnn import asker as module
from analyzer.libraries.cudnn.asker import Asker
from analyzer.libraries.cudnn.choices import UNKNOWN, Choices
from analyzer.libraries.cudnn.convolution import Convolution, Plan, Question
from analyzer.libraries.cudnn.splits import H100_CLOCKS
from tests.libraries.cudnn.fakes import LIBRARIES, FakeAsker
from tests.paths import DATA

DEPTHWISE = Convolution("forward", "float16", False, (8, 64, 28, 28), (64, 1, 5, 5), (2, 2), (1, 1), (1, 1))
LISTED = (Plan(57, 1612190),)


@pytest.mark.skipif(
    not LIBRARIES or LIBRARIES[0].release != (9, 19) or module._STAND_IN is None,
    reason="no cuDNN 9.19 here, or the stand-in was not compiled",
)
def test_a_description_lists_what_a_handle_does(tmp_path: Path) -> None:
    with gzip.open(DATA / "h100/depthwise_first.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines][::19]
    asker = Asker(LIBRARIES[0], json.dumps(dict(load("h100").cudnn_device)), tmp_path)
    found = asker.ask(
        [
            Question.of(
                Convolution(of, "float16", False, tuple(x), tuple(w), (pad, pad), (step, step), (1, 1))
            )
            for of, x, w, pad, step, _ in rows
        ]
    )
    asker.close()
    first = [plans and [plans[0].engine, plans[0].workspace_bytes] for plans in found]
    assert first == [plans[0] for *_, plans in rows]


def test_without_them_a_depthwise_convolution_may_take_nothing() -> None:
    asker = FakeAsker({}, LISTED)
    whole = Choices(None, asker, 132, (9, 0), H100_CLOCKS).workspace(DEPTHWISE)  # type: ignore[arg-type]
    asker.lists_compiled = False
    lacking = Choices(None, asker, 132, (9, 0), H100_CLOCKS).workspace(DEPTHWISE)  # type: ignore[arg-type]
    assert whole.low_bytes == whole.nbytes == lacking.nbytes == lacking.high_bytes == 1612190
    assert (lacking.low_bytes, lacking.source) == (0, UNKNOWN)
    dense = DEPTHWISE._replace(x_shape=(8, 1, 28, 28))
    assert Choices(None, asker, 132, (9, 0), H100_CLOCKS).workspace(dense).low_bytes > 0  # type: ignore[arg-type]


def test_the_stand_in_goes_with_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if module._STAND_IN is None:
        pytest.skip("the stand-in was not compiled")
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    asker = Asker(module.Library("/nowhere/libcudnn.so.9", "", (9, 19)), "{}", tmp_path)
    assert asker.ask([Question.of(DEPTHWISE)]) == [None]
    assert not list(tmp_path.glob("analyze-cudnn-*"))
