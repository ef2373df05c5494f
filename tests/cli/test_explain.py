"""`analyze explain`: rules in words, as text and JSON; it needs no torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from analyzer.cli import main
from analyzer.rules import catalogue

CUBLAS = """\
cublas-workspace
================

Every product through cuBLAS takes the thread's workspace the first time, after
its result is allocated, and keeps it: 32 MiB on compute capability 9.x (10.x
and 12.x since torch 2.12), about 8 MiB on others, or what
`CUBLAS_WORKSPACE_CONFIG` says: the profile has the size, `with_workspaces`
(`runtimes/pytorch/settings.py`) puts the variable and the release in. Training
takes two, since autograd runs the backward pass on a thread of its own. From
torch 2.15 on a call gives it back (cublas-call-workspace). Before torch 2.0
cuBLAS used memory of its own, which the allocator does not see.

how sure:     exact: decided by the runtime's code
holds for:    torch 2.0 to 2.14
source:       `aten/src/ATen/cuda/CublasHandlePool.cpp`
              (`getChosenWorkspaceSize`, `getCurrentCUDABlasHandle`); pull
              request 86645 of PyTorch (October 2022).
code:         analyzer/runtimes/pytorch/scratch/blas.py:"""


def test_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "cublas-workspace"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(CUBLAS)
    assert "Not modelled: TunableOp" in shown.partition("The topic it belongs to:")[2]
    assert max(map(len, shown.splitlines())) <= 80


def test_the_list_has_a_line_for_each_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(catalogue())
    assert max(map(len, lines)) <= 80 and all(len(line.split()) >= 3 for line in lines)


RULES = catalogue()


@pytest.mark.parametrize("name", [*RULES, "aten::convolution", "aten::relu", "Conv"])
def test_explanations_fit_the_terminal(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analyzer.rules.catalogue", lambda: RULES)  # read from the sources once, not for each
    assert main(["explain", name]) == 0
    shown = capsys.readouterr().out
    wide = [line for line in shown.splitlines() if len(line) > 80]
    assert not [line for line in wide if " " in line.strip()], "only a word of its own may be wider"
    assert "source: " in shown and "none given" not in shown


def test_an_operator_finds_all_its_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "aten::convolution"]) == 0
    shown = capsys.readouterr().out
    found = [name for name in catalogue() if f"\n{name}\n{'=' * len(name)}\n" in f"\n{shown}"]
    products = [name for name in found if name.startswith("cublas")]  # of PyTorch's own kernels
    assert "cublas-workspace" in products
    assert [name for name in found if name not in products] == ["convolution", "cudnn-convolution", "tensor"]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "topk", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (rule,) = document["rules"]
    assert document["schema"] == 1
    assert (rule["name"], rule["operators"], rule["sure"]) == ("topk", ["aten::topk"], ["exact", "measured"])
    assert rule["where"].startswith("analyzer/runtimes/pytorch/scratch/sorting.py:")
    assert "TensorTopK.cu" in rule["source"] and rule["summary"] and rule["text"]
    assert main(["explain", "--format", "json"]) == 0
    assert [rule["name"] for rule in json.loads(capsys.readouterr().out)["rules"]] == list(catalogue())


def test_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "cublas_workspace"]) == 2
    ran = capsys.readouterr()
    assert ran.out == ""
    assert ran.err == (
        "analyze: error: there is no rule or operator called 'cublas_workspace'\n"
        "  hint: did you mean 'cublas-workspace' or 'cublaslt-workspace'? analyze explain lists all rules;"
        " see: analyze explain --help\n"
    )


def test_it_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from analyzer.cli import main; "
        "code = main(['explain', 'aten::mm']); import analyzer; analyzer.rule; sys.exit(code)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0 and "matrix-product" in ran.stdout, ran.stderr
