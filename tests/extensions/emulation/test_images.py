"""What is read of kernels' binaries, and the local memory that their launches make the driver keep.

`tests/data/emulation/code`: `frames.ptx` compiled by ptxas 12.8 for 9.0, what `cuobjdump -res-usage` prints of it, and the same file
compressed by LZ4 1.10 and zstd 1.5.7 (level 19), as NVIDIA's compiler does; `text.*.zst`: `made_up()` compressed by zstd, in several blocks.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from analyzer.devices import load
from analyzer_emulation import launch
from analyzer_emulation.device import described
from tests.extensions.emulation.cubins import (
    CODE,
    LZ4,
    PTX,
    ZSTD,
    Entry,
    Kernel,
    cubin,
    fat_binary,
    registered,
    stub_of,
)
from tests.extensions.emulation.native import loaded
from tests.paths import ROOT

PYTHON = os.environ.get("ANALYZER_CUDA_PYTHON")
FOLDER = ROOT / "tests/data/emulation/code"
H100 = described(load("h100"), (13, 0))
THREADS = 132 * 2048
OUT_OF_MEMORY = 2
_USED = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)")


def outside(library: ctypes.CDLL) -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert library.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    return total.value - free.value


def function(library: ctypes.CDLL, code: bytes, name: str) -> ctypes.c_void_p:
    """The driver's handle of a kernel in a module."""
    module, found = ctypes.c_void_p(), ctypes.c_void_p()
    assert library.cuModuleLoadData(ctypes.byref(module), code) == 0
    assert library.cuModuleGetFunction(ctypes.byref(found), module, name.encode()) == 0
    return found


def launch_function(library: ctypes.CDLL, kernel: ctypes.c_void_p) -> int:
    code: int = library.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    return code


def attribute(library: ctypes.CDLL, which: int, kernel: ctypes.c_void_p) -> int:
    value = ctypes.c_int()
    assert library.cuFuncGetAttribute(ctypes.byref(value), which, kernel) == 0
    return value.value


def test_local_memory_grows_as_it_did_on_an_h100() -> None:
    """Kernels that take 16 bytes to 64 KiB a thread, one behind the other (`python -m benchmarks serving measure` of commit cf817472)."""
    found = json.loads((ROOT / "tests/data/h100/outside.json").read_text())["experiments"]
    steps = dict(next(row["steps"] for row in found if row["name"] == "locals"))
    library, at_first = loaded(H100), steps.pop("empty")
    assert launch_function(library, ctypes.c_void_p()) == 0
    before = outside(library)
    for step, nbytes in steps.items():
        local = int(step.split()[1])
        kernel = function(library, cubin(Kernel("frame", local=local)), "frame")
        assert launch_function(library, kernel) == 0
        assert outside(library) - before == nbytes - at_first, step
    assert launch_function(library, function(library, cubin(Kernel("frame", local=2048)), "frame")) == 0
    assert outside(library) - before == max(steps.values()) - at_first  # never given back


def test_where_there_is_no_room_for_it_the_launch_fails() -> None:
    library = loaded(H100)
    assert launch_function(library, ctypes.c_void_p()) == 0
    before = outside(library)
    kernel = function(library, cubin(Kernel("huge", local=512 * 1024)), "huge")
    assert launch_function(library, kernel) == OUT_OF_MEMORY
    assert outside(library) == before


def used() -> dict[str, tuple[int, int, int]]:
    """Registers, local and shared memory of each kernel, as NVIDIA's tool prints them."""
    rows = _USED.findall((FOLDER / "frames.usage.txt").read_text())
    return {name: (int(registers), int(stack), int(shared)) for name, registers, stack, shared in rows}


def test_what_a_compiled_file_says_is_what_the_tool_prints() -> None:
    library, code = loaded(H100), (FOLDER / "frames.cubin").read_bytes()
    assert len(used()) == 5
    for name, (registers, local, _) in used().items():
        kernel = function(library, code, name)
        assert (attribute(library, 4, kernel), attribute(library, 3, kernel)) == (registers, local), name


