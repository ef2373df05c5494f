"""Settings of eager PyTorch: the option before the environment, cuBLAS's notation, and MONAI's habit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analyzer.devices import load
from analyzer.errors import OptionError
from analyzer.options import Options
from analyzer.runtimes.pytorch import settings
from analyzer.runtimes.pytorch.runtime import PyTorch
from analyzer.runtimes.pytorch.settings import alloc_conf, notes_on_ties, with_workspaces

H200 = load("h200")
KIB, MIB = 2**10, 2**20


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def test_the_allocators_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The option, else the newer variable, else the older one."""
    assert alloc_conf({}) == ""
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "old")
    assert alloc_conf({}) == "old"
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "")
    assert alloc_conf({}) == "old"
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "new")
    assert alloc_conf({}) == "new"
    assert alloc_conf({"alloc_conf": "given"}) == "given"


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        (":4096:2:16:8", (4096 * 2 + 16 * 8) * KIB),
        (":16:8", 128 * KIB),
        ("4096:8", 32 * MIB),
        (":0:0", 0),
        (5000, 5000),
        (0, 0),
    ],
)
def test_cublas_workspace(text: str | int, nbytes: int) -> None:
    """PyTorch takes it through its allocator; the library's handle holds as much, at most what it does by default."""
    profile = PyTorch().profile(H200, Options(runtime_options={"cublas_workspace": text}))
    assert profile.cublas_workspace_bytes == nbytes
    assert profile.modules_bytes["cublas"] == min(nbytes, H200.modules_bytes["cublas"])
    assert {k: v for k, v in profile.modules_bytes.items() if k != "cublas"} == {
        k: v for k, v in H200.modules_bytes.items() if k != "cublas"
    }


def test_more_than_the_default_leaves_the_handle_as_it_is() -> None:
    held = H200.modules_bytes["cublas"]
    profile = with_workspaces(H200, {"cublas_workspace": held + 1})
    assert profile.cublas_workspace_bytes == held + 1
    assert profile.modules_bytes["cublas"] == held


def test_without_a_word_the_profile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_workspaces(H200, {}) is H200
    assert with_workspaces(H200, {"cublas_workspace": ""}) is H200
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    assert with_workspaces(H200, {}).cublas_workspace_bytes == 128 * KIB
    assert with_workspaces(H200, {"cublas_workspace": ":0:0"}).cublas_workspace_bytes == 0


@pytest.mark.parametrize("text", [":4096", ":4096:2:16", ":a:2", ":1:-2", "4096:2.5"])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="cublas_workspace is") as caught:
        with_workspaces(H200, {"cublas_workspace": text})
    assert ":KIB:COUNT" in caught.value.hint


def test_unknown_options_are_refused_with_the_nearest() -> None:
    with pytest.raises(OptionError, match="unknown runtime option 'alloc_cnf' for pytorch") as caught:
        with_workspaces(H200, {"alloc_conf": "", "alloc_cnf": ""})
    assert "did you mean 'alloc_conf'" in caught.value.hint
    assert "one of cublas_workspace, alloc_conf" in caught.value.hint


def model(module: str) -> Any:
    """A model one of whose parts comes from `module`."""
    part = type("Part", (), {"__module__": module})()
    return SimpleNamespace(modules=lambda: [SimpleNamespace(), part])


class Environment:
    """`/proc/self/environ`, as a process was started."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content

    def exists(self) -> bool:
        return self.content is not None

    def read_bytes(self) -> bytes:
        assert self.content is not None
        return self.content


@pytest.mark.parametrize(
    ("value", "module", "started_with", "counts"),
    [
        (":4096:8", "monai.networks.nets", b"A=1", True),
        (":4096:8", "monaix.nets", b"A=1\0B=2", False),
        (":4096:8", "mine", b"A=1\0CUBLAS_WORKSPACE_CONFIG=:4096:8\0B=2", True),
        (":4096:8", "mine", b"A=1\0XCUBLAS_WORKSPACE_CONFIG=:4096:8\0B=2", False),
        (":4096:8", "mine", None, True),
        (":4096:8", None, b"A=1", False),  # no model to ask: a whole program, or none at all
        (":4096:8", None, b"CUBLAS_WORKSPACE_CONFIG=:4096:8", True),
        (":16:8", "mine", b"A=1", True),
    ],
)
def test_what_monai_set_counts_for_its_own_models_alone(
    value: str,
    module: str | None,
    started_with: bytes | None,
    counts: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Importing MONAI sets `:4096:8`; for another model it counts only if the process was started with it."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", value)
    asked: list[str | Path] = []

    def path(name: str) -> Environment:
        asked.append(name)
        return Environment(started_with)

    monkeypatch.setattr(settings, "Path", path)
    found = with_workspaces(H200, {}, None if module is None else model(module))
    expected = {":4096:8": 32 * MIB, ":16:8": 128 * KIB}[value] if counts else H200.cublas_workspace_bytes
    assert found.cublas_workspace_bytes == expected
    assert (found is H200) != counts
    assert asked in ([], ["/proc/self/environ"])


@pytest.mark.parametrize(
    ("release", "libraries", "told"),
    [
        ((2, 8), ("cublas",), True), ((2, 10), ("cudnn",), True), ((2, 8), (), False),
        ((2, 11), ("cublas",), False), ((2, 12), ("cublas",), False), ((2, 15), ("cublas",), False),
    ],
)  # fmt: skip
def test_until_2_10_a_note_says_that_a_handle_may_cost_a_segment(
    release: tuple[int, int], libraries: tuple[str, ...], told: bool
) -> None:
    """2.11 is what was measured; later releases look at no address."""
    device = replace(H200, releases={**H200.releases, "torch": release})
    assert bool(notes_on_ties(device, libraries)) == told
