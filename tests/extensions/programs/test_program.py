"""`analyzer.run`: whole programs on a GPU that is not there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import analyzer  # noqa: E402
from analyzer import OptionError, TargetError  # noqa: E402
from analyzer.cli import main  # noqa: E402

MIB = 1 << 20
LOOP = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).to("cuda").train()
optimizer = torch.optim.Adam(model.parameters())
for step in range(3):
    x, y = torch.randn(64, 256).to("cuda"), torch.zeros(64, dtype=torch.int64).to("cuda")
    optimizer.zero_grad()
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
"""


def test_a_training_loop_is_the_step_of_the_same_model(run: Any) -> None:
    """The script written as `capture/pytorch/module/step.py` runs a step: the same bytes, allocated and reserved."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    step = analyzer.analyze(
        model, torch.zeros(64, 256), targets=torch.zeros(64, dtype=torch.int64), mode="train",
        loss="cross_entropy", optimizer="adam", device="h200",
    )  # fmt: skip
    program = run(LOOP)
    assert (program.peak_allocated, program.peak_reserved) == (step.peak_allocated, step.peak_reserved)
    assert program.device_used == step.device_used
    assert program.breakdown["parameters"] == step.breakdown["parameters"]
    assert program.breakdown["optimizer state"] == step.breakdown["optimizer state"]
    assert "followed through 3 optimizer steps" in program.notes
    assert not any("stands in for it" in note for note in program.notes), "so little is computed"
    assert [mark.event for mark in program.marks][:2] == ["0.backward", "0.step"]


def test_until_ends_the_program_early(run: Any) -> None:
    assert any(note.startswith("followed in part: 1 optimizer step;") for note in run(LOOP, until=1).notes)


def test_arguments_environment_and_main(run: Any) -> None:
    text = """
import os, sys, torch
from pathlib import Path
assert __name__ == "__main__" and sys.path[0] == str(Path(__file__).parent)
kept = torch.zeros(int(sys.argv[1]), device=os.environ["WHERE"])
"""
    before = sys.argv, sys.path.copy(), dict(os.environ), sys.modules["__main__"]
    assert run(text, "1048576", environment={"WHERE": "cuda"}).peak_allocated == 4 * MIB
    assert (sys.argv, sys.path, dict(os.environ), sys.modules["__main__"]) == before


def test_the_program_asks_about_its_memory(run: Any) -> None:
    """20 MiB for a request between 1 and 10 MiB; a request of 600 bytes takes 1,024 of a segment of 2 MiB."""
    text = """
import torch
a = torch.zeros(1 << 20, device="cuda")
assert torch.cuda.memory_allocated() == 4 << 20 and torch.cuda.memory_reserved() == 20 << 20
b = torch.zeros(150, device="cuda")
assert torch.cuda.memory_allocated() == (4 << 20) + 1024 and torch.cuda.memory_reserved() == 22 << 20
del a
assert torch.cuda.memory_allocated() == 1024 and torch.cuda.max_memory_allocated() == (4 << 20) + 1024
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() == 1024
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 2 << 20
free, total = torch.cuda.mem_get_info()
assert 0 < free < total
assert torch.cuda.memory_stats()["reserved_bytes.all.current"] == 2 << 20
c = torch.zeros(1 << 20, device="cuda")
"""
    estimate = run(text)
    assert (estimate.peak_allocated, estimate.peak_reserved) == (4 * MIB + 1024, 22 * MIB)
    assert [mark.reserved for mark in estimate.marks if mark.event == "empty_cache"] == [22 * MIB]
    assert estimate.timeline.reserved[-1] == 22 * MIB


def test_what_is_free_of_an_h100(run: Any) -> None:
    """Read on one (`tests/data/h100/fit.json`): fresh, and after a first kernel with nothing held."""
    text = """
