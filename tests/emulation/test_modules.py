"""Which code of a binary a device runs, and what its kernels need of a multiprocessor."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import pytest

from analyzer.devices import load
from analyzer.emulation.device import described
from analyzer.emulation.kernels import Kernels
from analyzer.emulation.questions import QuestionServer, Unanswered
from tests.emulation.native import loaded

CODE, PTX = 2, 1
NO_KERNEL_IMAGE = 209
_kept: list[object] = []


def fat_binary(*entries: tuple[int, int]) -> ctypes.c_void_p:
    """A fat binary with (kind, compute capability) entries, each of 64 bytes of nothing."""
    body = b"".join(
        struct.pack("<HHIQIIII", kind, 0, 40, 64, 0, 0, 0, cc) + bytes(8 + 64) for kind, cc in entries
    )
    data = ctypes.create_string_buffer(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body)
    wrapper = ctypes.create_string_buffer(struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(data), 0))
    _kept.extend((data, wrapper))
    return ctypes.cast(wrapper, ctypes.c_void_p)


def registered(library: ctypes.CDLL, *entries: tuple[int, int]) -> ctypes.c_void_p:
    """The handle of such a binary."""
    register = library["__cudaRegisterFatBinary"]
    register.restype = ctypes.c_void_p
    return ctypes.c_void_p(register(fat_binary(*entries)))


def asked(device: str, *entries: tuple[int, int]) -> tuple[int, int]:
    """The error and the binary version that `cudaFuncGetAttributes` gives for a kernel of such a binary."""
    library = loaded(described(load(device), (13, 0)))
    handle = registered(library, *entries)
    stub = ctypes.create_string_buffer(1)
    _kept.append(stub)
    library["__cudaRegisterFunction"](handle, stub, None, b"kernel")
    found = ctypes.create_string_buffer(256)
    code = library.cudaFuncGetAttributes(found, stub)
    return code, struct.unpack_from("<QQQiiii", found.raw)[6]


@pytest.mark.parametrize(
    ("device", "entries", "expected"),
    [
        ("l4", [(CODE, 75), (CODE, 80), (CODE, 86), (CODE, 90)], (0, 86)),
        ("a100-80gb", [(CODE, 75), (CODE, 80), (CODE, 86), (CODE, 90)], (0, 80)),
        ("rtx5090", [(CODE, 90), (PTX, 90)], (0, 90)),
        ("h200", [(PTX, 75), (CODE, 80)], (0, 75)),
        ("t4", [(CODE, 80), (PTX, 80)], (NO_KERNEL_IMAGE, 0)),
    ],
)
def test_code_of_the_same_major_version_else_older_ptx(
    device: str, entries: list[tuple[int, int]], expected: tuple[int, int]
) -> None:
    assert asked(device, *entries) == expected


def occupancy(device: str, threads: int, registers: int, shared: int) -> int:
    """Blocks at once of a kernel that the analyzer says to need so much."""
    library = loaded(described(load(device), (13, 0)))
    handle = registered(library, (CODE, 80), (CODE, 90), (CODE, 75))
    stub = ctypes.cast(
        library.cudaLaunchKernel, ctypes.c_void_p
    )  # an address in a file that the loader knows
    library["__cudaRegisterFunction"](handle, stub, None, b"a_kernel")
    count = ctypes.c_int()
    topics = {"kernel": lambda question: [registers, shared] if question["name"] == "a_kernel" else []}
    with QuestionServer(topics) as questions, pytest.MonkeyPatch.context() as patch:
        for name, value in questions.environment.items():
            patch.setenv(name, value)
        assert (
            library.cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                ctypes.byref(count), stub, threads, ctypes.c_size_t(0)
            )
            == 0
        )
    return count.value


# By NVIDIA's occupancy calculator: registers by 256 a warp of 65,536; shared memory of 164 KiB (A100) with 1 KiB a block of the system's.
@pytest.mark.parametrize(
    ("device", "threads", "registers", "shared", "blocks"),
    [
        ("a100-80gb", 256, 32, 0, 8),  # threads: 2,048
        ("a100-80gb", 512, 128, 45056, 1),  # registers: 16 warps of 4,096 are all there are
        ("a100-80gb", 128, 182, 6144, 2),  # 65,536 / 5,888 are 11 warps: in fours 8, two blocks of 4
        ("a100-80gb", 64, 16, 40000, 4),  # shared memory
        ("t4", 256, 32, 0, 4),
    ],
)
def test_how_many_blocks_run_at_once(
    device: str, threads: int, registers: int, shared: int, blocks: int
) -> None:
    assert occupancy(device, threads, registers, shared) == blocks


def test_registers_are_read_by_the_tool_that_triton_brings(tmp_path: Path) -> None:
    question = {"about": "kernel", "library": str(tmp_path / "lib.so"), "name": "_Zone", "capability": 86}
    with pytest.raises(Unanswered, match="no triton"):
        Kernels(tmp_path).resources(question)
    tool = tmp_path / "triton" / "backends" / "nvidia" / "bin" / "cuobjdump"
    tool.parent.mkdir(parents=True)
    tool.write_text(
        "#!/bin/sh\n[ \"$3\" = sm_86 ] && printf ' Function _Zone:\\n  REG:40 STACK:0 SHARED:1024 LOCAL:0\\n Function _Ztwo:\\n  REG:255 STACK:8 SHARED:0\\n'\n"
    )
    tool.chmod(0o755)
    assert Kernels(tmp_path).resources(question) == [40, 1024]
    assert Kernels(tmp_path).resources({**question, "name": "_Ztwo"}) == [255, 0]
    with pytest.raises(Unanswered, match=r"no kernel _Zthree for compute capability 8\.6"):
        Kernels(tmp_path).resources({**question, "name": "_Zthree"})
    with pytest.raises(Unanswered, match="are not known"):
        Kernels(tmp_path).resources({**question, "capability": 75})
