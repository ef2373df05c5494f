"""`python -m analyzer_verify.runs.worker JOB.json`: run one job in this process, write `result.json` next to
it."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from analyzer.errors import AnalyzerError
from analyzer_verify.runs.jobs import options_of


def perform(job: Mapping[str, Any]) -> dict[str, Any]:
    """Run a job and return its result (`jobs`); an error of any kind becomes a result."""
    try:
        return {"ok": _run(job)}
    except AnalyzerError as error:
        return {"error": error.message, "hint": error.hint}
    except Exception as error:
        text = " ".join(str(error).split())[:500]
        return {"error": f"{type(error).__name__}: {text}", "trace": traceback.format_exc()[-3000:]}


def _run(job: Mapping[str, Any]) -> dict[str, Any]:
    """Run a job by its kind and return its result. Raises ValueError for an unknown kind."""
    kind = job["kind"]
    if kind == "pytorch":
        from analyzer_verify.runs import program

        return program.run(job["target"], options_of(job))
    if kind == "graph":
        from analyzer_verify.runs import execute

        return execute.run(job["target"], options_of(job))
    if kind == "onnxruntime":
        from analyzer_verify.runs import session

        return session.run(job)
    if kind == "script":
        from analyzer_verify.runs import program

        return program.run_script(job["script"])
    if kind == "whole_program":
        from analyzer_verify.runs import whole_program

        return whole_program.run(job["script"], job["module"], job["arguments"])
    if kind == "probe":
        from analyzer_verify.runs import probes

        return probes.run(job["probe"])
    raise ValueError(f"unknown kind of job {kind!r}")


def main(path: Path) -> None:
    """Read the job, perform it, write the result."""
    job = json.loads(path.read_text())
    with redirect_stdout(sys.stderr):
        result = perform(job)
    path.with_name("result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
