"""Every public function of `torch.cuda` and `torch.accelerator`: answered, or known not to be; the table says which."""

from __future__ import annotations

import inspect
import json
import os
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import analyzer  # noqa: E402
from analyzer.capture.pytorch import build  # noqa: E402
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


def test_a_program_is_told_what_a_cuda_build_says_of_itself(tmp_path: Path) -> None:
    """All of the table, by the program that made it; of the version the local part. Afterwards this build speaks for itself."""
    before = cuda_functions.said_by_here()
    kept = tmp_path / "kept"
    told_file = tmp_path / "told.json"
    found = analyzer.run(cuda_functions.ASKS, [told_file], device="h200", keep_outputs=kept)
    assert found.incomplete is None and not told_file.exists()
    told = json.loads(next(kept.rglob("told.json")).read_text())
    wrong = {name: (told.get(name), said) for name, said in build.table().items() if told.get(name) != said}
    installed = torch.__version__.partition("+")[0]
    local = build.table()["__version__"].partition("+")[2]
    assert {name: seen for name, (seen, _) in wrong.items()} == dict.fromkeys(
        ("__version__", "version.__version__"), f"{installed}+{local}"
    )
    assert cuda_functions.said_by_here() == before


@pytest.mark.skipif(
    "ANALYZER_CUDA_PYTHON" not in os.environ, reason="ANALYZER_CUDA_PYTHON names no Python with a CUDA build"
)
def test_the_table_is_what_the_build_says() -> None:
    said = cuda_functions.build(os.environ["ANALYZER_CUDA_PYTHON"])
    if said["__version__"] == build.table()["__version__"]:
        assert said == build.table()
    else:  # another release has other functions
        assert {"_C._has_cudnn", "backends.cudnn.is_available()", "version.cuda"} <= said.keys()


IDIOMS = """
import torch
from torch.backends import cudnn
if cudnn.is_available():
    cudnn.benchmark = True
assert torch.backends.cuda.is_built() and torch.has_cuda and torch.cuda.has_magma and torch.cuda._is_compiled()
assert "+cu" in torch.__version__ and int(torch.version.cuda.split(".")[0]) >= 13 and torch.cuda.nccl.version() > (2, 0)
assert "USE_CUDA=ON" in torch.__config__.show() and torch.cuda.get_arch_list()[0] == "sm_75"
assert torch._C._cuda_getDeviceCount() == 1 and torch.backends.cudnn.benchmark_limit == 10
with cudnn.flags(enabled=True, benchmark=cudnn.benchmark, benchmark_limit=5):
    torch.nn.Conv2d(3, 64, 3).cuda()(torch.ones(8, 3, 64, 64, device="cuda"))
half = torch.empty(1, 2, 64, 64, device="cuda", dtype=torch.float16)
for tensor, flash in ((half, True), (half.float(), False)):
    call = torch.backends.cuda.SDPAParams(tensor, tensor, tensor, None, 0.0, True, False)
    assert torch.backends.cuda.can_use_flash_attention(call) is flash
    assert torch.backends.cuda.can_use_cudnn_attention(call) is flash
    assert torch.backends.cuda.can_use_efficient_attention(call, debug=True)
"""


@pytest.mark.parametrize("frozen", [False, True])
def test_what_programs_ask_before_they_choose_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frozen: bool
) -> None:
    """Public programs switch cuDNN's trials on where cuDNN is there: their workspace was not counted. frozen:
    something else imported PyTorch's own test utilities, which forbid that."""
    monkeypatch.setattr(torch.backends, "__allow_nonbracketed_mutation_flag", not frozen)
    (tmp_path / "idioms.py").write_text(IDIOMS)
    estimate = analyzer.run(tmp_path / "idioms.py", device="h200")
    assert estimate.incomplete is None
    assert any("cudnn.benchmark is on" in note for note in estimate.notes)
    assert not torch.backends.cudnn.benchmark and not torch.backends.cudnn.is_available()
