"""Functions that a binary wants of CUDA's libraries, told before it runs (`analyzer_emulation/symbols.py`)."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from analyzer.errors import TargetError
from analyzer_emulation import library, symbols
from tests.extensions.emulation.native import compiled


@pytest.fixture(autouse=True)
def own_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "path", compiled)


def made(folder: Path, name: str, source: str, *flags: str) -> Path:
    cc = shutil.which("cc") or shutil.which("gcc")
    assert cc is not None  # `compiled` would have skipped
    (folder / f"{name}.c").write_text(source)
    command = [cc, "-w", "-shared", "-fPIC", "-o", folder / name, folder / f"{name}.c", *flags]
    subprocess.run(command, check=True, capture_output=True)
    return folder / name


def test_what_has_no_answer_is_named_and_what_a_library_beside_defines_is_not(tmp_path: Path) -> None:
    made(tmp_path, "libcudart.so.13", "int cudaMalloc; int cudaNoSuchThing;", "-Wl,-soname,libcudart.so.13")
    made(tmp_path, "libother.so", "int cuOwn(void) { return cudaNoSuchThing(); }")
    wants = "int f(void) { return cudaMalloc() + cuOwn() + cublasNothing_v2() + strlen(0); }"
    where = ["-L", str(tmp_path), "-l:libother.so", "-l:libcudart.so.13", "-Wl,-rpath,$ORIGIN"]
    program = made(tmp_path, "program.so", wants, *where)
    binaries = symbols.closure([program])
    assert [one.path.name for one in binaries] == ["program.so", "libother.so"]
    assert symbols.nvidia_names(binaries) == ("libcudart.so.13",)
    assert symbols.missing(binaries) == ("cublasNothing_v2", "cudaNoSuchThing")


def test_functions_that_llama_cpp_wants_are_answered(tmp_path: Path) -> None:
    """Those of its CUDA library (node-llama-cpp 3.22.1) that PyTorch's builds do not import."""
    names = [
        "cudaGraphExecUpdate",
        "cudaSetDeviceFlags",
        "cublasGetStatusString",
        "cudaGraphInstantiate",
        "cuMemCreate",
    ]
    calls = " + ".join(f"{name}()" for name in names)
    assert (
        symbols.missing(symbols.closure([made(tmp_path, "it.so", f"int f(void) {{ return {calls}; }}")]))
        == ()
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + b"\xff" * 100, b"\x7fELF\x02\x01" + bytes(20)],
    ids=["empty", "script", "wild sections", "short"],
)
def test_what_is_no_program_is_said_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "program").write_bytes(content)
    with pytest.raises(TargetError, match="is no program or library for Linux on x86-64"):
        symbols.read(tmp_path / "program")


def entry(kind: int, capability: int, ptx: tuple[int, int] = (0, 0), nbytes: int = 8) -> bytes:
    major, minor = ptx
    head = (
        struct.pack("<HHIQ", kind, 0x101, 64, nbytes)
        + bytes(8)
        + struct.pack("<HHI", minor, major, capability)
    )
    return head.ljust(64, b"\0") + bytes(nbytes)


def fat(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


LLAMA = (entry(1, 75, (9, 1)), entry(2, 86), entry(2, 89), entry(1, 90, (9, 1)), entry(2, 120))


@pytest.mark.parametrize(
    ("capability", "found"),
    [
        ((8, 9), symbols.DeviceCode(True)),
        ((9, 0), symbols.DeviceCode(False, (9, 1))),
        ((10, 0), symbols.DeviceCode(False, (9, 1))),
        ((6, 1), None),
    ],
)
def test_code_that_a_driver_has_to_compile_is_known(
    tmp_path: Path, capability: tuple[int, int], found: symbols.DeviceCode | None
) -> None:
    (tmp_path / "lib.so").write_bytes(bytes(40) + fat(*LLAMA) + bytes(7) + fat(*LLAMA))
    assert symbols.device_code(tmp_path / "lib.so", capability) == found


def test_one_module_without_own_code_is_compiled_by_the_driver(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(fat(entry(2, 90)) + fat(entry(1, 80, (8, 3))))
    assert symbols.device_code(tmp_path / "lib.so", (9, 0)) == symbols.DeviceCode(False, (8, 3))
