"""The programs that run out of memory on a GPU, each under its limit: as it is it must find no memory, with each
change named it must run. Needs torch and a GPU, and nothing of ours: `subjects` and `programs` beside it.

    python measure.py RESULTS.json
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import os
import subprocess
import sys
import tempfile
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
AT_ONCE = 12


def child(script: str, limit: int, name: str) -> None:
    """Run a script in this process under a limit of the allocator's bytes (0: none); print what it took."""
    import runpy

    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    if limit:
        torch.cuda.set_per_process_memory_fraction((limit + 0.5) / total)
    result = {"ended": "ok", "line": 0}
    sys.argv = [script]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            runpy.run_path(script, run_name="__main__")
        except torch.OutOfMemoryError as error:
            frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == name]
            result = {"ended": "out of memory", "line": frames[-1].lineno if frames else 0}
        except Exception as error:
            result = {"ended": f"{type(error).__name__}: {error}"[:300], "line": 0}
    result["peak_allocated"] = torch.cuda.max_memory_allocated()
    result["peak_reserved"] = torch.cuda.max_memory_reserved()
    print("RESULT", json.dumps(result), flush=True)
    os._exit(0)


def run(name: str, text: str, limit: int, conf: str = "") -> dict[str, object]:
    """Run a program's text in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / f"{name}.py"
        script.write_text(text, "utf-8")
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        environment.pop("PYTORCH_ALLOC_CONF", None)
        if conf:
            environment["PYTORCH_ALLOC_CONF"] = conf
        command = [
            sys.executable,
            str(Path(__file__).resolve()),
            "--child",
            str(script),
            str(limit),
            script.name,
        ]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=environment, cwd=folder, timeout=240
        )
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), "")
    return json.loads(line[7:]) if line else {"ended": done.stderr[-300:]}


def main(out: str) -> None:
    """Measure every subject, and write the results."""
    import torch

    subjects = {path.stem: json.loads(path.read_text("utf-8")) for path in (HERE / "subjects").glob("*.json")}
    jobs: dict[tuple[str, str], tuple[str, int, str]] = {}
    for name, entry in subjects.items():
        text = (HERE / "programs" / f"{name}.py").read_text("utf-8")
        jobs[name, "as it is"] = text, entry["limit_bytes"], ""
        jobs[name, "with room"] = text, 0, ""
        for remedy in entry["remedies"]:
            conf = remedy["typed"].partition("=")[2] if remedy["kind"] == "environment" else ""
            if remedy["kind"] != "device":
                jobs[name, remedy["name"]] = remedy["text"] or text, entry["limit_bytes"], conf
        for row in (entry["fragmentation"] or {"settings": []})["settings"]:
            jobs[name, f"with room, {row['setting']}"] = text, 0, row["setting"]
    results: dict[str, dict[str, object]] = {}
    with contextlib.suppress(ImportError):
        import transformers

        results["transformers"] = {"version": transformers.__version__}
    document = {
        "gpu": torch.cuda.get_device_name(0),
        "total_bytes": torch.cuda.get_device_properties(0).total_memory,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "date": datetime.date.today().isoformat(),
        "results": results,
    }
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {key: pool.submit(run, key[0], *job) for key, job in jobs.items()}
        for (name, what), future in futures.items():
            try:
                results.setdefault(name, {})[what] = future.result()
            except Exception as error:
                results.setdefault(name, {})[what] = {"ended": f"{type(error).__name__}"}
            # After each, so that what was measured is there if the machine is taken away.
            Path(out).write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        main(sys.argv[1])
