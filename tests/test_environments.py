"""Where people run it: as a user without a name or a home, beside another processor, on each Python there is, by pipx and uvx, in the
container's steps, in the action's steps.

What installs from the registry is the campaign's (`pytest -m campaign tests/test_environments.py`); the rest runs every time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import forked
from tests.fresh import PACKAGES, sources
from tests.paths import MODELS, PYTHONPATH, ROOT

PYTHONS = ("3.11", "3.12", "3.13")
LIGHT = ("cnn.onnx", "--batch", "4", "--device", "t4", "--format", "json", "-q")
# Of the container: what `python:3.13-slim` takes unpacked (Docker Hub, November 2026: 121 MB), and what all of it may take.
BASE_MB, MOST_MB = 125, 400


def ran(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in an environment that has nothing but PATH and what is given."""
    kept = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(
        command, cwd=folder, env=kept, capture_output=True, text=True, check=False, timeout=600
    )


def figures(told: str) -> tuple[int, ...]:
    found = json.loads(told)
    return tuple(found[name] for name in ("peak_allocated", "peak_reserved", "device_used", "graph_peak"))


@pytest.fixture(scope="module")
def here() -> tuple[int, ...]:
    """The figures of the light command in the environment of the tests."""
    command = [sys.executable, "-m", "analyzer", *LIGHT]
    made = ran(command, MODELS, PYTHONPATH=str(ROOT), PYTHONIOENCODING="utf-8")
    assert made.returncode == 0, made.stderr
    return figures(made.stdout)


# Each a way into another room: capture, an ONNX file, a plan, a program, a page.
COMMANDS = (
    "cnn.py --mode train --batch 8 --device 2GiB",
    "cnn.onnx --batch 8 --device t4 --format html",
    "run --device t4 program.py",
)


@pytest.mark.parametrize("words", COMMANDS)
def test_a_user_without_name_home_or_a_folder_to_write(tmp_path: Path, words: str) -> None:
    """Whose number no password file knows, in a folder nobody may write, with no variable but PATH: the same bytes."""
    if (
        not shutil.which("unshare")
        or ran(["unshare", "--user", "--map-user=12345", "true"], tmp_path).returncode
    ):
        pytest.skip("another user needs `unshare --user`, which this machine does not have or allow")
    for name in ("cnn.py", "cnn.onnx"):
        shutil.copy(MODELS / name, tmp_path / name)
    (tmp_path / "program.py").write_text("import torch\nprint(torch.ones(1000, device='cuda').sum().shape)\n")
    command = [sys.executable, "-m", "analyzer", *words.split(), "-q"]
    known = {"PYTHONPATH": PYTHONPATH, "PYTHONIOENCODING": "utf-8"}
    variables = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "HOME": str(tmp_path), **known}
    mine = forked.ran(*command[1:], folder=tmp_path, variables=variables)
    tmp_path.chmod(0o555)
    try:
        other = ran(["unshare", "--user", "--map-user=12345", *command], tmp_path, **known)
    finally:
        tmp_path.chmod(0o755)
    # What keeps files apart is another thing for another user, and said.
    said, expected = (
        re.sub(r"- the program wrote .*?(?=\n- |\Z)", "", ran.stdout, flags=re.DOTALL)
        for ran in (other, mine)
    )
    assert (other.returncode, said) == (0, expected) and expected, other.stderr


def test_another_processor_gives_the_same_bytes() -> None:
    """PyTorch, oneDNN, MKL, OpenBLAS and NumPy told that the processor has none of the newer instructions."""
    command = [sys.executable, "-m", "analyzer", *COMMANDS[0].split(), "-q"]
    known = {"PYTHONPATH": PYTHONPATH, "PYTHONIOENCODING": "utf-8"}
    plain = {
        "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "OPENBLAS_CORETYPE": "Nehalem", "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3",
    }  # fmt: skip
    here = forked.ran(
        *command[1:], folder=MODELS, variables={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", **known}
    )
    assert here.stdout == ran(command, MODELS, **known, **plain).stdout != ""


def test_the_actions_steps_as_they_stand(tmp_path: Path) -> None:
    """Both steps of action.yml, literally. Dependencies are those of the tests: pip is told to look for none and to download
    nothing, so that the step installs its own package (of this setting pip takes "0" for "do not isolate"). No compiler is found:
    the extensions are optional, and tests/test_packaging.py compiles them."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    install, analyze = action["runs"]["steps"]
    temporary, work, path = tmp_path / "runner", tmp_path / "work", tmp_path / "path"
    temporary.mkdir()
    work.mkdir()
    shutil.copy(MODELS / "cnn.onnx", work / "cnn.onnx")
    known = {
        "RUNNER_TEMP": str(temporary), "GITHUB_PATH": str(path), "HERE": str(sources(tmp_path / "source")), "HOME": str(tmp_path),
        "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "CC": "false",
        "PYTHONPATH": os.pathsep.join(PACKAGES), "REQUIREMENTS": f"-r {work / 'requirements.txt'}", "TARGET": "cnn.onnx",
    }  # fmt: skip
    (work / "own").mkdir()
    (work / "own/pyproject.toml").write_text('[project]\nname = "own-layers"\nversion = "1.0"\n')
    (work / "requirements.txt").write_text(f"{work / 'own'}\n")
    known["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = ran(["bash", "-e", "-c", install["run"]], work, **known)
    assert done.returncode == 0, done.stderr
    added = path.read_text().strip()
    assert Path(added, "analyze").exists() and list(temporary.rglob("own_layers-1.0.dist-info"))
    inputs = {name: entry.get("default", "") for name, entry in action["inputs"].items()}
    inputs |= {"target": "cnn.onnx", "options": "--batch 4 --device t4", "budget": "1GiB"}
    given = {
        name: inputs[word.removeprefix("${{ inputs.").removesuffix(" }}")]
        for name, word in analyze["env"].items()
    }
    summary = tmp_path / "summary"
    known |= given | {"GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_STEP_SUMMARY": str(summary)}
    done = ran(["bash", "-e", "-c", analyze["run"]], work, **{**known, "PATH": f"{added}:{known['PATH']}"})
    assert done.returncode == 0, done.stderr + done.stdout
    assert "within budget: " in summary.read_text() and (work / "gpu-memory/estimate.html").exists()


def interpreter(version: str) -> str:
    """A Python of that version on this machine, or ""."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    for found in Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(
        f"versions/{version}.*/bin/python"
    ):
        return str(found)
    return shutil.which(f"python{version}") or ""