import torch
assert torch.cuda.mem_get_info() == (84_465_090_560, 85_017_493_504)
torch.zeros(1, device="cuda")
torch.cuda.empty_cache()
assert torch.cuda.mem_get_info() == (84_368_621_568, 85_017_493_504)
assert torch.cuda.get_device_properties(0).total_memory == 85_017_493_504
torch.cuda.set_per_process_memory_fraction(0.5)
try:
    torch.empty(85_017_493_504 // 2 + 1, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    assert "total capacity of 79.18 GiB" in str(error)
else:
    raise AssertionError
"""
    assert run(text, device="h100").incomplete is None


def test_a_request_without_room_is_pytorchs_error_and_may_be_caught(run: Any) -> None:
    """A batch-size finder: halves until it fits 10 % of the device."""
    text = """
import torch
torch.cuda.set_per_process_memory_fraction(0.1)
size = 64
while True:
    try:
        x = torch.zeros(size << 28, device="cuda")
        break
    except torch.OutOfMemoryError as error:
        assert str(error).startswith(f"CUDA out of memory. Tried to allocate {size}.00 GiB. GPU 0 has a total capacity")
        size //= 2
print("found", size)
"""
    estimate = run(text)
    assert estimate.out_of_memory is None and estimate.peak_allocated == 8 << 30


def test_a_fraction_of_a_device_without_an_index_is_refused_as_by_pytorch(run: Any) -> None:
    estimate = run('import torch\ntorch.cuda.set_per_process_memory_fraction(0.5, torch.device("cuda"))')
    assert "Expected a torch.device with a specified index" in str(estimate.incomplete)


def test_running_out_of_memory_is_a_result(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "import torch\na = torch.zeros(1 << 28, device='cuda')\nb = torch.zeros(1 << 30, device='cuda')\n"
    estimate = run(text, device="4GiB")
    failed = estimate.out_of_memory
    assert failed is not None and failed.requested_bytes == 4 << 30 and failed.source == "train.py:3"
    assert failed.allocated_bytes == 1 << 30 and estimate.peak_allocated == 5 << 30
    assert main(["run", "--device", "4GiB", str(tmp_path / "train.py")]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("does not fit: needs 5.6 GiB of 4.0 GiB on 4GiB")
    assert "first failed allocation: 4.0 GiB for " in said


def test_a_large_model_made_on_the_host_needs_no_memory_there(run: Any) -> None:
    """40 GiB of weights; the optimizer made before the model moves keeps its parameters."""
    text = """
import torch
model = torch.nn.Sequential(*(torch.nn.Linear(1 << 15, 1 << 15, bias=False) for _ in range(10)))
optimizer = torch.optim.SGD(model.parameters())
assert not model[0].weight.is_cuda
model.to("cuda")
assert model[0].weight.is_cuda and optimizer.param_groups[0]["params"][0] is model[0].weight
"""
    estimate = run(text)
    assert estimate.peak_allocated == 10 * (4 << 30)


def test_small_host_tensors_keep_their_values(run: Any) -> None:
    text = """
import torch
lengths = torch.tensor([3, 5])
x = torch.zeros(int(lengths.max()), 1 << 20, device="cuda")
assert lengths.tolist() == [3, 5] and x.shape[0] == 5
"""
    assert run(text).peak_allocated == 20 * MIB


def test_data_loaders_with_workers_pinned_memory_and_saved_files(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
import torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    data = TensorDataset(torch.randn(64, 16), torch.arange(64))
    model = torch.nn.Linear(16, 4).cuda()
    noise = torch.nn.Dropout().cuda()
    optimizer = torch.optim.SGD(model.parameters())
    for x, y in DataLoader(data, 16, num_workers=2, pin_memory=True):
        assert x.shape == (16, 16) and not x.is_cuda
        model(noise(x.cuda(non_blocking=True))).sum().backward()
        optimizer.step()
    torch.save(model.state_dict(), "model.pt")

if __name__ == "__main__":
    main()
"""
    monkeypatch.chdir(tmp_path)
    estimate = run(text, keep_outputs=tmp_path / "kept")
    assert any("are zeros" in note for note in estimate.notes) and not Path("model.pt").exists()
    saved = torch.load("kept/model.pt", map_location="cpu")
    assert saved["weight"].shape == (4, 16) and not saved["weight"].any()


def test_a_program_that_ends_itself(run: Any) -> None:
    estimate = run("import sys, torch\nx = torch.zeros(4, device='cuda')\nsys.exit(3)\n")
    assert "the program ended itself after 0 optimizer steps (exit code 3)" in estimate.notes
    assert estimate.incomplete == "the program ended itself: exit code 3" and not estimate.fits()
    assert run("import sys\nsys.exit('bad config')\n").incomplete == "the program ended itself: bad config"
    assert run("import os\nos._exit(4)\n").incomplete == "the program ended itself: exit code 4"
    assert run("import sys\nsys.exit()\n").incomplete is None


def test_a_program_that_fails_names_its_line(run: Any) -> None:
    estimate = run("import torch\nx = torch.zeros(1 << 20, device='cuda')\n1 / 0\n")
    assert estimate.incomplete == "train.py:3: ZeroDivisionError: division by zero"
    assert estimate.peak_allocated == 4 * MIB and not estimate.fits()  # what ran until then
    assert "SyntaxError" in (run("def f(:\n").incomplete or "")


def test_an_error_that_is_caught_keeps_no_memory(run: Any) -> None:
    run(
        """
import torch
def fails():
    x = torch.zeros(1 << 20, device="cuda")
    try:
        x @ torch.zeros(3, device="cuda")
    except RuntimeError:
        pass
fails()
assert torch.cuda.memory_allocated() == 0
"""
    )


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("torch.nn.Linear(3, 4).cuda()(torch.ones(2, 5, device='cuda'))", "PyTorch says the same"),
        (
            "x = torch.randn(3, device='cuda')\nassert x[0].item() < 0",
            "raised by the program itself, after it has read values",
        ),
        ("import sys\nraise ValueError('--lr must be positive')", "raised by the program itself"),
        ("import argparse\nargparse.Namespace(lr=1).learning_rate", "raised by the program itself"),
        (
            "torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=-1)",
            "PyTorch refuses these arguments, and would on a GPU",
        ),
        ("torch.nn.Linear(2, 2).load_state_dict({})", "PyTorch refuses these arguments, and would on a GPU"),
        ("torch.randn('a', device='cuda')", "PyTorch refuses these arguments, and would on a GPU"),
        ("open('nowhere/data.bin')", "the program itself fails here: it runs in "),
        ("torch.load('nowhere/model.pt')", "the program itself fails here: it runs in "),
        ("import numpy\nnumpy.zeros(3).reshape(2, 2)", "raised by the program itself"),
        (
            "import fractions\nfractions.Fraction('x')",
            "raised by one of the program's libraries; if it does not happen on a GPU",
        ),
        ("torch.nn.Linear(2, 2)(torch.ones(1, 2).cuda())", "a tensor was left on the host"),
        ("torch._C._cuda_nobody_has_this()", "may be analyzer's own fault"),
        ("import a_package_nobody_has", "install a_package_nobody_has beside analyzer"),
        (
            "try:\n    import a_package_nobody_has\nexcept ImportError as e:\n    raise ImportError('needs more') from e",
            "install a_package_nobody_has beside analyzer",
        ),
    ],
    ids=[
        "shapes",
        "a stand-in",
        "an option",
        "a name",
        "an argument of PyTorch's",
        "a file's contents",
        "a type",
        "a file",
        "a checkpoint",
        "an extension",
        "a library",
        "a device",
        "missing here",
        "package",
        "a package behind it",
    ],
)
def test_whose_fault_an_error_is(run: Any, text: str, hint: str) -> None:
    """ "The program itself" where it raises, or PyTorch on a CPU says the same; this tool only where neither is so."""
    notes = run(f"import torch\n{text}\n").notes
    assert any(hint in note for note in notes), notes
    assert any("own fault" in note for note in notes) == ("own fault" in hint or "if it does not" in hint)


