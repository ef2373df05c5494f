"""Programs with kernels written in Triton: bytes worked out by hand from what `triton/runtime/autotuner.py` and
`triton/testing.py` do; where Triton is not installed, as here, beside a stand-in."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import analyzer  # noqa: E402
from analyzer.capture.pytorch.kernels.triton_absent import release  # noqa: E402
from analyzer.devices import load  # noqa: E402
from analyzer_programs.following.as_main import as_main  # noqa: E402
from analyzer_programs.following.script import follow  # noqa: E402

MIB = 1 << 20
absent = pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="Triton is installed here")

KERNEL = """
import torch, triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, libdevice.tanh(tl.load(x_ptr + offsets, mask=mask).to(tl.float32)), mask=mask)
"""


def run(tmp_path: Path, text: str) -> Any:
    """The program with `double`, followed to its end."""
    script = tmp_path / "launches.py"
    script.write_text(KERNEL + text)
    estimate = analyzer.run(script, device="h200")
    assert estimate.incomplete is None, (estimate.incomplete, estimate.notes)
    return estimate


def test_a_launch_takes_no_memory(tmp_path: Path) -> None:
    """Two tensors of 4 MiB, and nothing beside them; in autograd's function as outside."""
    estimate = run(
        tmp_path,
        """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        double[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), BLOCK=1024, num_warps=8)
        return out
    @staticmethod
    def backward(ctx, grad):
        double[(triton.cdiv(grad.numel(), 1024),)](grad, grad, grad.numel(), BLOCK=triton.next_power_of_2(1000))
        return grad

x = torch.ones(1 << 20, device="cuda", requires_grad=True)
version = x._version
out = Double.apply(x)
assert out.grad_fn is not None and x._version == version
assert torch.cuda.max_memory_allocated() == 8 << 20
out.sum().backward()
assert x.grad.shape == x.shape and x.grad.is_cuda
""",
    )
    assert any("not run: double;" in note for note in estimate.notes)
    assert not estimate.certainty.unknown_operators


def test_a_launch_is_an_operator_on_what_it_was_given(tmp_path: Path) -> None:
    script = tmp_path / "launches.py"
    script.write_text(KERNEL + "x = torch.ones(8, device='cuda'); double[(1,)](x, x + 1, 8, BLOCK=8)\n")
    with as_main(script, [], {}) as main:
        graph = follow(main, load("h200")).graph
    (launched,) = (operator for operator in graph.operators if operator.name.startswith("triton::double"))
    assert len(launched.inputs) == len(launched.writes) == 2 and not any(launched.outputs)


def test_what_a_kernel_wrote_is_not_known(tmp_path: Path) -> None:
    """Zeros and a count the program made itself would be known; after the launch they are stood in for, and noted."""
    estimate = run(
        tmp_path,
        """
flags = torch.zeros(4, dtype=torch.long, device="cuda")
assert flags.sum().item() == 0
double[(1,)](flags, flags, 4, BLOCK=4)
assert flags.sum().item() == 1
""",
    )
    assert any("reads a value only a real run has" in note for note in estimate.notes)


TUNED = """
configs = [triton.Config({{"BLOCK": block}}, num_warps=4) for block in {blocks}]
tuned = triton.autotune(configs=configs, key=["n"], restore_value=["out_ptr"])(double)
x = torch.ones(1 << 20, device="cuda")
peaks = []
for n in (1 << 20, 1 << 20, 1 << 19):
    torch.cuda.reset_peak_memory_stats()
    tuned[(1,)](x, x, n)
    peaks.append(torch.cuda.max_memory_allocated() >> 20)
assert peaks == {peaks}, peaks
assert torch.cuda.memory_allocated() == 4 << 20
"""


def test_tuning_takes_a_buffer_and_copies_once_for_each_key(tmp_path: Path) -> None:
    """4 MiB, their copy (`restore_value`) and 256 MiB that clear the cache; the second launch has its configuration."""
    run(tmp_path, TUNED.format(blocks=(256, 512), peaks=[264, 4, 264]))


