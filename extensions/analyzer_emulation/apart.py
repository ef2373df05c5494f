"""A program or target emulated as a request that goes to another process: `python -m
analyzer_emulation.apart REQUEST.json ANSWER.json PARENT`, which ends with the process PARENT, who asks.

That process has an overlay of its own, which the kernel keeps where it may: what compilers write there can be
loaded as a library. One in a mount namespace sees what the program wrote there before (`analyzer_sandbox/`),
so it asks the process outside to start the other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import analyzer_sandbox as sandbox
from analyzer import child
from analyzer.engines import START
from analyzer.errors import AnalyzerError, RunError
from analyzer.ranks import Rank
from analyzer.results.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Request:
    """A request for another process, in plain values: a script with arguments or a target, the Python that
    runs it, and `jobs.describe`'s options.

    packages: folders it may import from after its own. keep, network, unprotected, gpus: as in
    `analyzer.run`. job: the fields of `Rank`.
    """

    words: str
    python: str
    options: Mapping[str, Any]
    arguments: tuple[str, ...] = ()
    is_target: bool = False
    until: str | int = "end"
    environment: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    job: Mapping[str, Any] = field(default_factory=dict)
    keep: str | None = None
    network: bool = True
    unprotected: bool = False
    gpus: int | None = None


def emulate(request: Request) -> Estimate:
    """Emulate in a run that sees no files of an earlier one. Raises AnalyzerError."""
    from analyzer.report.json import from_dict

    outside, request_text = sandbox.outside(), json.dumps(asdict(request))
    answer = json.loads(start(request_text) if outside is None else outside.ask(START, request_text))
    if "estimate" not in answer:
        raise RunError(answer["error"], answer["hint"])
    return from_dict(answer["estimate"])


def start(request: str) -> str:
    """Run a request in a process of its own; what it answers, as JSON. Called outside of every overlay."""
    with tempfile.TemporaryDirectory(prefix="analyze-request-") as folder:
        path, answer = Path(folder) / "request.json", Path(folder) / "answer.json"
        path.write_text(request, "utf-8")
        with subprocess.Popen(
            child.command("analyzer_emulation.apart", str(path), str(answer), str(os.getpid())),
            stdout=child.error_stream(),
        ) as process:
            _running.append(process)
            code = process.wait()
            _running.remove(process)
        if answer.exists():
            return answer.read_text("utf-8")
    error = f"the process that emulates ended with exit code {code}"
    return json.dumps({"error": error, "hint": "see its last output above"})


_running: list[subprocess.Popen[bytes]] = []


def end() -> None:
    """Have what `start` started end, and clear up."""
    for process in tuple(_running):
        process.terminate()


def _emulate_here(request: Request) -> Estimate:
    from analyzer_emulation import emulated
    from analyzer_verify.runs import jobs

    options = jobs.options_of({"options": request.options})
    if request.is_target:
        return emulated.of_target(request.words, options, request.python, request.environment).estimate
    return emulated.of_script(
        request.words,
        request.arguments,
        options,
        request.python,
        request.environment,
        Rank(**request.job),
        until=request.until,
        packages=tuple(map(Path, request.packages)),
        gpus=request.gpus,
    ).estimate


def _main(path: Path, answer: Path, parent: int) -> None:
    """Emulate the request in `path` and write the estimate, or the error, to `answer`. parent: the
    process that waits for it; nobody wants the answer where that has been killed."""
    from analyzer.report.json import to_dict
    from analyzer_sandbox.process import die_with_parent, hear_signals

    die_with_parent(parent)
    hear_signals()
    request = Request(**json.loads(path.read_text("utf-8")))

    def write(text: str) -> None:
        answer.write_text(text, "utf-8")

    def complain(message: str, hint: str) -> None:
        print(f"analyze: error: {message}\n  hint: {hint}", file=sys.stderr)

    sandbox.own_process = True
    try:
        sandbox.enter(write, complain, request.keep, request.network, unprotected=request.unprotected)
        answered: dict[str, Any] = {"estimate": to_dict(_emulate_here(request))}
    except AnalyzerError as error:
        answered = {"error": error.message, "hint": error.hint}
    except sandbox.UnprotectedError as error:
        answered = dict(zip(("error", "hint"), error.args, strict=True))
    outside, text = sandbox.outside(), json.dumps(answered)
    write(text) if outside is None else outside.ask("write", text)
    sandbox.finish(0)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
