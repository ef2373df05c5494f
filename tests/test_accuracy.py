"""No case that was measured may get worse: predictions beside the committed baseline.

`docs/evidence/ACCURACY.md` and the baseline come from `python -m benchmarks accuracy table`.
"""

from __future__ import annotations

import importlib.util
import json

import pytest

pytest.importorskip("torch")
for package in ("torchvision", "transformers", "monai", "timm"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)

from benchmarks.accuracy import sets  # noqa: E402
from benchmarks.accuracy.predict import predict  # noqa: E402
from tests.paths import ROOT  # noqa: E402

BASELINE = json.loads((ROOT / "tests" / "data" / "accuracy_baseline.json").read_text())["sets"]
# Of each set every fourth case is held here, of the third, the largest, every sixteenth; the others, twelve minutes more, by `-m
# campaign`.
_EVERY = {"held_out_3": 16}
CASES = [
    pytest.param(
        case,
        id=f"{case.set_name}-{case.number:02d}-{case.case['model']}",
        marks=[pytest.mark.campaign] if case.number % _EVERY.get(case.set_name, 4) else [],
    )
    for name in sets.NAMES
    for case in sets.load(name)
]
# Device used counts whole 2 MiB pages of libraries; a percent is 8 to 40 MiB of it.
SLACK = (0.0, 0.0, 0.001)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.sampled(8)
def test_no_worse_than_the_baseline(case: sets.MeasuredCase) -> None:
    prediction = predict(case)
    known = BASELINE[case.set_name][case.tag]
    if None in known:
        pytest.skip("a case that is not predicted yet (docs/evidence/ACCURACY.md says why)")
    assert not prediction.error
    for name, now, before, slack in zip(
        ("allocated", "reserved", "device"), prediction.errors, known, SLACK, strict=True
    ):
        assert abs(now) <= abs(before) + slack + 1e-9, (
            f"{name}: {now:+.6%} now, {before:+.6%} in the baseline"
        )


def test_what_the_project_promises_of_the_development_set() -> None:
    errors = [BASELINE["development"][case.tag] for case in sets.load("development")]
    allocated = sorted(abs(e[0]) for e in errors)
    reserved = sorted(abs(e[1]) for e in errors)
    used = sorted(abs(e[2]) for e in errors)
    assert sum(e == 0 for e in allocated) >= 45
    assert allocated[66] <= 0.005 and allocated[-1] <= 0.02
    assert reserved[35] <= 0.003 and reserved[66] <= 0.03
    assert used[35] <= 0.005 and used[66] <= 0.02
