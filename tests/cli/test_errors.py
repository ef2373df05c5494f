"""Errors to the letter: what happened, what is near it, and the help of the command that was typed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from analyzer import devices
from analyzer.errors import OptionError
from tests.commands import errs
from tests.paths import MODELS

FORMS = "give model.onnx, file.py[:attr], package.module:attr, program.pt2, config.json or hf:ORG/NAME"
SIZES = 'all: analyze devices; or give a size such as "24GiB", or a profile\'s path'
# Words of a command -> what stderr has, behind "analyze: error: " and "  hint: ".
ERRORS = {
    "fti net.onnx": (
        "there is no command 'fti', and no such file",
        "did you mean 'fit'? see: analyze --help",
    ),
    "resnet5.onnx": ("resnet5.onnx: no such file", "did you mean 'resnet50.onnx'? see: analyze --help"),
    "fit resnet5.onnx": (
        "resnet5.onnx: no such file",
        "did you mean 'resnet50.onnx'? see: analyze fit --help",
    ),
    "nothing.at.all": ("nothing.at.all: no such file", f"{FORMS}; see: analyze --help"),
    "report savde.json": (
        "savde.json cannot be read: No such file or directory",
        "did you mean 'saved.json'? write it with: analyze TARGET --format json -o FILE; see: analyze report --help",
    ),
    "explain snapshto.pickle": (
        "there is no file snapshto.pickle, and no rule of that name",
        "did you mean 'snapshot.pickle'? give a snapshot or a log; see: analyze explain --help",
    ),
    "explain cublas-workspac": (
        "there is no rule or operator called 'cublas-workspac'",
        "did you mean 'cublas-workspace' or 'cublaslt-workspace'? analyze explain lists all rules; see: analyze explain --help",
    ),
    "grid gird.yaml": (
        "gird.yaml is no grid: No such file or directory",
        "did you mean 'grid.yaml'? see: analyze grid --help",
    ),
    "devices rtx4095": (
        "unknown device 'rtx4095'",
        f"did you mean 'rtx4090'? near it: rtx5090, rtx4080, rtx4070, rtx4060; {SIZES}; see: analyze devices --help",
    ),
    "devices xyz": ("unknown device 'xyz'", f"{SIZES}; see: analyze devices --help"),
    "devices mi300x": (
        "unknown device 'mi300x'",
        f"AMD's GPUs are not modelled; {SIZES}; see: analyze devices --help",
    ),
    "fit": ("Missing argument 'TARGET'.", "see: analyze fit --help"),
}


def test_a_dimensions_name_is_suggested(run: Any) -> None:
    ran = run(MODELS / "bert.onnx", "--input", "token=128", "--batch", "2")
    assert ran.code == 2 and "hint: did you mean 'tokens'? its inputs are: tokens; its named" in ran.err


@pytest.mark.parametrize("words", ERRORS)
def test_an_error_to_the_letter(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    errs(run, tmp_path, monkeypatch, words, ERRORS[words])


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("a100", "a100-40gb is taken for 'a100'; there is a100-80gb, too"),
        ("NVIDIA A100", "a100-40gb is taken for 'NVIDIA A100'; there is a100-80gb, too"),
        ("rtx4060ti", "rtx4060ti-16gb is taken for 'rtx4060ti'; there is rtx4060ti-8gb, too"),
        ("a100-80gb", ""),
        ("rtx5060ti", ""),
        ("rtx a5000", ""),
        ("h100", ""),
    ],
)
def test_a_name_of_several_cards_says_which(run: Any, name: str, note: str) -> None:
    assert devices.resolve(name)[1] == note
    assert run("devices", name).err == (f"analyze: note: {note}\n" if note else "")
    asked = run(MODELS / "cnn.onnx", "--batch", "4", "--device", name)
    assert (f"device: {note}" in " ".join(asked.out.split())) == bool(note)


def test_at_most_five_names_are_near_an_unknown_device() -> None:
    for name in ("rtx", "a", "h1000", "rtx40900", "rtx6000", "v1000", "b400"):
        with pytest.raises(OptionError) as caught:
            devices.load(name)
        said = set(re.findall(r"[\w-]+", caught.value.hint.partition("all:")[0]))
        assert 1 <= len(said & set(devices.names())) <= 5
