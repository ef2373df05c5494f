"""Every public function of `torch.cuda` and `torch.accelerator`: answered, or known not to be; the table says which."""

from __future__ import annotations

import inspect
import re

import pytest

torch = pytest.importorskip("torch")

from analyzer.capture.pytorch.patches import PATCHES, look_up  # noqa: E402
from benchmarks import cuda_functions  # noqa: E402
from tests.paths import ROOT  # noqa: E402


def test_the_table_is_what_a_program_is_told() -> None:
    told = cuda_functions.asked()
    failing = {name: answer for name, answer in told.items() if answer.startswith("fails")}
    assert failing.keys() <= cuda_functions.WITHOUT.keys(), failing
    written = (ROOT / "docs/evidence/CUDA_FUNCTIONS.md").read_text()
    if f"torch {torch.__version__.partition('+')[0]})" in written:
        rows = dict(re.findall(r"^\| `torch\.([\w.]+)` \| (.*) \|$", written, re.MULTILINE))
        assert rows.keys() == told.keys()
        assert {name for name, answer in rows.items() if answer.startswith("**none**")} == failing.keys()


def test_answers_take_the_arguments_of_what_they_stand_for() -> None:
    """Each parameter by its name, as PyTorch's documentation has them."""
    from analyzer.capture.pytorch.capture import capture_script
    from analyzer.devices import load

    signatures = {}
    for where in PATCHES:
        if re.match(r"torch\.(cuda|accelerator)\.[a-z]\w*$", where):
            try:
                signatures[where] = inspect.signature(getattr(*look_up(where)))
            except (AttributeError, TypeError, ValueError):  # newer than this torch, or no function
                continue
    refused = []

    def script(_: object) -> None:
        for where, signature in signatures.items():
            replacement = getattr(*look_up(where))
            named = [
                p
                for p in signature.parameters.values()
                if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
            ]
            try:
                inspect.signature(replacement).bind(**{p.name: None for p in named})
            except TypeError as error:
                refused.append((where, str(error)))
            except ValueError:
                continue

    capture_script(script, load("h200"))
    assert len(signatures) > 60 and refused == []
