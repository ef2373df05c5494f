"""Another Python with another torch, beside an installation of this package: every door takes the torch that lies there.

Both are environments of their own, and the package is its wheel beside this Python's packages, as pip lays them: what reaches the
other Python from there would be another torch. The other torch is a stand-in that prints where it lies and what is on its path;
`test_a_real_build` takes a real one.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from analyzer import child
from tests.fresh import Fresh, fresh
from tests.paths import MODELS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the emulated runtime is for Linux")

STAND_IN = """
import json, sys
print("@" + json.dumps([__file__, sys.path]), file=sys.stderr, flush=True)
raise ImportError("a stand-in")
"""
PROGRAM = "import torch\ntorch.zeros(1, device='cuda')\n"
DOORS = {
    "run": "run --engine emulate train.py",
    "emulate": "emulate train.py",
    "emulate target": "emulate cnn.py:make_model --batch 2",
    "target": "cnn.py --engine emulate --batch 2",
    "serve": "serve llama --engine vllm",
    "advise": "advise cnn.py:make_model --batch 2 --compiled --device h200",
    "verify": "verify cnn.py:make_model --batch 2 --emulated",
    "verify run": "verify run --emulated train.py",
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    """This package, installed; the folder has a program, a model and a configuration."""
    made = fresh(tmp_path_factory)
    (made.folder / "train.py").write_text(PROGRAM)
    shutil.copy(MODELS / "cnn.py", made.folder)
    (made.folder / "llama").mkdir()
    shape = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "vocab_size": 64,
    }
    llama = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **shape}
    (made.folder / "llama/config.json").write_text(json.dumps(llama))
    return made


def stand_in(packages: Path, version: str = "2.11.0+cu130", cuda: str = "13.0") -> None:
    """Put a torch and a vLLM among packages."""
    for name in ("torch", "vllm"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").write_text(STAND_IN)
    (packages / "torch/version.py").write_text(f"__version__ = '{version}'\ncuda: Optional[str] = '{cuda}'\n")


def virtual(folder: Path, **release: str) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    stand_in(next((folder / "lib").glob("python*/site-packages")), **release)
    return folder / "bin/python"


def conda(folder: Path) -> Path:
    """An interpreter with its library beside it, as conda lays one: no pyvenv.cfg."""
    base = Path(sys.base_prefix)
    library = f"lib/python3.{sys.version_info.minor}"
    (folder / "bin").mkdir(parents=True)
    (folder / library).mkdir(parents=True)
    shutil.copy(Path(sys.executable).resolve(), folder / "bin/python")
    for entry in (base / library).iterdir():
        if entry.name != "site-packages":
            (folder / library / entry.name).symlink_to(entry)
    stand_in(folder / library / "site-packages")
    return folder / "bin/python"


def imported(own: Fresh, door: str, **variables: str) -> tuple[Path, list[str]]:
    """The file of the first package that the other Python imports for a command, and its path."""
    words = [str(own.bin / "analyze"), *door.split()]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    environment = {**kept, "ANALYZER_CACHE": os.devnull, "ANALYZER_CUDNN": "none", **variables}
    done = subprocess.run(
        words, cwd=own.folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    lines = [line[1:] for line in done.stderr.splitlines() if line.startswith("@")]
    assert lines, done.stdout + done.stderr
    file, path = json.loads(lines[0])
    return Path(file), path


def is_apart(path: list[str], *, of: Path) -> bool:
    """Whether no other torch than that below `of` can be imported."""
    return not any((Path(each) / "torch").exists() for each in path if of not in Path(each).parents)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield virtual(tmp_path_factory.mktemp("other") / "venv")


@pytest.mark.parametrize("door", DOORS)
def test_every_door_takes_the_torch_that_lies_there(door: str, own: Fresh, other: Path) -> None:
    file, path = imported(own, DOORS[door], ANALYZER_PYTHON=str(other))
    assert other.parents[1] in file.parents
    assert is_apart(path, of=other.parents[1])


def test_layouts(own: Fresh, other: Path, tmp_path: Path) -> None:
    """An older release, an environment behind a link, conda's layout, packages in a user's own folder."""
    older = virtual(tmp_path / "older", version="2.6.0+cu124", cuda="12.4")
    assert older.parents[1] in imported(own, DOORS["run"], ANALYZER_PYTHON=str(older))[0].parents
    (tmp_path / "link").symlink_to(other.parents[1])
    for python in (tmp_path / "link", tmp_path / "link/bin/python"):
        file, path = imported(own, f"run --engine emulate --python {python} train.py")
        assert other.parents[1] in file.resolve().parents and is_apart(path, of=tmp_path / "link")
    separate = conda(tmp_path / "conda")
    file, path = imported(own, DOORS["run"], ANALYZER_PYTHON=str(separate))
    assert tmp_path / "conda" in file.parents and is_apart(path, of=tmp_path / "conda")
    base = Path(sys.base_prefix) / "bin/python3"
    home = {"PYTHONUSERBASE": str(tmp_path / "home")}
    ask = "import site; print(site.getusersitepackages())"
    asked = subprocess.run([base, "-c", ask], env=home, capture_output=True, text=True, check=True)
    stand_in(Path(asked.stdout.strip()))
    file, path = imported(own, DOORS["run"], ANALYZER_PYTHON=str(base), **home)
    assert tmp_path / "home" in file.parents and is_apart(path, of=tmp_path / "home")


def test_auto_takes_the_build_for_what_is_compiled(own: Fresh, other: Path) -> None:
    """Traced first; what is compiled goes to the other torch."""
    (own.folder / "compiled.py").write_text(
        "import torch\ntorch.compile(torch.nn.Linear(2, 2).cuda())(torch.zeros(1, 2).cuda())\n"
    )
    file, _ = imported(own, "run compiled.py", ANALYZER_PYTHON=str(other))
    assert other.parents[1] in file.parents


@pytest.mark.campaign
@pytest.mark.parametrize("door", ["run", "emulate", "emulate target", "target", "verify", "verify run"])
def test_a_real_build(door: str, own: Fresh) -> None:
    """With the CUDA build that ANALYZER_CUDA_PYTHON names."""
    if not (python := os.environ.get("ANALYZER_CUDA_PYTHON")):
        pytest.skip("ANALYZER_CUDA_PYTHON names no environment with a CUDA build of torch")
    done = own.run(f"ANALYZER_PYTHON={python} analyze {DOORS[door]} --device rtx4090")
    assert done.returncode == 0, done.stderr
    assert "torch 2." in done.stdout and "emulated" in done.stdout


def test_a_child_prints_where_stderr_has_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirected stderr is an object of Python's alone: what is emulated there ended in an internal error."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert child.error_stream() == 2
    monkeypatch.setattr(sys, "stderr", None)
    assert child.error_stream() == 2