def test_one_configuration_is_not_timed(tmp_path: Path) -> None:
    run(tmp_path, TUNED.format(blocks=(256,), peaks=[4, 4, 4]))


@absent
def test_programs_find_the_release_and_pytorch_finds_none(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers.utils.import_utils")
    transformers.is_triton_available()  # remembered from before
    run(
        tmp_path,
        """
import importlib.metadata
from transformers.utils.import_utils import is_triton_available
from torch.utils._triton import has_triton
assert is_triton_available() and triton.__version__ == importlib.metadata.version("triton") == "3.6.0"
assert not has_triton()
assert triton.cdiv(10, 4) == 3 and [triton.next_power_of_2(n) for n in (1, 2, 3, 1000)] == [1, 2, 4, 1024]
assert tl.constexpr(5).value == 5 and isinstance(double, triton.runtime.jit.JITFunction)
target = triton.runtime.driver.active.get_current_target()
assert (target.backend, target.arch) == ("cuda", 90)
try:
    double(1)
except RuntimeError as error:
    assert "outside of the scope" in str(error)
try:
    import triton.of_nobody
except ModuleNotFoundError:
    pass
else:
    raise AssertionError
""",
    )
    assert not transformers.is_triton_available() and importlib.util.find_spec("triton") is None
    assert not any(name.partition(".")[0] == "triton" for name in sys.modules)


@absent
def test_a_kernel_that_is_kept_is_launched_nowhere(tmp_path: Path) -> None:
    run(tmp_path, "import builtins; builtins.kept_kernel = double\n")
    import builtins

    kernel = builtins.kept_kernel  # type: ignore[attr-defined]
    del builtins.kept_kernel  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="0 active drivers"):
        kernel[(1,)](torch.zeros(4), torch.zeros(4), 4, BLOCK=4)


@pytest.mark.parametrize(
    ("torch_release", "triton"), [((2, 5), "3.2.0"), ((2, 11), "3.6.0"), ((2, 20), "3.9.0")]
)
def test_which_release_a_torch_brings(torch_release: tuple[int, int], triton: str) -> None:
    """The METADATA of torch 2.11.0 on PyPI requires triton==3.6.0; unknown ones are like their neighbour."""
    assert release(torch_release) == triton


MODEL = (
    KERNEL
    + """
class Doubled(torch.nn.Module):
    def forward(self, x):
        import triton.testing
        out = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out

def make_batch(batch):
    return torch.empty(batch, 1 << 20), None
"""
)


def test_a_target_that_imports_triton(tmp_path: Path) -> None:
    """An input of 4 MiB a sample, what is made of it and was made of the one before, and nothing beside; again, and over batches."""
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    for _ in range(2):
        estimate = analyzer.analyze(f"{file}:Doubled", batch=2, device="h200")
        assert estimate.peak_allocated == 24 * MIB
        assert any("not run: double;" in note for note in estimate.notes)
        assert not estimate.certainty.unknown_operators
    curve = analyzer.sweep(f"{file}:Doubled", batches=[1, 2, 3], device="h200")
    assert [row.peak_allocated for row in curve.rows] == [12 * MIB, 24 * MIB, 36 * MIB]


@absent
def test_a_target_leaves_no_triton_behind(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    analyzer.analyze(f"{file}:Doubled", batch=1)
    assert not [name for name in sys.modules if name.partition(".")[0] == "triton"]
    assert importlib.util.find_spec("triton") is None


@absent
def test_a_function_that_remembers_nothing_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers 4.57's `is_triton_available` (utils/import_utils.py) has no cache; later ones have one."""
    module = types.ModuleType("transformers.utils.import_utils")
    vars(module)["is_triton_available"] = lambda: False
    monkeypatch.setitem(sys.modules, module.__name__, module)
    run(tmp_path, "x = torch.zeros(3, device='cuda')")
