"""Which code of a binary a device runs, and what its kernels need of a multiprocessor."""

from __future__ import annotations

import ctypes
import struct

import pytest

from analyzer.devices import load
from analyzer_emulation.device import described
from tests.extensions.emulation.cubins import CODE, PTX, Entry, Kernel, cubin, registered, stub_of
from tests.extensions.emulation.native import loaded

NO_KERNEL_IMAGE = 209


def asked(device: str, *entries: tuple[int, int]) -> tuple[int, int]:
    """The error and the binary version that `cudaFuncGetAttributes` gives for a kernel of such a binary."""
    library = loaded(described(load(device), (13, 0)))
    stub = stub_of(library, registered(library, *(Entry(*one) for one in entries)), "kernel")
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
    """Blocks at once of a kernel whose code says that it needs so much."""
    library = loaded(described(load(device), (13, 0)))
    code = {cc: cubin(Kernel("a_kernel", registers, shared), Kernel("another", 255)) for cc in (75, 80)}
    handle = registered(library, *(Entry(CODE, cc, text) for cc, text in code.items()))
    count = ctypes.c_int()
    ask = library.cudaOccupancyMaxActiveBlocksPerMultiprocessor
    assert ask(ctypes.byref(count), stub_of(library, handle, "a_kernel"), threads, ctypes.c_size_t(0)) == 0
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


@pytest.mark.parametrize(
    ("device", "entries", "blocks"),
    [
        (
            "h200",
            [(PTX, 90, 0), (CODE, 86, 128), (CODE, 89, 168), (CODE, 120, 64)],
            3,
        ),  # 168 registers: 12 warps of 4
        ("t4", [(PTX, 75, 0), (CODE, 120, 64), (CODE, 86, 128)], 4),  # nothing older: 128 registers
        ("h200", [(PTX, 90, 0)], 16),  # nothing at all: threads alone are known
    ],
)
def test_what_a_driver_compiles_needs_as_much_as_the_nearest_code(
    device: str, entries: list[tuple[int, int, int]], blocks: int
) -> None:
    """Of node-llama-cpp 3.22.1 on an H200: with the registers of its code for 8.9 in place of its PTX, the scratch of FlashAttention is what
    10 models took of one (tests/data/h200/llama_cpp.json)."""
    library = loaded(described(load(device), (13, 0)))
    made = [
        Entry(kind, capability, cubin(Kernel("a_kernel", registers)) if kind == CODE else bytes(64))
        for kind, capability, registers in entries
    ]
    count = ctypes.c_int()
    stub = stub_of(library, registered(library, *made), "a_kernel")
    ask = library.cudaOccupancyMaxActiveBlocksPerMultiprocessor
    assert ask(ctypes.byref(count), stub, 128, ctypes.c_size_t(0)) == 0
    assert count.value == blocks
