"""`analyzer.rule`: a user's operator is unknown without a rule and exact with one; the example is that of docs/rules.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import analyzer
from analyzer.cli import main
from analyzer.devices import load
from analyzer.errors import RuleError, UnknownOperatorError
from analyzer.graph import Operator, TensorMeta
from analyzer.rules import find
from analyzer.runtimes.pytorch.scratch import BY_NAME, OF_OPERATOR, Output, Take, kernel_allocations
from tests.paths import ROOT
from tests.schemas import called

EXAMPLE = re.findall(
    r"^```python\n(.*?)^```$", (ROOT / "docs/rules.md").read_text(), re.MULTILINE | re.DOTALL
)
MM = called(
    0,
    "aten::mm.default",
    (TensorMeta(0, (4, 8), (8, 1), "float32"), TensorMeta(1, (8, 2), (2, 1), "float32")),
    (TensorMeta(2, (4, 2), (2, 1), "float32"),),
)


@pytest.fixture(autouse=True)
def rules_as_before() -> Iterator[None]:
    of_operator, by_name = dict(OF_OPERATOR), dict(BY_NAME)
    yield
    for registry, before in ((OF_OPERATOR, of_operator), (BY_NAME, by_name)):
        registry.clear()
        registry.update(before)  # type: ignore[arg-type]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (code,) = EXAMPLE
    path = tmp_path / "model.py"
    path.write_text(
        code.replace("mylib::", f"mylib_{tmp_path.name}::").replace("mylib.", f"mylib_{tmp_path.name}.")
    )
    return path


def padded(nbytes: int) -> Any:
    def rule(_operator: Operator, _device: Any, script: Any) -> None:
        """A temporary before the result."""
        script.temporary(nbytes)
        script.output(0)

    return rule


def test_the_example_passes_strict_and_counts_its_rule(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(model), "--batch", "8", "--device", "h200", "--strict"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^30\.6 MiB +- ", shown, re.MULTILINE) and "scratch · smooth-padded" in shown
    assert "100.0 % of the peak by rule" in shown
    # The file is executed anew by each analysis: its rule is the same rule again.
    estimate = analyzer.analyze(str(model), batch=8, device="h200", strict=True)
    scratch = [row for row in estimate.tensors if row.rule == "smooth-padded"]
    assert [row.nbytes for row in scratch] == [-(-8 * 1000 * 1002 * 4 // 512) * 512]
    (rule,) = find("smooth-padded")
    assert rule.source == "mylib/smooth.cu (`smooth_forward`)."
    assert rule.where == f"{model}:{_line(model, '@analyzer.rule')}"
    assert rule.summary.startswith("Rows are copied with one more element")


def test_without_its_rule_the_example_is_what_its_body_is(model: Path) -> None:
    """Which PyTorch can follow, unless it is the compiled kernel that the example speaks of."""
    model.write_text(re.sub(r"@analyzer\.rule.*\n", "", model.read_text()))
    found = analyzer.analyze(str(model), batch=8, device="h200", strict=True)
    assert any(row.operator == "aten::avg_pool2d.default" for row in found.tensors)
    model.write_text(
        re.sub(r"return nn\.functional.*\n", 'raise RuntimeError("compiled")\n', model.read_text())
    )
    with pytest.raises(UnknownOperatorError, match="smooth") as caught:
        analyzer.analyze(str(model), batch=8, device="h200", strict=True)
    assert "analyzer.rule" in caught.value.hint
    estimate = analyzer.analyze(str(model), batch=8, device="h200")
    assert len(estimate.certainty.unknown_operators) == 1


def test_an_operator_with_a_rule_is_refused_unless_replaced() -> None:
    with pytest.raises(RuleError, match="aten::mm has a rule already: matrix-product") as caught:
        analyzer.rule("aten::mm", name="mine")(padded(512))
    assert "replace=True" in caught.value.hint
    with pytest.raises(RuleError, match="aten::relu has a rule already: inert"):
        analyzer.rule("aten::relu", name="mine")(padded(512))
    assert "mine" not in BY_NAME

    analyzer.rule("aten::mm", name="mine", replace=True)(padded(512))
    steps = kernel_allocations(MM, load("h200")).steps
    assert steps[:2] == (Take(0, 512), Output(0)) and isinstance(steps[0], Take) and steps[0].rule == "mine"
    assert [rule.name for rule in find("aten::mm")] == ["mine", "tensor"]


def test_a_refused_rule_changes_nothing() -> None:
    before = (dict(OF_OPERATOR), dict(BY_NAME))
    with pytest.raises(RuleError):
        analyzer.rule("mylib::fresh", "aten::mm", name="mine")(padded(512))
    assert before == (OF_OPERATOR, BY_NAME)


def test_a_name_that_is_taken_or_none() -> None:
    with pytest.raises(RuleError, match="a rule named convolution already"):
        analyzer.rule("mylib::conv", name="convolution")(padded(1))
    for name in ("", "Upper", "x" * 25):
        with pytest.raises(RuleError, match="cannot name a rule") as caught:
            analyzer.rule("mylib::conv", name=name or "-")(padded(1))
        assert "name=" in caught.value.hint


def test_one_overload_comes_before_all() -> None:
    analyzer.rule("mylib::op", name="all-of-them")(padded(512))
    analyzer.rule("mylib::op.one", name="this-one")(lambda operator, device, script: script.temporary(1024))

    def name_of(operator: str) -> str:
        (take,) = (
            s
            for s in kernel_allocations(called(0, operator, (), MM.outputs), load("h200")).steps
            if isinstance(s, Take)
        )
        return take.rule

    assert (name_of("mylib::op"), name_of("mylib::op.two"), name_of("mylib::op.one")) == (
        "all-of-them",
        "all-of-them",
        "this-one",
    )


def test_a_rule_that_fails_is_the_users_error_not_an_internal_one() -> None:
    def broken(operator: Operator, _device: Any, _script: Any) -> None:
        """It reads what is not there."""
        operator.inputs[7]

    analyzer.rule("mylib::op")(broken)
    with pytest.raises(RuleError, match=r"the rule broken \(.*:\d+\) on mylib::op: IndexError") as caught:
        kernel_allocations(called(0, "mylib::op", (), MM.outputs), load("h200"))
    assert caught.value.hint


def test_bytes_are_whole() -> None:
    analyzer.rule("mylib::op", name="halves")(padded(1.5))  # type: ignore[arg-type]
    with pytest.raises(RuleError, match=r"takes 1\.5 bytes"):
        kernel_allocations(called(0, "mylib::op", (), MM.outputs), load("h200"))


def _line(path: Path, start: str) -> int:
    lines = path.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.startswith(start))
