"""The command line with hand-built estimates: streams, exit codes, formats, files; then bad usage and bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analyzer import pipeline
from analyzer.cli import _output, main
from analyzer.devices import parse_size
from analyzer.errors import CaptureError
from analyzer.options import Options
from analyzer.report import json as json_report
from analyzer.results.estimate import Certainty, Estimate
from analyzer.spec import TensorSpec
from tests.paths import MODELS
from tests.report.estimates import GOLDEN, MIB, TRAINING, UNKNOWN, hostile

WARNING = "analyze: warning: 2 kinds of operator unknown: figures are at least what it takes\n"
KNOWN = replace(TRAINING, certainty=Certainty(40 * MIB, 0, 0))


@pytest.fixture
def answers(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Estimate | BaseException], list[tuple[Any, Options]]]:
    """Makes the pipeline answer with an estimate, or raise; returns the list of calls it gets."""

    def answers(answer: Estimate | BaseException) -> list[tuple[Any, Options]]:
        calls: list[tuple[Any, Options]] = []

        def analysis(target: Any, options: Options, progress: Any) -> Any:
            assert callable(progress)
            calls.append((target, options))
            print("a model that prints")
            if isinstance(answer, BaseException):
                raise answer
            return SimpleNamespace(estimate=answer)

        # What binds the real function when it is imported must have been, or it keeps this one.
        import_module("analyzer.planning.what_if")
        monkeypatch.setattr(pipeline, "analysis", analysis)
        monkeypatch.setattr("analyzer.engines.choice.diagnosed", lambda analysis: analysis)
        return calls

    return answers


def test_text(run: Any, answers: Any) -> None:
    answers(TRAINING)
    ran = run("model.onnx")
    assert (ran.code, ran.out) == (0, GOLDEN)
    assert ran.err == "a model that prints\n"


def test_a_lower_bound_fits_nothing_for_certain(run: Any, answers: Any) -> None:
    """60 MiB at least: 1 where a limit was given, and so much is said without one."""
    for given, budget, code in (((), None, 0), ((), 1 << 30, 1), (("--device", "h200"), None, 1)):
        answers(replace(UNKNOWN, budget_bytes=budget))
        ran = run("model.onnx", *given)
        assert (ran.code, ran.err) == (code, "a model that prints\n" + WARNING), given
        assert "may not fit: at least 60.0 MiB" in ran.out


def test_quiet(run: Any, answers: Any) -> None:
    answers(TRAINING)
    ran = run("model.onnx", "-q")
    assert (ran.code, ran.out, ran.err) == (0, GOLDEN, "a model that prints\n")


def test_json_and_csv_are_alone_on_stdout(run: Any, answers: Any) -> None:
    answers(TRAINING)
    assert json_report.loads(run("model.onnx", "--format", "json").out) == TRAINING
    assert run("model.onnx", "--format", "csv").out.startswith("index,kind,name,")
    assert run("model.onnx", "--format", "html").out.startswith("<!DOCTYPE html>")


def test_a_snapshot_is_a_binary_file(run: Any, answers: Any, tmp_path: Path) -> None:
    answers(KNOWN)
    assert run("model.onnx", "--format", "snapshot", "-o", tmp_path / "s.pickle").code == 0
    assert (tmp_path / "s.pickle").read_bytes()[:2] == b"\x80\x04"


@pytest.mark.parametrize(
    ("arguments", "code", "first"),
    [
        ([], 0, "fits: "),
        (["--device", "l4"], 0, "fits: "),
        (["--budget", "60MiB"], 0, "fits: "),
        (["--budget", "59MiB"], 1, "over budget: needs 60.0 MiB of 59.0 MiB"),
    ],
)
def test_exit_codes(run: Any, answers: Any, arguments: list[str], code: int, first: str) -> None:
    budget = parse_size(arguments[1]) if "--budget" in arguments else None
    asked = answers(replace(KNOWN, budget_bytes=budget))
    ran = run("model.onnx", *arguments)
    assert ran.code == code and ran.out.startswith(first)
    assert asked[0][1].budget_bytes == budget


@pytest.mark.parametrize(("arguments", "code"), [([], 0), (["--device", "l4"], 1), (["--budget", "1GiB"], 0)])
def test_only_a_device_the_user_named_is_a_limit(
    run: Any, answers: Any, arguments: list[str], code: int
) -> None:
    answers(replace(KNOWN, capacity_bytes=50 * MIB))
    ran = run("model.onnx", *arguments)
    assert ran.code == code and ran.out.startswith("does not fit: needs 60.0 MiB of 50.0 MiB")


def test_every_option_reaches_the_analysis(run: Any, answers: Any) -> None:
    calls = answers(KNOWN)
    ran = run(
        "--batch", "64", "net.py:Net", "--mode", "train", "--input", "x=3x8:fp16", "--input", "labels=:int64", "--loss", "mse",
        "--optimizer", "adam", "--dtype", "bf16", "--amp", "fp16", "--channels-last", "--grad-accumulation", "2", "--checkpoint",
        "layer*", "--device", "24GiB", "--runtime", "pytorch", "--runtime-option", "cublas_workspace=:0:0", "--strict",
    )  # fmt: skip
    assert ran.code == 0 and ran.err == "a model that prints\n"
    assert calls == [
        (
            "net.py:Net",
            Options(
                batch=64,
                mode="train",
                inputs={"x": TensorSpec((64, 3, 8), "float16"), "labels": TensorSpec((64,), "int64")},
                loss="mse",
                optimizer="adam",
                dtype="bfloat16",
                amp="fp16",
                channels_last=True,
                grad_accumulation=2,
                checkpoint="layer*",
                device="24GiB",
                runtime="pytorch",
                runtime_options={"cublas_workspace": ":0:0"},
                strict=True,
            ),
        )
    ]


def test_an_onnx_input_is_described_as_written(run: Any, answers: Any) -> None:
    calls = answers(KNOWN)
    run("m.onnx", "--input", "input:0=8x16", "--batch", 10**12)
    assert calls[0][1].inputs == {"input:0": TensorSpec((8, 16), "")}
    assert calls[0][1].batch == 10**12


def test_options_without_effect_are_named(run: Any, answers: Any) -> None:
    answers(KNOWN)
    assert "--optimizer means nothing without --mode train" in run("m.onnx", "--optimizer", "adam").err
    fitted = run("fit", MODELS / "linear.py", "--optimizer", "adam", "--device", "2GiB")
    assert fitted.err.count("--optimizer means nothing without --mode train") == 1


def test_hostile_names_reach_neither_stream(run: Any, answers: Any) -> None:
    answers(hostile())
    ran = run("m.onnx")
    answers(CaptureError("\x1b[31mboom\u202e in \x07layer", "look\x1b[2J here\nand there"))
    failed = run("m.onnx")
    assert (
        failed.err.endswith(
            "analyze: error: boom in layer\n  hint: look here and there; see: analyze --help\n"
        )
        and failed.code == 2
    )
    for stream in (ran.out, ran.err, failed.err):
        assert "\x1b" not in stream and "\x07" not in stream and "\u202e" not in stream


def test_output_file_is_replaced_whole(run: Any, answers: Any, tmp_path: Path) -> None:
    answers(KNOWN)
    path = tmp_path / "estimate.json"
    path.write_text("old")
    path.chmod(0o640)
    ran = run("m.onnx", "--format", "json", "-o", path)
    assert (ran.code, ran.out) == (0, "")
    assert json_report.loads(path.read_text()) == KNOWN
    assert path.stat().st_mode & 0o777 == 0o640 and list(tmp_path.iterdir()) == [path]


def test_a_failing_write_leaves_what_was_there(
    run: Any, answers: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    answers(KNOWN)
    path = tmp_path / "estimate.txt"
    path.write_text("old")

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_output.os, "fdopen", fail)
    ran = run("m.onnx", "-o", path)
    assert ran.code == 2 and "No space left on device" in ran.err
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_an_ascii_terminal_gets_ascii(answers: Any, tmp_path: Path, monkeypatch: Any) -> None:
    answers(KNOWN)
    with (tmp_path / "out").open("w", encoding="ascii") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["m.onnx"]) == 0
    shown = (tmp_path / "out").read_text(encoding="ascii")
    assert "####" in shown and "-----" in shown


def test_an_unexpected_exception_is_one_line(run: Any, answers: Any) -> None:
    answers(ZeroDivisionError("division by zero"))
    ran = run("m.onnx")
    assert ran.code == 2 and ran.out == "" and "Traceback" not in ran.err
    assert (
        "analyze: error: internal error, ZeroDivisionError: division by zero\n  hint: please report it"
        in ran.err
    )
    assert "Traceback (most recent call last)" in run("m.onnx", "--debug").err


def test_a_model_that_exits_is_an_error(run: Any, answers: Any) -> None:
    answers(SystemExit(1))
    ran = run("net.py")
    assert ran.code == 2 and "net.py ended the program (exit code 1)" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a TARGET"),
        (["m.onnx", "--no-such-option"], "No such option"),
        (["m.onnx", "--batch", "many"], "'many' is not a valid integer"),
        (["m.onnx", "--mode", "test"], "'test' is not one of"),
        (["m.onnx", "--amp", "int8"], "'int8' is not one of"),
        (["m.onnx", "--format", "yaml"], "'yaml' is not one of"),
        (["m.onnx", "second.onnx"], "unexpected extra argument"),
        (["--batch", "3"], "Missing argument 'TARGET'"),
        (["m.onnx", "--input", "3x4"], "is no input"),
        (["m.onnx", "--input", "x="], "is no input"),
        (["m.onnx", "--input", "x=3xx4"], "is no input"),
        (["m.onnx", "--input", "x=-3"], "is no input"),
        (["m.onnx", "--input", "x=3:floaty"], "unknown type 'floaty'"),
        (["m.onnx", "--input", "x=3", "--input", "x=4"], "given twice"),
        (["m.onnx", "--runtime-option", "fast"], "is no setting"),
        (["m.onnx", "--budget", "lots"], "'lots' is no size"),
        (["m.onnx", "--top", "-1"], "is not in the range"),
        (["m.onnx", "-o", "/no/such/folder/file"], "there is no folder"),
        (["m.onnx", "-o", "/tmp"], "-o /tmp is a folder"),
        (
            ["m.onnx", "--dump-graph", "/no/such/folder/file"],
            "--dump-graph /no/such/folder/file: there is no folder",
        ),
        (["devices", "extra"], "unknown device 'extra'"),
    ],
)
def test_bad_usage(run: Any, answers: Any, arguments: list[str], message: str) -> None:
    calls = answers(KNOWN)
    ran = run(*arguments)
    lines = ran.err.splitlines()
    assert (ran.code, ran.out, calls) == (2, "", [])
    assert len(lines) == 2 and lines[0].startswith("analyze: error: ") and lines[1].startswith("  hint: ")
    assert message in lines[0]


def test_help_and_version(run: Any) -> None:
    shown = run("--help-all")
    assert shown.code == 0 and shown.err == ""
    for word in ("TARGET [OPTIONS]", "--grad-accumulation", "--budget", "devices", "Exit code 0"):
        assert word in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    assert run("--version").out.startswith("analyze 0.")


def test_every_command_file_is_a_command(run: Any) -> None:
    from analyzer.cli import Commands, group

    assert isinstance(group, Commands)
    import click

    for name in group.list_commands(click.Context(group)):
        shown = run(name, "--help")
        assert shown.code == 0 and "Usage: analyze" in shown.out


def test_devices(run: Any) -> None:
    shown = run("devices")
    table, legend = shown.out.split("\n\n")
    rows = {line.split()[0]: line for line in table.splitlines()[1:]}
    assert shown.code == 0 and rows["h200"].split()[1:3] == ["143,155.9", "143,771.0"]
    assert rows["h200"].endswith("measured")
    assert (
        rows["rtx4090"].endswith("5 of 15 assumed")
        and "but for those assumed" in legend
        and max(map(len, rows.values())) <= 80
    )
    listed = json.loads(run("devices", "--format", "json").out)
    assert {entry["name"] for entry in listed["devices"]} == set(rows)


def test_a_device_says_what_its_figures_rest_on(run: Any) -> None:
    shown = run("devices", "NVIDIA GeForce RTX 4090").out
    assert shown.startswith(
        "rtx4090, NVIDIA GeForce RTX 4090\n\ncapacity_bytes: 24,081.0 MiB\n    published: total_memory"
    )
    assert "capacity_range_bytes: 24,045.0 to 24,217.0 MiB\n" in shown
    assert "listed_bytes: 24,564.0 MiB\n    specified: total memory as nvidia-smi" in shown
    assert "sm_count: 128\n    specified: NVIDIA Ada" in shown and "\n    published: processes on" in shown
    assert max(map(len, shown.splitlines())) <= 80
    only = json.loads(run("devices", "4090", "--format", "json").out)["devices"]
    assert [entry["name"] for entry in only] == ["rtx4090"]


def test_interrupting_is_quiet(run: Any, monkeypatch: Any) -> None:
    from analyzer.cli import group

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(group, "main", interrupt)
    ran = run("m.onnx")
    assert (ran.code, ran.out, ran.err) == (130, "", "analyze: interrupted\n")


def test_a_reader_that_leaves_causes_no_traceback() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "analyzer.cli", "devices"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141
    process.stderr.close()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("nope.onnx 2>&-", 2, ""),
        ("nope.onnx 2>/dev/full", 2, ""),
        ("devices >&-", 0, ""),
        ("devices 2>&-", 0, ""),
        ("devices >/dev/full", 2, "analyze: error: the result cannot be written: no space left on device"),
    ],
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_stream_that_takes_nothing(arguments: str, code: int, said: str) -> None:
    ran = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m analyzer.cli {arguments}'],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr.splitlines()[:1]) == (code, [said] if said else [])


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="needs /dev/stdout")
def test_a_pipe_is_written_through() -> None:
    """/dev/stdout is a link to no path when it is a pipe."""
    read, write = os.pipe()
    _output.replace_file(Path(f"/dev/fd/{write}"), b"whole")
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        assert stream.read() == b"whole"


def test_the_spinner_appears_on_a_terminal_only(monkeypatch: Any, capsys: Any) -> None:
    import time

    monkeypatch.setattr(_output, "_PATIENCE_SECONDS", 0.0)
    with _output.working("m.onnx") as tell:
        tell("forward")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with _output.working("m\x1b[31m.onnx") as tell:
        tell("forward")
        time.sleep(0.3)
        tell("backward")
        time.sleep(0.3)
    shown = capsys.readouterr()
    assert shown.out == "" and "analysing m.onnx: forward" in shown.err and "backward" in shown.err
    assert "\x1b[31m" not in shown.err
