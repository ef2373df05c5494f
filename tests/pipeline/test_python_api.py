"""The Python API as a user meets it: what is refused, in which words, and what help and type checkers say."""

from __future__ import annotations

import dataclasses
import pydoc
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import analyzer
from analyzer import OptionError, options
from analyzer.errors import InputError
from analyzer.keywords import KEYWORDS, RENAMED, in_python
from analyzer.options import Keywords, Options
from tests.paths import MODELS


class Embedding(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(10, 4)

    def forward(self, ids: Any) -> Any:
        return self.table(ids)


@pytest.mark.parametrize("args", ["--batch-size 64", b"--x", 3, "--name 'it"])
def test_arguments_in_one_text_are_refused_with_the_list(args: Any, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    for function in (analyzer.run, analyzer.emulate):
        with pytest.raises(OptionError, match="give a list: ") as caught:
            function(tmp_path / "train.py", args)
        if args == "--batch-size 64":
            assert caught.value.hint == "give a list: ['--batch-size', '64']"


def test_a_small_number_is_no_size() -> None:
    model, inputs = torch.nn.Linear(4, 4), (torch.zeros(2, 4),)
    for size in ({"device": 24}, {"budget": 8}):
        with pytest.raises(OptionError, match=r'would be .* bytes\n.*write the unit: "'):
            analyzer.analyze(model, inputs, **size)
    with pytest.raises(OptionError, match='"16GiB"'):
        analyzer.analyze(model, inputs, device="h100").fits(16)
    with pytest.raises(OptionError, match='"4GiB"'):
        analyzer.fit(model, lambda batch: ((torch.zeros(batch, 4),), ()), device="h100", limit=4)
    assert analyzer.analyze(model, inputs, device=24 << 30).capacity_bytes == 24 << 30


def test_an_optimizers_instance_is_refused_in_every_mode() -> None:
    model = torch.nn.Linear(4, 4)
    for mode in ("train", "infer"):
        with pytest.raises(OptionError, match=r"optimizer is an instance of Adam\n.*lambda parameters"):
            analyzer.analyze(
                model, (torch.zeros(2, 4),), mode=mode, optimizer=torch.optim.Adam(model.parameters())
            )
    with pytest.raises(OptionError, match="loss is an instance of int"):
        analyzer.analyze(model, (torch.zeros(2, 4),), loss=3)


def test_a_wrong_name_of_an_input_is_said_with_the_right_ones() -> None:
    with pytest.raises(InputError, match=r"Embedding takes no input 'idz'\n.*did you mean 'ids'"):
        analyzer.analyze(Embedding(), {"idz": torch.zeros(2, 3, dtype=torch.int64)})
    given = {"ids": torch.zeros(2, 3, dtype=torch.int64)}
    assert analyzer.analyze(Embedding(), given, device="h100").batch == 2


@pytest.mark.parametrize("batch", [1, 1024, 4096])
def test_a_batch_that_contradicts_the_inputs_is_refused(batch: int) -> None:
    model, inputs = torch.nn.Linear(1024, 4), [torch.zeros(32, 1024)]
    with pytest.raises(InputError, match=f"batch is {batch:,}, and the inputs are of batch 32 .32x1024."):
        analyzer.analyze(model, inputs, batch=batch, device="h100")
    assert analyzer.analyze(model, inputs, batch=32, device="h100").batch == 32
    curve = analyzer.sweep(model, [8, batch], inputs, device="h100")
    assert [row.batch for row in curve.rows] == sorted((8, batch))


def test_a_batch_that_contradicts_an_onnx_files_inputs_is_refused() -> None:
    given = {"image": analyzer.TensorSpec((32, 3, 224, 224))}
    with pytest.raises(InputError, match="the batch is 64, and no input has it: image is described as"):
        analyzer.analyze(MODELS / "resnet50.onnx", given, batch=64, device="h200")
    assert analyzer.analyze(MODELS / "resnet50.onnx", given, batch=32, device="h200").batch == 32


def test_sequences_may_come_first() -> None:
    found = analyzer.analyze(torch.nn.LSTM(8, 8), [torch.zeros(20, 4, 8)], batch=4, device="h100")
    assert found.batch == 4


def test_errors_and_estimates_speak_of_keywords() -> None:
    with pytest.raises(InputError) as caught:
        analyzer.analyze(Embedding(), device="h100")
    assert "--" not in str(caught.value) and "inputs={'NAME': TensorSpec(" in str(caught.value)
    assert "--input NAME" in caught.value.hint  # as the command line prints it
    found = analyzer.analyze(
        torch.nn.Linear(4, 4), (torch.zeros(2, 4),), mode="train", loss="sum", amp="bf16"
    )
    for shown in (repr(found), str(found)):
        assert "amp='bf16'" in shown and "device=NAME or SIZE" in shown and "--" not in shown


def test_a_shape_alone_is_no_input_of_a_graph() -> None:
    for given in ((2, 3, 32, 32), "2x3x32x32"):
        with pytest.raises(InputError, match="the input 'image' is") as caught:
            analyzer.analyze(MODELS / "cnn.onnx", {"image": given})
        assert "TensorSpec(SHAPE)" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("leave --runtime out", "leave runtime out"),
        ("--mode generate needs a config.json", "mode='generate' needs a config.json"),
        ("give --batches 1,64,8 alone", "give batches=(1,64,8) alone"),
        ("such as --release torch=2.8", "such as release={'torch': '2.8'}"),
        ("add --grad-accumulation 4", "add grad_accumulation=4"),
        ("give --input x=3x8:int64", "give inputs={'x': TensorSpec((batch, 3, 8), 'int64')}"),
        ("a dtype (--input x=3:int64) fits", "a dtype (inputs={'x': TensorSpec((batch, 3), 'int64')}) fits"),
        (
            "analyze fit TARGET --device a100; leave --amp out",
            "analyze fit TARGET --device a100; leave amp out",
        ),
        ("run with --force", "run with --force"),
    ],
)
def test_an_option_in_a_sentence_is_a_keyword(text: str, said: str) -> None:
    assert in_python(text) == said


