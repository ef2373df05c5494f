"""An error of the program's own brings no hint to install what would end in it as well."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import analyzer
from analyzer.engines import choice
from analyzer.errors import CaptureError, MissingDependencyError
from analyzer_emulation import reach

INSTALL = "engine install"


@pytest.fixture(autouse=True)
def nothing_within_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "within_reach", lambda *_: None)


# The error of a worker process is raised again by PyTorch.
WORKER = """
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return {}[index]
if __name__ == "__main__":
    torch.ones(3, device="cuda")
    list(torch.utils.data.DataLoader(Data(), num_workers=1))
"""


@pytest.mark.parametrize(
    "text",
    [
        "raise ValueError('no')",
        "assert False",
        "open('nosuch.csv')",
        "import sys; sys.exit(3)",
        "import argparse; p = argparse.ArgumentParser(); p.add_argument('--x', required=True); p.parse_args()",
        "def f(a, b): pass\nf(1)",
        "import json; json.loads('{')",
        "import torch; torch.nn.Linear(3, 4).cuda()()",
        "import torch; torch.nn.Linear(3, 4).cuda()(torch.ones(2, 5, device='cuda'))",
        "import torch; torch.ones(200000, 3000, device='cuda') @ torch.ones(2, 3, device='cuda')",
        "import torch; torch.optim.SGD([], 0.1)",
        "import torch; torch.ones(3, device='cuda').sum().backward()",
        "import torch; y = torch.ones(3, device='cuda', requires_grad=True).exp().sum(); [y.backward() for _ in range(2)]",
        "import torch; y = torch.ones(3, device='cuda', requires_grad=True).exp(); y += 1; y.sum().backward()",
        "import torch; torch.ones(3, device='cuda') + torch.ones(3)",
        "import torch; c = torch.nn.CrossEntropyLoss(); c(torch.ones(3, 4, device='cuda'), torch.zeros(2, dtype=int, device='cuda'))",
        "import torch; torch.testing.assert_close(torch.ones(3, device='cuda').cpu(), torch.zeros(3))",
        WORKER,
    ],
)
def test_a_programs_own_error_installs_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "program.py").write_text(text)
    answer: Any = choice.EngineChoice().analyze_program(
        tmp_path / "program.py", (), choice.Options(device="h100"), {}
    )
    assert answer.estimate.incomplete is not None
    hint = getattr(answer.error, "hint", "")
    assert INSTALL not in hint and not any(INSTALL in note for note in answer.estimate.notes)
    assert "own fault" not in hint or "json" in text
    assert text != WORKER or hint == "raised by the program itself"


MODELS = """
import torch
class Two(torch.nn.Module):
    def forward(self, x, y):
        return x + y
class Raises(torch.nn.Module):
    def forward(self, x):
        raise ValueError("of its own")
class Shape(torch.nn.Module):
    def forward(self, x):
        return x @ torch.ones(9, 9, device=x.device)
class Branch(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x
"""


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Two", "give each input that forward takes"),
        ("Raises", "raised by the model itself"),
        ("Shape", "check that the input's shape"),
    ],
)
def test_a_models_own_error_installs_nothing(tmp_path: Path, name: str, hint: str) -> None:
    (tmp_path / "net.py").write_text(MODELS)
    with pytest.raises(CaptureError) as caught:
        analyzer.analyze(f"{tmp_path / 'net.py'}:{name}", {"x": analyzer.TensorSpec((2, 8))}, device="h100")
    assert INSTALL not in caught.value.hint and caught.value.hint.startswith(hint)


def test_a_package_that_no_build_brings_installs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    there = importlib.util.find_spec
    absent = ("transformers", "peft")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in absent else there(name))
    with pytest.raises(
        MissingDependencyError, match="needs packages that are not installed: transformers"
    ) as caught:
        analyzer.analyze(tmp_path, mode="train", length=16, device="h100")
    assert INSTALL not in caught.value.hint


def test_what_emulation_runs_is_still_offered(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODELS)
    with pytest.raises(CaptureError, match=INSTALL):
        analyzer.analyze(f"{tmp_path / 'net.py'}:Branch", {"x": analyzer.TensorSpec((2, 8))}, device="h100")
