"""What a program may want of a machine with a GPU, and is told instead; and that torch is as before afterwards."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import analyzer  # noqa: E402

WANTED = [
    ("def f(:", "SyntaxError", "no valid Python"),
    (
        "import subprocess\nsubprocess.check_output(['nvidia-smi-of-nobody', '-L'])",
        "nvidia-smi",
        "torch.cuda",
    ),
    ("import pynvml\nraise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)", "NVMLError", "torch.cuda"),
    ("import no_such_library_at_all", "ModuleNotFoundError", "install no_such_library_at_all"),
    (
        "from torch.utils.cpp_extension import load_inline\nimport torch.utils.cpp_extension as e; e.CUDA_HOME = None\n"
        "load_inline('k', 'int f();', cuda_sources='int f() { return 0; }', functions=['f'])",
        "CUDA_HOME",
        "register_fake",
    ),
    (
        "import torch\ntorch._dynamo.optimize('inductor')(torch.nn.Linear(2, 2).cuda())(torch.zeros(1, 2, device='cuda'))",
        "wants.py:2",
        "runs as eager code",
    ),
    ("import triton.of_nobody", "triton", "custom_op"),
    ("raise RuntimeError('0 active drivers ([]). There should only be one.')", "active drivers", "Triton"),
]


@pytest.mark.parametrize(("text", "said", "advice"), WANTED, ids=[said for _, said, _ in WANTED])
def test_each_gets_an_answer_of_its_own(tmp_path: Path, text: str, said: str, advice: str) -> None:
    script = tmp_path / "wants.py"
    script.write_text(text + "\n")
    estimate = analyzer.run(script, device="h200")
    assert estimate.incomplete is not None and said in estimate.incomplete and not estimate.fits()
    assert any(advice in note for note in estimate.notes)


def smoke() -> list[Any]:
    """Small things torch does on the CPU, whose results any leftover of a run would change."""
    torch.manual_seed(1)
    x = torch.randn(300, 300, requires_grad=True)
    layer = torch.nn.Sequential(torch.nn.Linear(300, 64), torch.nn.GELU(), torch.nn.Linear(64, 4))
    optimizer = torch.optim.Adam(layer.parameters())
    loss = torch.nn.functional.cross_entropy(layer(x), torch.arange(300) % 4)
    loss.backward()
    optimizer.step()
    return [
        loss.item(), x.grad.sum().item(), layer[0].weight.sum().item(), x.device.type, torch.zeros(1 << 20).device.type,
        torch.empty(3, device="meta").device.type, torch.cuda.is_available(), torch.get_default_dtype(),
        (x > 0).nonzero().shape, torch.isnan(x).any().item(), len(torch.serialization._package_registry),
        torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(),
    ]  # fmt: skip


@pytest.mark.parametrize("ending", ["", "raise ValueError", "raise SystemExit(2)", "raise KeyboardInterrupt"])
def test_torch_is_as_before(tmp_path: Path, ending: str) -> None:
    """Also where the run ends in the middle of a context, with a default device set."""
    before = smoke()
    script = tmp_path / "leaves.py"
    (tmp_path / "beside_it.py").write_text("value = 1\n")
    script.write_text(
        f"import torch, beside_it\ntorch.zeros(3, device='cuda').cpu()\nwith torch.device('cuda'):\n    {ending or 'pass'}\n"
    )
    assert (analyzer.run(script, device="h200").incomplete is None) == (ending == "")
    assert smoke() == before and "beside_it" not in sys.modules


def test_files_hold_zeros_and_are_loaded_where_they_were_saved(tmp_path: Path) -> None:
    """4 MiB saved from the GPU are 4 MiB on the GPU again; `map_location` keeps them on the host."""
    script = tmp_path / "saves.py"
    script.write_text(
        f"""
import pickle, torch
path = {str(tmp_path / "kept.pt")!r}
torch.save({{"a": torch.ones(1 << 20, device="cuda"), "b": torch.arange(4), "c": torch.ones(1 << 20)}}, path)
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.memory_allocated() == 0
kept = torch.load(path)
assert kept["a"].is_cuda and not kept["c"].is_cuda and kept["b"].tolist() == [0, 1, 2, 3]
assert torch.cuda.memory_allocated() == 4 << 20
assert not torch.load(path, map_location="cpu")["a"].is_cuda and torch.cuda.memory_allocated() == 4 << 20
assert pickle.loads(pickle.dumps(torch.nn.Linear(4, 4).cuda())).weight.is_cuda
"""
    )
    assert any("zeros" in note for note in analyzer.run(script, device="h200").notes)


def test_a_programs_own_meta_tensors_have_no_memory(tmp_path: Path) -> None:
    script = tmp_path / "meta.py"
    script.write_text(
        """
import torch
with torch.device("meta"):
    layer = torch.nn.Linear(1024, 1024, bias=False)
assert layer.weight.is_meta and layer.weight.device.type == "meta" and torch.cuda.memory_allocated() == 0
assert (layer.weight + 1).is_meta
layer.to_empty(device="cuda")
assert layer.weight.is_cuda and torch.cuda.memory_allocated() == 4 << 20
"""
    )
    assert analyzer.run(script, device="h200").peak_allocated == 4 << 20


LAZY = """
import sys, types

class Lazy(types.ModuleType):
    def __getattr__(self, name):
        raise ImportError(f"{self.__name__} cannot be imported here")

sys.modules["integrations_of_nobody"] = Lazy("integrations_of_nobody")
"""


def test_a_package_that_imports_itself_late_may_fail_to(tmp_path: Path) -> None:
    """A package's module that imports another when it is first used: asking it for anything raises ImportError."""
    script = tmp_path / "lazy.py"
    script.write_text(LAZY)
    try:
        assert analyzer.run(script, device="h200").incomplete is None
    finally:
        sys.modules.pop("integrations_of_nobody", None)
