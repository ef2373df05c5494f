"""What can be said about an analysis: every option with values that make sense and values that do not, spelt in one place."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import click
import pytest

import analyzer
from analyzer.cli import Commands, group
from analyzer.cli._options import analysis_keywords
from analyzer.errors import AnalyzerError, InputError, OptionError
from analyzer.options import Options, takes_options
from analyzer.spec import TensorSpec

FIELDS = {field.name: field for field in dataclasses.fields(Options)}
SPEC = TensorSpec((2, 3))
# option -> (what may be said, what it means), and what may not be said with the error's kind and words.
VALID: dict[str, list[tuple[Any, Any]]] = {
    "batch": [(None, None), (1, 1), (10**12, 10**12)],
    "batches": [(None, None), ((1, 64, 8), (1, 64, 8)), ([2], (2,))],
    "mode": [("infer", "infer"), ("train", "train"), ("generate", "generate")],
    "inputs": [(None, None), ([SPEC], [SPEC]), (SPEC, (SPEC,)), ({"x": SPEC}, {"x": SPEC})],
    "values": [(None, {}), ({"sr": 16000}, {"sr": 16000})],
    "assume": [
        (None, {}),
        ({"c": True}, {"c": True}),
        ({"a/b.py:1": "7", "t.py:2": True}, {"a/b.py:1": 7, "t.py:2": True}),
    ],
    "targets": [(None, None), ((SPEC, SPEC), (SPEC, SPEC)), (SPEC, (SPEC,))],
    "loss": [(None, None), ("mse", "mse"), (len, len)],
    "optimizer": [("sgd", "sgd"), (None, None), (dict, dict)],
    "dtype": [(None, None), ("bf16", "bfloat16"), ("float16", "float16")],
    "amp": [(None, None), ("bf16", "bf16"), ("fp16", "fp16")],
    "channels_last": [(False, False), (True, True)],
    "grad_accumulation": [(1, 1), (8, 8)],
    "checkpoint": [(None, None), ("layers.*", "layers.*")],
    "parallel": [(None, None), ("fsdp2:8,mixed=bf16", "fsdp2:8,mixed=bf16")],
    "steps": [(1, 1), (3, 3)],
    "device": [(None, None), ("l4", "l4"), (2**34, 2**34)],
    "budget": [(None, None), ("8GiB", "8GiB"), (2**33, 2**33)],
    "runtime": [(None, None), ("pytorch", "pytorch")],
    "runtime_options": [(None, {}), ({}, {}), ({"a": 1}, {"a": 1})],
    "release": [
        (None, {}),
        ({"torch": "2.8.1"}, {"torch": "2.8"}),
        ({"onnxruntime": "1.32"}, {"onnxruntime": "1.32"}),
    ],
    "strict": [(False, False), (True, True)],
    "trust": [(False, False), (True, True)],
    "task": [(None, None), ("seq2seq", "seq2seq")],
    "length": [(None, None), (2048, 2048)],
    "new_tokens": [(128, 128), (1, 1)],
    "lora": [(None, None), ("r=16", "r=16")],
    "load_in_8bit": [(False, False), (True, True)],
    "load_in_4bit": [(False, False), (True, True)],
    "no_double_quant": [(False, False), (True, True)],
    "dequantize": [(False, False), (True, True)],
    "gradient_checkpointing": [(False, False), (True, True)],
    "attn": [(None, None), ("eager", "eager")],
    "cache": [(None, None), ("static", "static")],
    "prefill_chunk": [(None, None), (128, 128)],
    "beams": [(1, 1), (4, 4)],
    "sample": [(False, False), (True, True)],
    "packed": [(False, False), (True, True)],
    "precompute_reference": [(False, False), (True, True)],
    "load": [("device-map", "device-map"), ("cpu", "cpu")],
    "revision": [(None, None), ("v1.0", "v1.0")],
}
INVALID: list[tuple[str, Any, type[AnalyzerError], str]] = [
    ("mode", "test", OptionError, "unknown mode 'test'"),
    ("task", "poetry", OptionError, "unknown task 'poetry'"),
    ("cache", "huge", OptionError, "unknown cache 'huge'"),
    ("load", None, OptionError, "unknown load None"),
    ("length", 0, InputError, "length is 0"),
    ("beams", True, InputError, "beams is True"),
    ("mode", None, OptionError, "unknown mode None"),
    ("batches", 3, OptionError, "batches is 3"),
    ("batches", "12", OptionError, "batches is '12'"),
    ("batches", (), OptionError, "batches are given beside a batch, or none is"),
    ("batches", (1, 0), InputError, "a batch is 0"),
    ("amp", "int8", OptionError, "unknown autocast type 'int8'"),
    ("amp", True, OptionError, "unknown autocast type True"),
    ("checkpoint", ["0"], OptionError, "checkpoint is"),
    ("checkpoint", True, OptionError, "checkpoint is True"),
    ("values", {"sr": "16000"}, OptionError, "values: sr is '16000'"),
    ("values", 3, OptionError, "values is 3"),
    ("assume", {"c": 1}, OptionError, "assume: c is 1"),
    ("parallel", "pp:2", OptionError, "--parallel 'pp:2': unknown way"),
    ("parallel", 8, OptionError, "parallel is 8"),
    ("budget", 0, OptionError, "a budget of 0 bytes"),
    ("budget", "lots", OptionError, "'lots' is no size"),
    ("budget", True, OptionError, "budget is True"),
    ("budget", 1.5, OptionError, "budget is 1.5"),
    ("runtime_options", "a=1", OptionError, "runtime_options is 'a=1'"),
    ("runtime_options", [("a", 1)], OptionError, "runtime_options is"),
    ("inputs", 5, InputError, "inputs is 5"),
    ("inputs", "2x4", InputError, "inputs is '2x4'"),
    ("release", "torch=2.8", OptionError, "release is 'torch=2.8'"),
    ("release", {"cuda": "12.6"}, OptionError, "the release of 'cuda' cannot be asked for: it is 13.0"),
    ("release", {"torch": "new"}, OptionError, "'new' is not a release"),
    *(
        (name, value, InputError, f"{name} is {value!r}")
        for name in ("batch", "grad_accumulation", "steps")
        for value in (0, -1, 2.0, "2", True)
    ),
]


def test_every_option_is_tried() -> None:
    assert set(VALID) == set(FIELDS)


@pytest.mark.parametrize(
    ("name", "said", "meant"), [(name, *pair) for name, pairs in VALID.items() for pair in pairs]
)
def test_what_may_be_said(name: str, said: Any, meant: Any) -> None:
    found = Options.of({name: said})
    assert getattr(found, name) == meant
    assert found == Options(**{name: said})
    others = set(FIELDS) - {name}
    assert all(getattr(found, other) == getattr(Options(), other) for other in others)


@pytest.mark.parametrize(("name", "said", "kind", "words"), INVALID)
def test_what_may_not_be_said(name: str, said: Any, kind: type[AnalyzerError], words: str) -> None:
    with pytest.raises(kind) as caught:
        Options.of({name: said})
    assert caught.value.message.startswith(words) and caught.value.hint


@pytest.mark.parametrize(
    ("name", "near"),
    [("bach", "did you mean 'batch'? "), ("optimiser", "did you mean 'optimizer'? "), ("zzz", "")],
)
def test_names_that_are_none(name: str, near: str) -> None:
    with pytest.raises(OptionError, match=f"there is no option '{name}'") as caught:
        Options.of({"batch": 1, name: 2})
    assert caught.value.hint == f"{near}options: {', '.join(sorted(FIELDS))}"


def test_options_do_not_change() -> None:
    settings = {"a": 1}
    options = Options(runtime_options=settings)
    settings["a"] = 2
    assert options.runtime_options == {"a": 1}
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.batch = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        Options(1)  # type: ignore[call-arg, misc]


def test_what_goes_into_the_estimate() -> None:
    assert Options().shown() == {"grad_accumulation": 1, "steps": 3}
    said = Options(
        batch=2, amp="bf16", checkpoint="l*", dtype="fp16", channels_last=True, runtime_options={"a": 1}
    )
    assert said.shown() == {
        "amp": "bf16", "grad_accumulation": 1, "checkpoint": "l*", "dtype": "float16", "channels_last": True, "steps": 3,
        "runtime.a": "1",
    }  # fmt: skip


# -- spelt once ------------------------------------------------------------------------------------------------------


def test_the_signature_of_analyze_shows_every_option() -> None:
    shown = inspect.signature(analyzer.analyze).parameters
    assert set(shown) == {"target", "engine", "python", "progress", *FIELDS}
    for name, field in FIELDS.items():
        if name == "inputs":  # which may also be said by position
            assert shown[name].default is None and shown[name].kind is shown[name].POSITIONAL_OR_KEYWORD
        else:
            default = field.default if field.default is not dataclasses.MISSING else None
            assert shown[name].default == default and shown[name].kind is shown[name].KEYWORD_ONLY
    assert inspect.Parameter.VAR_KEYWORD not in {parameter.kind for parameter in shown.values()}


def test_a_function_keeps_its_own_parameters() -> None:
    @takes_options
    def function(target: str, batch: str = "mine", **options: Any) -> None: ...

    shown = inspect.signature(function).parameters
    assert list(shown)[:2] == ["target", "batch"] and shown["batch"].default == "mine"
    assert set(shown) == {"target", *FIELDS}


def command(name: str) -> click.Command:
    assert isinstance(group, Commands)
    found = group.get_command(click.Context(group), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["estimate", "verify"])
def test_the_command_line_has_every_option_that_names_flags(name: str) -> None:
    offered = {option.name: option for option in command(name).params if isinstance(option, click.Option)}
    for field in FIELDS.values():
        if flags := field.metadata["flags"]:
            option = offered[field.name]
            assert tuple(option.opts) == flags and option.help == field.metadata["help"]
        else:
            assert field.name not in offered, "an option of the command line belongs into its field"
    assert {name for name, field in FIELDS.items() if not field.metadata["flags"]} == {"targets", "steps"}


def test_emulate_has_every_option_that_means_something_to_it() -> None:
    """Not among them: what is of ONNX files, of another release than the one that runs, and of rules nobody asks."""
    offered = {
        option.name: option for option in command("emulate").params if isinstance(option, click.Option)
    }
    without = {"batches", "values", "parallel", "runtime", "release", "strict"}
    for field in FIELDS.values():
        if field.metadata["flags"] and field.name not in without:
            assert tuple(offered[field.name].opts) == field.metadata["flags"]
        else:
            assert field.name not in offered


@pytest.mark.parametrize("name", ["estimate", "verify"])
def test_what_was_not_said_is_as_in_python(name: str) -> None:
    context = command(name).make_context(name, ["net.py"])
    keywords = analysis_keywords(context.params.pop("target"), context.params)
    assert Options.of(keywords) == Options()


def test_what_was_said_reaches_the_fields() -> None:
    words = [
        "net.py",
        "--batch",
        "2",
        "--mode",
        "train",
        "--strict",
        "--assume",
        "a.py:1=2.5",
        "--runtime-option",
        "a=b=c",
        "--input",
        "x=3",
    ]
    context = command("estimate").make_context("estimate", words)
    keywords = analysis_keywords(context.params.pop("target"), context.params)
    assert Options.of(keywords) == Options(
        batch=2,
        mode="train",
        strict=True,
        runtime_options={"a": "b=c"},
        inputs={"x": TensorSpec((2, 3))},
        assume={"a.py:1": 2.5},
    )
