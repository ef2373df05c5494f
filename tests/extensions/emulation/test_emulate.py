"""`analyze emulate` from its doors: what it refuses, and, where a CUDA build of PyTorch is, a program run by it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import analyzer
from analyzer.devices import load
from analyzer.errors import MissingDependencyError, OptionError, RunError
from analyzer.graph import Communicator
from analyzer.options import Options
from analyzer.runtimes.pytorch import outside
from analyzer_emulation import device, emulate, launch, library
from tests.paths import ROOT

PROGRAM = ROOT / "tests/extensions/emulation/programs/train.py"
RANKS = ROOT / "tests/extensions/emulation/programs/ranks.py"
SPREAD = ROOT / "tests/extensions/emulation/programs/spread.py"


def test_a_python_without_a_cuda_build_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is not a Python"):
        launch.find_torch(tmp_path)
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho @\n")
    fake.chmod(0o755)
    with pytest.raises(MissingDependencyError, match="has no PyTorch"):
        launch.find_torch(fake)
    build = tmp_path / "torch"
    build.mkdir()
    fake.write_text(f"#!/bin/sh\necho @{build}\n")
    (build / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n")
    with pytest.raises(MissingDependencyError, match=r"torch 2.13.0\+cpu of .* is not a CUDA build"):
        launch.find_torch(fake)
    (build / "version.py").write_text("__version__ = '2.15.0+cu132'\ncuda: Optional[str] = '13.2'\n")
    assert launch.find_torch(fake) == launch.Torch(fake, "2.15.0+cu132", (13, 2))


def test_other_systems_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(MissingDependencyError, match="CUDA build for Linux on x86-64; this is darwin"):
        library.path()


def test_every_profile_can_be_described() -> None:
    from analyzer.devices import names

    for name in names():
        assert f"capacity={load(name).capacity_bytes};" in device.described(load(name), (13, 0))


@pytest.mark.parametrize(("visible", "found"), [(None, None), ("", "0,1"), ("3", "0,1")])
def test_the_emulated_devices_are_the_visible_ones(
    visible: str | None, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of this machine's GPUs, of which there may be none, would hide them."""
    monkeypatch.setattr(library, "path", lambda: Path("library.so"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    torch = launch.Torch(Path("python"), "2.11.0", (13, 0))
    own = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    with launch.environment(torch.cuda, load("h100"), own, count=2) as variables:
        assert variables.get("CUDA_VISIBLE_DEVICES") == found


def test_the_process_ends_with_this_one(tmp_path: Path) -> None:
    """What the command starts is gone when it is interrupted, children included."""
    pid = tmp_path / "pid"
    ours = f"from analyzer_emulation import launch; import os; launch.run(['sh', '-c', 'sleep 1000 & echo $! > {pid}; wait'], os.environ)"
    process = subprocess.Popen([sys.executable, "-c", ours], stderr=subprocess.DEVNULL)
    while not pid.exists() or not pid.read_text().strip():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(2)
    process.wait(30)
    child = int(pid.read_text())
    for _ in range(1000):
        status = Path(f"/proc/{child}/status")
        if not status.exists() or "State:\tZ" in status.read_text():
            return
        time.sleep(0.01)
    pytest.fail("the child still runs")


def test_processes_end_with_the_one_that_decides() -> None:
    started = time.monotonic()
    sleeps, ends = (
        launch.LaunchedProcess(["sh", "-c", command], os.environ)
        for command in ("sleep 1000", "sleep 0.2; exit 3")
    )
    assert launch.run_together([sleeps, ends, sleeps], decides=1) == [None, 3, None]
    told: list[tuple[int, int]] = []
    assert launch.run_together([sleeps, ends], stops=lambda *one: told.append(one) is None) == [None, 3]
    assert told == [(1, 3)] and time.monotonic() - started < 60


def test_what_is_held_is_the_same_without_a_history(python: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The program's values, and what its allocator does, do not depend on what is kept of them."""
    program, options = emulate.script(PROGRAM, ()), Options.of({"device": "h100"})
    whole = emulate.followed(program, options, python, {})
    told = capfd.readouterr().out
    found = emulate.held(program, options, python, {})
    assert whole.record["events"] and found.peak_reserved == whole.estimate.peak_reserved > 0
    assert capfd.readouterr().out == told


def test_ranks_that_cannot_be_are_refused() -> None:
    for wrong in ({"ranks": 17}, {"ranks": 0}, {"ranks": 2, "rank": 2}, {"rank": 1}):
        with pytest.raises(OptionError, match="rank"):
            analyzer.emulate(PROGRAM, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_meet_and_tell_each_other(python: Path, capfd: pytest.CaptureFixture[str], rank: int) -> None:
    """What the program finds of its own allocator is what is shown, and what NCCL and other libraries hold is what `analyze run` counts."""
    import json

    found = analyzer.emulate(RANKS, python=python, device="h200", ranks=2, rank=rank)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    said = next(line["figures"] for line in lines if line["rank"] == rank)
    assert found.incomplete is None
    assert (found.peak_allocated, found.peak_reserved) == tuple(said)
    peer = frozenset({1 - rank})
    use = Communicator(2, True, *((peer, frozenset()) if rank == 0 else (frozenset(), peer)))
    assert found.device_used == outside.device_used(
        found.peak_reserved, ["cublas", "cublas@autograd"], load("h200"), {"default": use}
    )
    assert any("NCCL's watchdog" in note for note in found.notes)
    assert any("what is sent to another rank" in note for note in found.notes)
    assert not any("not computed" in note or "stand-in" in note for note in found.notes)


@pytest.mark.parametrize(("how", "ranks"), [("fsdp1", 2), ("pipeline", 2), ("mesh", 4)])
def test_models_are_spread_by_pytorch_itself(
    python: Path, capfd: pytest.CaptureFixture[str], how: str, ranks: int
) -> None:
    import json

    rank = ranks - 1
    found = analyzer.emulate(SPREAD, [how], python=python, device="h200", ranks=ranks, rank=rank)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    said = next(line["figures"] for line in lines if line["rank"] == rank)
    assert found.incomplete is None
    assert (found.peak_allocated, found.peak_reserved) == tuple(said)


def test_a_rank_that_fails_ends_all(python: Path) -> None:
    with pytest.raises(RunError, match="rank 1 of 2 ended before its end: ValueError: this rank has no data"):
        analyzer.emulate(RANKS, ["--fails"], python=python, device="h200", ranks=2)


def test_ctrl_c_ends_all_ranks(python: Path) -> None:
    command = ["-m", "analyzer", "emulate", "--python", str(python), "--nproc-per-node", "2", str(RANKS)]
    ours = subprocess.Popen(
        [sys.executable, *command, "--waits"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert ours.stderr is not None
    for line in ours.stderr:
        if b"waits" in line:
            break
    children = Path(f"/proc/{ours.pid}/task/{ours.pid}/children").read_text().split()
    assert len(children) == 2
    ours.send_signal(2)
    ours.communicate(timeout=60)
    assert ours.returncode not in (0, None)
    assert not any(Path(f"/proc/{child}").exists() for child in children)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_what_ends_this_process_ends_those_it_started(number: signal.Signals) -> None:
    sleeps = "import os, time; os.write(2, b'sleeps\\n'); time.sleep(60)"
    ours = subprocess.Popen(
        [
            sys.executable, "-c",
            "import os, sys; from analyzer_emulation import launch; "
            f"launch.run_together([launch.LaunchedProcess([sys.executable, '-c', {sleeps!r}], os.environ)] * 2)",
        ],
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert ours.stderr is not None
    for _ in range(2):
        assert ours.stderr.readline().strip() == b"sleeps"
    children = Path(f"/proc/{ours.pid}/task/{ours.pid}/children").read_text().split()
    assert len(children) == 2
    ours.send_signal(number)
    ours.communicate(timeout=60)
    assert ours.returncode == (-number if number is signal.SIGINT else 128 + number)
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_a_program_does_not_outlive_who_started_it(python: Path, tmp_path: Path) -> None:
    """Where nothing can be done any more: SIGKILL."""
    program = tmp_path / "waits.py"
    program.write_text("import sys, time\nprint('waits', file=sys.stderr, flush=True)\ntime.sleep(60)\n")
    ours = subprocess.Popen(
        [sys.executable, "-m", "analyzer", "emulate", "--python", str(python), str(program)],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    assert ours.stderr is not None
    while b"waits" not in ours.stderr.readline():
        pass
    child = Path(f"/proc/{ours.pid}/task/{ours.pid}/children").read_text().split()[0]
    ours.kill()
    ours.wait()
    ended = time.monotonic() + 10
    while _runs(child) and time.monotonic() < ended:
        time.sleep(0.05)
    assert not _runs(child)


def _runs(process: str) -> bool:
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_several_gpus_of_one_process_take_what_the_trace_says(python: Path) -> None:
    script = ROOT / "tests/extensions/emulation/programs/two_gpus.py"
    both = [
        analyzer.run(script, device="h200", gpus=2, engine=engine, python=python, unprotected=True)
        for engine in ("trace", "emulate")
    ]
    traced, emulated = (
        [
            (row.number, row.peak_allocated, row.peak_reserved, row.device_used > row.peak_reserved)
            for row in one.devices
        ]
        for one in both
    )
    assert len(emulated) == 2 and traced == emulated
    assert both[1].engine == "emulate" and both[1].incomplete is None


def test_kernels_compiled_in_the_process_and_comparisons_do_not_end_a_program(python: Path) -> None:
    """NVRTC asks the driver for a table it need not have; TorchScript's tracer is not disturbed; equal is what is equal, or asserted."""
    program = ROOT / "tests/extensions/emulation/programs/holes.py"
    estimate = analyzer.emulate(program, python=python, device="h100")
    assert estimate.incomplete is None
    assert any(
        "holes.py:32: torch.equal compares what is not computed: equal" in note for note in estimate.notes
    )


def test_what_a_checkpoint_holds_is_there_when_it_is_read_to_the_gpu(python: Path) -> None:
    """A tensor that is made of a storage (`set_`), or turned in place, is what its memory holds."""
    program = ROOT / "tests/extensions/emulation/programs/states.py"
    estimate = analyzer.emulate(program, python=python, device="h100")
    assert estimate.incomplete is None
    assert not any("states.py" in note for note in estimate.notes)


def test_parameters_without_memory_of_their_own_do_not_end_a_program(python: Path) -> None:
    program = ROOT / "tests/extensions/emulation/programs/parameters.py"
    assert analyzer.emulate(program, python=python, device="h100").incomplete is None


def test_a_program_runs_by_pytorch_itself(python: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import json

    found = analyzer.emulate(PROGRAM, python=python, device="h200")
    said = json.loads(next(line for line in capfd.readouterr().err.splitlines() if line.startswith("{")))
    assert (found.peak_allocated, found.peak_reserved) == (said["allocated"], said["reserved"])
    assert found.incomplete is None and said["chosen"] and said["right"]
    assert said["child"] == f"{os.environ.get('LD_PRELOAD')} {os.environ.get('LD_LIBRARY_PATH')}"