def test_every_option_is_known_as_a_keyword_and_to_type_checkers() -> None:
    names = {field.name for field in dataclasses.fields(Options)}
    assert names - {"targets", "steps"} <= KEYWORDS
    flags = {flag for field in dataclasses.fields(Options) for flag in field.metadata["flags"][-1:]}
    assert {RENAMED.get(flag[2:], flag[2:].replace("-", "_")) for flag in flags} == names - {
        "targets",
        "steps",
    }
    hints = typing.get_type_hints(Options)
    hints.pop("inputs")
    assert typing.get_type_hints(Keywords) == hints
    assert typing.get_args(options.Mode) == ("infer", "train", "generate")


def test_dir_and_help_say_what_there_is() -> None:
    assert set(analyzer.__all__) <= set(dir(analyzer))
    text = pydoc.plain(pydoc.render_doc(analyzer.analyze))
    for section in ("Example:", "Args:", "Returns:", "Raises:", "Options:"):
        assert f"    {section}\n" in text
    assert max(map(len, text.splitlines())) < 120 and "    mode: 'Mode' = 'infer',\n" in text
    assert "--" not in text
    assert "Example:" in pydoc.plain(pydoc.render_doc(analyzer.run))


@pytest.mark.campaign
def test_a_type_checker_knows_closed_sets(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(
        "import analyzer\n"
        "analyzer.analyze('net.py', mode='train', amp='bf16')\n"
        "analyzer.analyze('net.py', mode='training')\n"
        "analyzer.sweep('net.py', [1], mode='training')\n"
        "analyzer.run('train.py', engine='emulated')\n"
    )
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "--no-error-summary", "user.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False, env={"MYPYPATH": str(Path(analyzer.__file__).parents[1]), "PATH": ""},
    )  # fmt: skip
    assert [line.partition(": ")[0] for line in found.stdout.splitlines() if "error" in line] == [
        "user.py:3", "user.py:4", "user.py:5",
    ], found.stdout + found.stderr  # fmt: skip


def test_the_seconds_of_a_step_are_a_number() -> None:
    model = torch.nn.Linear(64, 64)
    time = analyzer.analyze(
        model, (torch.zeros(8, 64),), mode="train", loss="sum", device="h100"
    ).step_seconds
    assert isinstance(time, float) and time == time.seconds
    assert 0 < time.low <= time <= time.high < 1
    assert dataclasses.replace(time, seconds=0.5) == 0.5