CONVOLUTION = """
import sys
import torch
from torch import nn

exec(sys.argv[1])
x, layer = torch.randn(64, 3, 224, 224).to("cuda"), nn.Conv2d(3, 64, 7, 2, 3, bias=False).to("cuda")
with torch.no_grad():
    for _ in range(2):
        layer(x)
print(torch.cuda.max_memory_allocated() - x.nbytes - layer.weight.nbytes, torch.cuda.memory_reserved())
"""


def test_cudnns_settings_are_those_of_the_moment_of_the_call(run: Any, capsys: Any) -> None:
    """The stem of ResNet-50: 205,520,896 bytes of result, and what cuDNN takes under each setting; cached blocks go back
    after the trials."""
    from analyzer.devices import load
    from analyzer.libraries.cudnn.choices import choices_of
    from analyzer.libraries.cudnn.convolution import Convolution
    from analyzer.libraries.cudnn.plans import ConvolutionSettings

    stem = Convolution("forward", "float32", False, (64, 3, 224, 224), (64, 3, 7, 7), (3, 3), (2, 2), (1, 1))
    result = 64 * 64 * 112 * 112 * 4

    def taken(statement: str) -> tuple[int, int]:
        run(CONVOLUTION, statement)
        peak, reserved = capsys.readouterr().out.split()[-2:]
        return int(peak) - result, int(reserved)

    def near(nbytes: int, wanted: int) -> bool:
        return 0 <= nbytes - wanted < 2 * MIB  # a block's end that is not worth splitting off

    default, reserved = taken("pass")
    assert near(default, choices_of(load("h200")).workspace(stem).nbytes)
    strict = choices_of(load("h200")).workspace(stem, ConvolutionSettings(allow_tf32=False)).nbytes
    for statement in (
        "torch.backends.cudnn.allow_tf32 = False",
        "torch.backends.cudnn.conv.fp32_precision = 'ieee'",
    ):
        assert near(taken(statement)[0], strict)
    certain = choices_of(load("h200")).workspace(stem, ConvolutionSettings(deterministic=True)).nbytes
    for statement in (
        "torch.backends.cudnn.deterministic = True",
        "torch.use_deterministic_algorithms(True, warn_only=True)",
    ):
        assert near(taken(statement)[0], certain)
    tried = (
        choices_of(load("h200")).workspaces([stem], ConvolutionSettings(benchmark=True), trial=True)[0].nbytes
    )
    benchmark = taken("torch.backends.cudnn.benchmark = True")
    assert near(benchmark[0], tried) and tried > default + 8 * MIB
    assert (
        benchmark[1] == reserved
    )  # the trials' segment has gone back; the winner is what would have been taken anyway
    assert "cudnn.benchmark is on" in "".join(run(CONVOLUTION, "torch.backends.cudnn.benchmark = True").notes)


