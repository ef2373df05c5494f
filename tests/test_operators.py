"""One ONNX operator, one place: the committed page is what the registries say, and an operator is found by its name."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from analyzer.capture.lowering.call import FUNCTIONS
from analyzer.runtimes.onnxruntime.kernels.scratch import RULES
from analyzer.runtimes.onnxruntime.rewrite.fusions import ORDER
from benchmarks.__main__ import main as benchmarks
from benchmarks.onnx import operators as onnx_operators


def test_the_committed_page_is_what_the_command_writes() -> None:
    assert onnx_operators.PAGE.read_text(encoding="utf-8") == onnx_operators.page(), (
        "run: python -m benchmarks onnx_operators table"
    )


def test_every_registered_rule_is_on_the_page_in_its_own_file() -> None:
    """Looked up from the registries' side: nothing is registered that the page does not lead to."""
    for (domain, name), function in FUNCTIONS.items():
        files = {fact.file for fact in onnx_operators.of(f"{domain}.{name}" if domain else name)}
        assert onnx_operators.where(function)[0] in files, name
    for rules in RULES.values():
        for name, rule in rules.items():
            known = (*onnx_operators.of(name), *onnx_operators.of(f"com.microsoft.{name}"))
            assert onnx_operators.where(rule.takes)[0] in {fact.file for fact in known}, name
    for turn in ORDER:
        for name in turn.fusion.operators:
            assert turn.fusion.name in {fact.what for fact in onnx_operators.of(name)}


def test_what_is_known_of_conv_stands_under_its_name() -> None:
    """Written down by hand."""
    known = {(fact.topic, fact.file.rpartition("/")[2]) for fact in onnx_operators.of("Conv")}
    assert known == {
        ("shapes", "native.py"),
        ("to PyTorch", "layers.py"),
        ("scratch", "convolution.py"),
        ("rewrites", "convolution.py"),
        ("rewrites", "layout.py"),
    }
    assert onnx_operators.of("Nonsense") == ()


def test_the_command_prints_one_operator_and_refuses_what_nothing_knows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert benchmarks(["onnx_operators", "show", "BiasGelu"]) == 0
    assert "analyzer/runtimes/onnxruntime/kernels/scratch/tables.py" in capsys.readouterr().out
    assert benchmarks(["onnx_operators", "show", "Nonsense"]) == 2
    assert "nothing is known of 'Nonsense'" in capsys.readouterr().err