@pytest.mark.parametrize("how", ["cubin", "lz4", "zst"])
def test_code_of_a_fat_binary_may_be_compressed(how: str) -> None:
    flags = {"cubin": 0, "lz4": LZ4, "zst": ZSTD}[how]
    whole, code = (FOLDER / "frames.cubin").stat().st_size, (FOLDER / f"frames.{how}").read_bytes()
    other = Entry(CODE, 80, cubin(Kernel("frame_1888", local=32768)))
    entries = [Entry(PTX, 80), other, Entry(CODE, 90, code, flags, whole)]
    library = loaded(H100)
    stub = stub_of(library, registered(library, *entries), "frame_1888")
    assert launch_function(library, ctypes.c_void_p()) == 0
    before = outside(library)
    assert library.cudaLaunchKernelExC(ctypes.create_string_buffer(64), stub, None) == 0
    pages = -(-1888 * THREADS // 2**21) - 1024 * THREADS // 2**21  # of 2 MiB
    assert outside(library) - before == pages * 2**21
    kernel = function(library, fat_binary(entries), "frame_1888")  # a module of the driver's may be one, too
    assert attribute(library, 3, kernel) == 1888


def test_ptx_and_damaged_code_say_nothing() -> None:
    library, code = loaded(H100), (FOLDER / "frames.cubin").read_bytes()
    assert attribute(library, 4, function(library, b".version 8.0\n.target sm_90\n", "plain")) == 32
    for end in range(64, len(code), 97):
        entry = Entry(CODE, 90, code[:end])
        assert attribute(library, 3, function(library, fat_binary([entry]), "frame_1888")) in (0, 1888)
    packed = (FOLDER / "frames.zst").read_bytes()
    for place in range(0, len(packed), 7):
        damaged = packed[:place] + bytes([packed[place] ^ 0x55]) + packed[place + 1 :]
        entry = Entry(CODE, 90, damaged, ZSTD, len(code))
        function(library, fat_binary([entry]), "frame_1888")  # whatever it says, it ends


@functools.cache
def expanders() -> ctypes.CDLL:
    """`images.c` and `zstd.c` with their own functions to be seen."""
    folder = ROOT / "extensions/analyzer_emulation/native"
    made = Path(tempfile.mkdtemp()) / "expanders.so"
    sources = [folder / "images.c", folder / "zstd.c"]
    subprocess.run(["cc", "-O1", "-D_GNU_SOURCE", "-shared", "-fPIC", *sources, "-o", made], check=True)
    library = ctypes.CDLL(str(made))
    library.zstd_expand.restype = library.lz4_expand.restype = ctypes.c_uint64
    return library


def expanded(name: str, packed: bytes, room: int) -> bytes | None:
    into = ctypes.create_string_buffer(room + 1)
    done: int = expanders()[name](packed, ctypes.c_uint64(len(packed)), into, ctypes.c_uint64(room))
    return into.raw[:done] if done else None


def made_up() -> bytes:
    """Words of a language that is none, the common ones often; zeros; bytes by chance; what stood at the beginning."""
    state = 41

    def drawn(below: int) -> int:
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % below

    words = [bytes(97 + drawn(16) for _ in range(1 + drawn(9))) for _ in range(300)]
    said = b" ".join(words[drawn(1 + drawn(300))] for _ in range(40000 // 6))
    return said + bytes(200000) + bytes(drawn(256) for _ in range(1000)) + said[:50000]


@pytest.mark.parametrize("level", [3, 19])
def test_zstd_gives_back_what_was_compressed(level: int) -> None:
    packed, text = (FOLDER / f"text.{level}.zst").read_bytes(), made_up()
    assert expanded("zstd_expand", packed, len(text)) == text
    assert expanded("zstd_expand", packed, len(text) - 1) is None
    assert expanded("zstd_expand", packed[:-40], len(text)) is None


def test_lz4_gives_back_what_was_compressed() -> None:
    packed, code = (FOLDER / "frames.lz4").read_bytes(), (FOLDER / "frames.cubin").read_bytes()
    assert expanded("lz4_expand", packed, len(code)) == code
    assert expanded("lz4_expand", packed, len(code) - 1) is None
    # 20 literals, 30 bytes from one back, a last literal (lz4_Block_format.md).
    by_hand = bytes([0xFF, 20 - 15]) + b"abcdefghijklmnopqrst" + bytes([1, 0, 30 - 4 - 15, 0x10]) + b"!"
    assert expanded("lz4_expand", by_hand, 51) == b"abcdefghijklmnopqrst" + b"t" * 30 + b"!"


@pytest.mark.skipif(
    PYTHON is None, reason="ANALYZER_CUDA_PYTHON names no Python with a CUDA build of PyTorch"
)
@pytest.mark.parametrize("capability", [80, 90])
def test_every_kernel_of_pytorchs_linear_algebra_is_read_as_the_tool_reads_it(capability: int) -> None:
    torch = launch.find_torch(PYTHON)
    packages = next(torch.python.parent.parent.glob("lib/python3*/site-packages"))
    tool = packages / "triton/backends/nvidia/bin/cuobjdump"
    file = packages / "torch/lib/libtorch_cuda_linalg.so"
    command = [tool, "-res-usage", "-arch", f"sm_{capability}", file]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    data = file.read_bytes()
    library = loaded(described(load({80: "a100-80gb", 90: "h100"}[capability]), (13, 0)))
    modules = []
    for place in (
        found.start() for found in re.finditer(re.escape(b"\x50\xed\x55\xba\x01\x00\x10\x00"), data)
    ):
        module = ctypes.c_void_p()
        end = place + 16 + int.from_bytes(data[place + 8 : place + 16], "little")
        assert library.cuModuleLoadData(ctypes.byref(module), data[place:end]) == 0
        modules.append(module)
    rows = _USED.findall(printed)
    assert len(rows) > 50
    for name, registers, stack, _ in rows:
        seen = set()
        for module in modules:
            kernel = ctypes.c_void_p()
            assert library.cuModuleGetFunction(ctypes.byref(kernel), module, name.encode()) == 0
            seen.add((attribute(library, 4, kernel), attribute(library, 3, kernel)))
        assert (int(registers), int(stack)) in seen, name