def test_torch_is_as_before_afterwards(run: Any) -> None:
    text = """
import torch
torch.set_default_dtype(torch.float64)
torch.backends.cudnn.benchmark = True
torch.set_grad_enabled(False)
raise SystemExit
"""
    run(text)
    assert torch.get_default_dtype() is torch.float32 and torch.is_grad_enabled()
    assert not torch.backends.cudnn.benchmark and not torch.cuda.is_available()
    x = torch.ones(1 << 19, requires_grad=True)
    (x * 2).sum().backward()
    assert x.device.type == "cpu" and bool((x.grad == 2).all())


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"until": 0}, OptionError),
        ({"until": "soon"}, OptionError),
        ({"ranks": 0}, OptionError),
        ({"ranks": 2, "rank": 2}, OptionError),
    ],
)
def test_options_that_make_no_sense(run: Any, options: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        run("pass\n", **options)


def test_no_such_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text("")
    with pytest.raises(TargetError) as caught:
        analyzer.run(tmp_path / "trian.py")
    assert caught.value.hint == "did you mean 'train.py'?"
    assert main(["run", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err


def test_the_command_passes_on_arguments_and_prints_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys, torch\nprint(sys.argv[1:])\nx = torch.zeros(1 << 20, device='cuda')\n")
    assert main(["run", "--device", "h200", "-q", "--format", "json", str(script), "--lr", "1", "-q"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "['--lr', '1', '-q']\n"
    assert '"peak_allocated": 4194304' in shown.out


def test_debug_behind_a_script_is_the_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys\nprint(sys.argv[1:])\nassert not sys.argv\n")
    for ours in (["--debug", "run"], ["run", "--debug"], ["run"]):
        assert main([*ours, "-q", str(script), "--debug", "2"]) == 2
        said = capsys.readouterr().err
        assert said.startswith("['--debug', '2']\n") and "analyze: error: train.py:3: AssertionError" in said
    assert main(["run", "-q", str(script), "2"]) == 2 and "Traceback" not in capsys.readouterr().err
    assert (
        main(["run", "-q", "--debug", str(script), "2", "3"]) == 2 and "Traceback" in capsys.readouterr().err
    )


def test_phases_are_found(run: Any) -> None:
    text = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)
    def forward(self, x):
        return self.layer(x)
    @torch.no_grad()
    def generate(self, x):
        for _ in range(2):
            x = torch.cat((x, self(x[-1:])))
        return x
model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters())
(model(torch.ones(8, 64, device="cuda")) ** 2).mean().backward()
optimizer.step()
with torch.no_grad():
    kept = model(torch.ones(4096, 64, device="cuda")).exp()
made = model.generate(torch.ones(1, 64, device="cuda"))
"""
    origins = run(text).allocations.origins
    found = {(origin.operator.split("::")[-1].split(".")[0], origin.phase) for origin in origins}
    assert {("addmm", "forward"), ("pow", "loss"), ("addmm", "evaluation"), ("exp", "evaluation")} <= found
    assert {
        ("addmm", "generation"),
        ("cat", "generation"),
        ("mm", "backward"),
        ("zeros_like", "optimizer"),
    } <= found


def test_interrupted_it_says_what_was_found_so_far(run: Any) -> None:
    text = """
import os, signal, time, torch
kept = torch.zeros(1 << 20, device="cuda")
os.kill(os.getpid(), signal.SIGINT)
time.sleep(1)
more = torch.zeros(1 << 22, device="cuda")
"""
    estimate = run(text)
    assert estimate.peak_allocated == 4 * MIB and any("interrupted" in note for note in estimate.notes)


def test_progress_tells_step_pace_and_peak(run: Any) -> None:
    told: list[str] = []
    run(LOOP, progress=told.append)
    assert told.pop(0).startswith("protection: ")
    assert told.pop() == "computing the figures after 3 steps"
    assert [text.split(",")[0] for text in told] == ["step 1", "step 2", "step 3"]
    assert all(" a second, peak " in text and " MiB reserved" in text for text in told)


def test_cycles_are_collected_as_in_any_program(run: Any) -> None:
    """The command line goes without the collector, a program does not."""
    import gc

    gc.disable()
    try:
        run("import gc\nassert gc.isenabled()")
        assert not gc.isenabled()
    finally:
        gc.enable()
