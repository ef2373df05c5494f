"""Named rules: each says what it says with its source, and no estimate can carry a name that is not explained."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize

import pytest

import analyzer
from analyzer.errors import OptionError
from analyzer.options import Options
from analyzer.pipeline.workload import analysis
from analyzer.rules import catalogue, find
from analyzer.runtimes.events import Malloc
from analyzer.runtimes.onnxruntime import rules as onnxruntime
from analyzer.runtimes.onnxruntime.kernels.scratch import RULES
from analyzer.runtimes.pytorch.scratch import BY_NAME, OF_OPERATOR
from analyzer.runtimes.rules import (
    LONGEST_NAME,
    Rule,
    carried_out_by,
    is_name,
    place,
    source_in,
    without_source,
)
from tests.paths import MODELS, ROOT


@pytest.mark.parametrize("rule", catalogue().values(), ids=lambda rule: rule.name)
def test_a_rule_says_what_it_says_and_where_that_comes_from(rule: Rule) -> None:
    assert is_name(rule.name) and len(rule.name) <= LONGEST_NAME
    assert len(rule.summary.split()) >= 3 and rule.summary.endswith("."), rule.summary
    assert rule.source, rule.name
    assert not re.search(r"\b[Rr]ules? \d", rule.text.partition("\n\n")[0]), "a number says nothing by itself"
    file, _, line = rule.where.partition(":")
    path = next(top / file for top in (ROOT, ROOT / "extensions") if (top / file).is_file())
    if line and rule.name != "unknown-operator":
        code = path.read_text().splitlines()[int(line) - 1]
        assert code.lstrip().startswith(("@", "def ")), (rule.where, code)


def test_every_registered_rule_has_a_docstring_of_its_own() -> None:
    for name, rule in BY_NAME.items():
        text = inspect.getdoc(inspect.unwrap(rule.code)) or ""
        assert len(without_source(text).split()) >= 6, name
    assert {rule.name for rule in OF_OPERATOR.values()} <= BY_NAME.keys() <= catalogue().keys()


def test_no_two_rules_share_a_name() -> None:
    from analyzer.runtimes.pytorch import rules as pytorch

    names = [rule.name for rule in (*pytorch.rules(), *onnxruntime.rules())]
    assert len(names) == len(set(names)) and len(catalogue()) > len(names)


def test_kernels_of_onnx_runtime_declare_how_sure_they_are() -> None:
    for provider in RULES.values():
        for operator, kernel in provider.items():
            (rule,) = (r for r in onnxruntime.rules() if r.where == place(kernel.takes))
            said = set(re.findall(r'"(exact|measured|bounded)"', inspect.getsource(kernel.takes)))
            assert operator in rule.operators
            if said:
                assert set(rule.sure) == said, rule.name


# A convolution's too: what cuDNN does not have runs as products.
_OF_PRODUCTS = (
    "cublaslt-call-workspace",
    "cublas-workspace",
    "cublaslt-workspace",
    "cublaslt-own-workspace",
    "cublas-call-workspace",
)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("cublas-workspace", ["cublas-workspace"]),
        ("aten::convolution", ["convolution", *_OF_PRODUCTS, "cudnn-convolution", "tensor"]),
        ("aten::convolution.default", ["convolution", *_OF_PRODUCTS, "cudnn-convolution", "tensor"]),
        ("mm", ["matrix-product", *_OF_PRODUCTS, "tensor"]),
        ("aten::max.other", ["extremes", "reduction-staging", "tensor"]),
        ("aten::relu_", ["inert", "tensor"]),
        ("Conv", ["ort-nhwc-weights", "ort-cuda-conv", "ort-cpu-conv", "ort-kernel-output"]),
        ("Relu", ["ort-kernel-output"]),
        ("com.microsoft.Attention", ["ort-attention", "ort-kernel-output"]),
    ],
)
def test_find(name: str, found: list[str]) -> None:
    assert [rule.name for rule in find(name)] == found


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cublas-workspac", "did you mean 'cublas-workspace'"),
        ("aten::convolutoin", "did you mean 'aten::convolution'"),
        ("mylib::op", "unknown-operator"),
        ("", "lists all rules"),
    ],
)
def test_an_unknown_name_is_an_error_that_helps(name: str, hint: str) -> None:
    with pytest.raises(OptionError) as caught:
        find(name)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("cnn.py", {"batch": 4, "mode": "train", "device": "h200"}),
        ("gpt2.py", {"batch": 1, "mode": "train", "device": "h200", "optimizer": "adamw", "steps": 1}),
        ("resnet50.onnx", {"batch": 4, "device": "h200"}),
        ("resnet50.onnx", {"batch": 4, "device": "h200", "runtime_options": {"provider": "cpu"}}),
    ],
)
def test_every_name_an_estimate_carries_is_explained(target: str, options: dict[str, object]) -> None:
    made = analysis(str(MODELS / target), Options.of(options))
    estimate, known = made.estimate, catalogue()
    requests = [event for event in made.prediction.events if isinstance(event, Malloc)]
    assert {event.rule for event in requests} <= known.keys()
    assert all(event.basis in known[event.rule].sure for event in requests)
    assert {row.rule for row in estimate.tensors} <= {event.rule for event in requests}
    certainty = estimate.certainty
    for basis in ("exact", "measured", "bounded"):
        assert sum(certainty.by_rule[basis].values()) == getattr(certainty, basis)
    assert sum(sum(rules.values()) for rules in certainty.by_rule.values()) == estimate.peak_allocated
    named = [
        rule for rule, kind in zip(estimate.timeline.rule, estimate.timeline.category, strict=True) if kind
    ]
    assert all(named) and set(named) == {event.rule for event in requests}


def test_names_are_short_and_in_lower_case() -> None:
    assert is_name("a-1") and is_name("x" * LONGEST_NAME)
    assert not any(map(is_name, ("", "A", "a_b", "-a", "a--b", "a-", "x" * (LONGEST_NAME + 1), "a b")))


def test_a_source_is_read_from_a_docstring() -> None:
    assert source_in("What it does.\n\nSource: `a.cpp`\n(`f`).\n\nNot modelled: x.") == "`a.cpp` (`f`)."
    assert source_in("Sizes: `b.py`. Source: `a.cpp`; orders as recorded.") == "`a.cpp`; orders as recorded."
    assert source_in("Measured: H200.") == "Measured: H200." and source_in("It has none.") == ""
    assert without_source("One.\n\nSource: a.\n\nTwo.") == "One.\n\nTwo."


def test_a_rule_without_words_says_so() -> None:
    def bare() -> None:
        pass

    rule = carried_out_by(bare, "bare")
    assert (rule.text, rule.source, rule.topic) == ("It has no docstring.", "", "")
    assert rule.where.startswith("/") or rule.where.startswith("tests/"), rule.where


def test_the_api_offers_the_decorator() -> None:
    from analyzer.runtimes.pytorch.scratch import rule

    assert analyzer.rule is rule and "rule" in analyzer.__all__


def test_code_says_the_words_of_a_rule_not_its_number() -> None:
    """A module's docstring may number its rules; what refers to one from elsewhere must be understood by itself."""
    found = []
    being_rebuilt = ROOT / "analyzer/capture/pytorch"
    for path in sorted([*(ROOT / "analyzer").rglob("*.py"), *(ROOT / "extensions").rglob("*.py")]):
        text = path.read_text()
        if not re.search(r"\b[Rr]ules? \d", text):
            continue
        tree = ast.parse(text)
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        said = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        said += [token.string for token in tokens if token.type == tokenize.COMMENT]
        found += [
            f"{path.relative_to(ROOT)}: {line.splitlines()[0]}"
            for line in said
            if re.search(r"\b[Rr]ules? \d", line) and not path.is_relative_to(being_rebuilt)
        ]
    assert not found
