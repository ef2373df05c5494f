"""Where a cuDNN is found, and which one is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzer.libraries.cudnn.finding import Library, library_for, within_reach


def wheels(packages: Path, version: str) -> Path:
    """A folder of packages with the wheels of cuDNN and cuBLAS."""
    for name in ("nvidia/cudnn/lib/libcudnn.so.9", "nvidia/cu13/lib/libcublasLt.so.13"):
        (packages / name).parent.mkdir(parents=True)
        (packages / name).write_text("")
    (packages / f"nvidia_cudnn_cu13-{version}.dist-info").mkdir()
    return packages / "nvidia/cudnn/lib/libcudnn.so.9"


def environment(folder: Path, version: str) -> tuple[str, Path]:
    packages = folder / "lib/python3.12/site-packages"
    packages.mkdir(parents=True)
    return str(folder / "bin/python"), wheels(packages, version)


def test_the_environment_that_is_named_has_its_wheels(tmp_path: Path) -> None:
    python, path = environment(tmp_path, "9.19.0.56")
    found = within_reach("", python)[0]
    cublaslt = path.parents[2] / "cu13/lib/libcublasLt.so.13"
    assert found == Library(str(path), str(cublaslt), (9, 19))


def test_an_environment_reaches_what_its_pth_files_link_as_python_does(tmp_path: Path) -> None:
    packages = tmp_path / "env/lib/python3.12/site-packages"
    packages.mkdir(parents=True)
    other, relative = wheels(tmp_path / "other", "9.19.0.56"), wheels(packages / "beside", "9.10.2.21")
    (packages / "b.pth").write_text(f"# a comment\nimport sys\n\n{tmp_path / 'other'}  \n/not/here\n")
    (packages / "a.pth").write_text("beside\n")
    (packages / ".hidden.pth").write_text(f"{wheels(tmp_path / 'hidden', '9.1.0').parents[3]}\n")
    found = within_reach("", str(tmp_path / "env/bin/python"))
    assert [(library.path, library.release) for library in found[:2]] == [
        (str(relative), (9, 10)),
        (str(other), (9, 19)),
    ]
    assert not any("hidden" in library.path for library in found)


def test_a_library_can_be_named_and_nobody_too(tmp_path: Path) -> None:
    path = tmp_path / "libcudnn.so.9"
    path.write_text("")
    assert [found.path for found in within_reach(str(path), "")] == [str(path)]
    assert within_reach("none", "") == () == within_reach(str(tmp_path / "other"), "")


def test_the_release_of_the_torch_that_is_asked_about_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, path = environment(tmp_path / "a", "9.10.2.21")
    other = wheels(tmp_path / "b", "9.19.0.56")
    monkeypatch.setattr("sys.path", [str(tmp_path / "b")])
    monkeypatch.setenv("ANALYZER_CUDNN", "")
    monkeypatch.setenv("ANALYZER_PYTHON", python)
    within_reach.cache_clear()
    named, beside = environment(tmp_path / "c", "9.19.0.56")
    found = library_for((2, 11), named)  # of the environment that is emulated, before all others
    assert found is not None and found.path == str(beside)
    for torch, wanted in (((2, 8), path), ((2, 10), path), ((2, 11), other), ((2, 15), other)):
        found = library_for(torch)
        assert found is not None and found.path == str(wanted), torch
    within_reach.cache_clear()
