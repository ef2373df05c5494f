"""The serving scripts of `subjects/onnx_serving` on a GPU: memory after every request, one JSON file.

    python serving_run.py OUT.json [SCRIPT ...]       all scripts, each in a process of its own (five times: RUNS=5)
    python serving_run.py --one SCRIPT OUT.json       one, in this process

Needs onnxruntime-gpu, onnx, numpy and nvidia-ml-py. The scripts run as they are: `InferenceSession` tells when a session is made and
a request is through. A row a process: "marks", one each, with the process's bytes by NVML ("process"; "device": of the whole device),
the arenas' statistics by ONNX Runtime's own interface where it has one, and the most that NVML showed since the mark before ("most",
polled every 5 ms).

`probe.so` beside the scripts (made of `probe.c` where there is a C compiler), or named by PROBE, tells where ONNX Runtime's interface lies.
`arenas.py`: beside the scripts, or that of extensions/analyzer_emulation/inside.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from pathlib import Path

HERE = Path(__file__).resolve().parents[1] / "subjects/onnx_serving"
NOT_SCRIPTS = ("graphs.py", "arenas.py")


def arenas_module():
    """The module that reads the arenas' statistics."""
    places = (HERE / "arenas.py", HERE.parents[2] / "extensions/analyzer_emulation/inside/arenas.py")
    spec = importlib.util.spec_from_file_location("arenas", next(path for path in places if path.exists()))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Nvml:
    """NVML's figures; the most since they were last taken."""

    def __init__(self):
        import pynvml

        self._nvml, self._most = pynvml, 0
        pynvml.nvmlInit()
        self._device = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.name = str(pynvml.nvmlDeviceGetName(self._device))
        threading.Thread(target=self._poll, daemon=True).start()

    def process(self):
        """Bytes of this process; 0 where NVML does not list it."""
        running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._device)
        return next((one.usedGpuMemory or 0 for one in running if one.pid == os.getpid()), 0)

    def _poll(self):
        while True:
            self._most = max(self._most, self.process())
            time.sleep(0.005)

    def figures(self):
        """The figures now."""
        now, most, self._most = self.process(), self._most, 0
        used = self._nvml.nvmlDeviceGetMemoryInfo(self._device).used
        return {"process": now, "device": used, "most": max(most, now)}


class Meter:
    """Marks of one script."""

    def __init__(self):
        self.nvml, self.marks, self._sessions = Nvml(), [], []
        self.marks.append({"what": "start", **self.nvml.figures()})
        self._arenas = None

    def watch(self, ort):
        """Have sessions tell when they are made and when a request is through."""
        for name in ("__init__", "run", "run_with_iobinding", "run_with_ort_values"):
            setattr(ort.InferenceSession, name, self._told(getattr(ort.InferenceSession, name), name))
        try:
            probe = os.environ.get("PROBE", str(HERE / "probe.so"))
            if not Path(probe).exists():
                subprocess.run(["cc", "-shared", "-fPIC", "-o", probe, HERE / "probe.c"], check=True)
            base = ctypes.CDLL(probe).serving_api_base
            base.restype = ctypes.c_void_p
            self._arenas = arenas_module().Arenas(probe, base)
        except Exception as error:
            self.marks.append({"what": "no statistics", "error": repr(error)})

    def _told(self, call, name):
        def told(session, *args, **keywords):
            error = None
            try:
                return call(session, *args, **keywords)
            except Exception as raised:
                error = str(raised)[:500]
                raise
            finally:
                if name == "__init__" and error is None:
                    self._sessions.append(weakref.ref(session))
                self.mark("session" if name == "__init__" else "request", error)

        return told

    def mark(self, what, error=None):
        """Note the figures."""
        statistics = {}
        for number, one in enumerate(self._sessions):
            if self._arenas is not None and (session := one()) is not None:
                statistics[number] = self._arenas.of(session)
            session = None
        self.marks.append({"what": what, "error": error, "arenas": statistics, **self.nvml.figures()})
        mib = {
            key: round(value / 2**20) for key, value in self.marks[-1].items() if key in ("process", "most")
        }
        used = [round(one["InUse"] / 2**20) for one in statistics.values() if one]
        print(
            f"[{len(self.marks)}] {what}: NVML {mib['process']} MiB (most {mib['most']}), arenas in use {used}",
            flush=True,
        )


def one(script, out):
    """Run a script in this process."""
    meter, row = Meter(), {"script": script}
    import onnxruntime as ort

    if hasattr(ort, "preload_dlls"):
        ort.preload_dlls()
    row |= {"onnxruntime": ort.__version__, "device": meter.nvml.name}
    meter.watch(ort)
    sys.argv = [script]
    try:
        runpy.run_path(str(HERE / script), run_name="__main__")
    except BaseException:
        row["error"] = traceback.format_exc()
        print(row["error"])
    meter.mark("end")
    Path(out).write_text(json.dumps({**row, "marks": meter.marks}), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)


def _environment():
    """The environment's variables with which scripts find what lies beside them."""
    paths = (str(HERE), os.environ.get("PYTHONPATH", ""))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def main(out, *scripts):
    """Run all of them."""
    chosen = scripts or [path.name for path in sorted(HERE.glob("*.py")) if path.name not in NOT_SCRIPTS]
    rows, begun = [], time.time()
    for run in range(int(os.environ.get("RUNS", "3"))):
        for script in chosen:
            if run and time.time() - begun > float(os.environ.get("SECONDS_LEFT", "480")):
                break
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "row.json"
                try:
                    done = subprocess.run(
                        [sys.executable, __file__, "--one", script, path],
                        timeout=150,
                        check=False,
                        capture_output=True,
                        text=True,
                    )
                    row = (
                        json.loads(path.read_text("utf-8"))
                        if path.exists()
                        else {"script": script, "error": f"exit code {done.returncode}"}
                    )
                    row["printed"] = (done.stdout + done.stderr)[-4000:]
                except subprocess.TimeoutExpired:
                    row = {"script": script, "error": "more than 150 s"}
            rows.append({"run": run, **row})
            Path(out).write_text(json.dumps(rows), encoding="utf-8")
            print(
                f"{time.time() - begun:5.0f} s, run {run}: {script}: {len(row.get('marks', ()))} marks {str(row.get('error', ''))[-300:]}",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        one(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
