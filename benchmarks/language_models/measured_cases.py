"""The cases of `tests/data/h200/configurations.json`, as scripts for a GPU: python benchmarks/language_models/measured_cases.py FOLDER

Writes for each case of `measured_cases.json` FOLDER/NAME.py, the script that `analyze config.json --write-script` writes, with the
folder of its configuration beside it, and FOLDER/jobs.json. Then, on the machine with the GPU and from the same folder as here:

    python benchmarks/programs/measure.py OUT --jobs FOLDER/jobs.json

and back here `--rows OUT/rows.json` joins the cases with what was measured, as the test reads them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from analyzer.options import Options
from analyzer.pipeline.config import script_of

HERE = Path(__file__).resolve().parent
CASES = HERE / "measured_cases.json"
MEASURED = HERE.parents[1] / "tests/data/h200/configurations.json"
_FIGURES = ("peak_allocated", "peak_reserved", "nvml_peak")


def shapes(name: str, cases: dict[str, Any]) -> dict[str, Any]:
    """A configuration of the cases' own, or a public model's."""
    found = cases["configs"].get(name)
    return found or json.loads((HERE / "configs" / name / "config.json").read_text())


def write(folder: Path) -> None:
    """The scripts and their jobs."""
    cases = json.loads(CASES.read_text())
    jobs = []
    for case in cases["rows"]:
        config = folder / "configs" / case["config"]
        config.mkdir(parents=True, exist_ok=True)
        (config / "config.json").write_text(json.dumps(shapes(case["config"], cases)))
        program = folder / f"{case['name']}.py"
        program.write_text(script_of(str(config), Options.of(case["options"])))
        jobs.append(
            {"name": case["name"], "program": str(Path.cwd() / program), "args": [], "environment": {}}
        )
    (folder / "jobs.json").write_text(json.dumps(jobs))


def joined(rows: Path) -> None:
    """The cases that were measured, with what they took."""
    cases = json.loads(CASES.read_text())
    took = {row["name"]: row for row in json.loads(rows.read_text())}
    measured = [
        {**case, **{name: took[case["name"]][name] for name in _FIGURES}}
        for case in cases["rows"]
        if not took.get(case["name"], {"error": True}).get("error")
    ]
    used = sorted({case["config"] for case in measured})
    said = {"configs": {name: shapes(name, cases) for name in used}, "rows": measured}
    MEASURED.write_text(json.dumps({**cases["measured"], **said}, indent=1) + "\n")


def main() -> None:
    """Write the scripts, or join what was measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--rows", type=Path)
    given = parser.parse_args()
    if given.rows:
        joined(given.rows)
    else:
        write(given.folder)


if __name__ == "__main__":
    main()