def environment(folder: Path, python: str, *packages: str) -> Path:
    """The folder of the commands of a new environment with these packages, from the registry."""
    made = folder / "venv"
    subprocess.run([python, "-m", "venv", str(made)], check=True)
    install = [
        str(made / "bin/pip"),
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-c",
        str(ROOT / "constraints.txt"),
    ]
    done = ran([*install, *packages], folder, HOME=str(folder))
    assert done.returncode == 0, done.stderr
    return made / "bin"


@pytest.mark.campaign
@pytest.mark.parametrize("version", PYTHONS)
def test_each_python_says_the_same(tmp_path: Path, version: str, here: tuple[int, ...]) -> None:
    python = interpreter(version)
    if not python:
        pytest.skip(f"no Python {version} on this machine")
    commands = environment(tmp_path, python, str(sources(tmp_path / "source")))
    made = ran([str(commands / "analyze"), *LIGHT], MODELS)
    assert made.returncode == 0 and figures(made.stdout) == here, made.stderr
    fits = ran([str(commands / "analyze"), "fit", "cnn.onnx", "--device", "t4"], MODELS)
    assert fits.returncode == 0 and fits.stdout.startswith("largest batch ")
    refused = ran([str(commands / "analyze"), "cnn.py"], MODELS)
    assert refused.returncode == 2 and "torch is not installed" in refused.stderr


@pytest.mark.campaign
def test_pipx_and_uvx(tmp_path: Path, here: tuple[int, ...]) -> None:
    """As docs/index.md says it."""
    page = (ROOT / "docs/index.md").read_text()
    assert "`pipx install .`" in page and "`uvx --from . analyze TARGET`" in page
    source = sources(tmp_path / "source")
    commands = environment(tmp_path, sys.executable, "pipx", "uv")
    known = {
        "HOME": str(tmp_path), "PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin"),
        "UV_CACHE_DIR": str(tmp_path / "uv"), "UV_PYTHON_DOWNLOADS": "never", "UV_PYTHON": sys.executable,
        "UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1",  # the certificates this machine trusts, by the newer and the older name
    }  # fmt: skip
    done = ran([str(commands / "pipx"), "install", "."], source, **known)
    assert done.returncode == 0, done.stderr
    words = [str(MODELS / LIGHT[0]), *LIGHT[1:]]
    made = ran([str(tmp_path / "bin/analyze"), *words], tmp_path, **known)
    assert made.returncode == 0 and figures(made.stdout) == here, made.stderr
    made = ran([str(commands / "uvx"), "--from", ".", "analyze", *words], source, **known)
    assert made.returncode == 0 and figures(made.stdout) == here, made.stderr


@pytest.mark.campaign
def test_the_containers_steps(tmp_path: Path, here: tuple[int, ...]) -> None:
    """The Dockerfile's RUN steps in an environment of their own, with the paths they name in a folder; what they install and the
    base image together stay below the goal. Docker itself is not asked: it needs a daemon."""
    told = (ROOT / "Dockerfile").read_text()
    wheel, install = re.findall(r"^RUN (.*)$", told, re.MULTILINE)
    python = interpreter(re.findall(r"^FROM python:([\d.]+)-slim$", told, re.MULTILINE)[0])
    if not python:
        pytest.skip("the image's Python is not on this machine")
    source = sources(tmp_path / "source")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    shutil.copy(ROOT / "constraints.txt", wheels)
    subprocess.run([python, "-m", "venv", str(tmp_path / "venv")], check=True)
    commands = tmp_path / "venv/bin"
    for step in (wheel, install):
        line = step.replace("/wheels", str(wheels))
        done = ran(
            ["bash", "-e", "-c", line], source, PATH=f"{commands}:{os.environ['PATH']}", HOME=str(tmp_path)
        )
        assert done.returncode == 0, done.stderr
    made = ran([str(commands / "analyze"), *LIGHT], MODELS)
    assert made.returncode == 0 and figures(made.stdout) == here
    (packages,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    nbytes = sum(path.lstat().st_size for path in packages.rglob("*") if path.is_file())
    assert BASE_MB + nbytes / 1e6 < MOST_MB
    assert "torch" not in {path.name for path in packages.iterdir()}
