"""Memory that several processes reach: one process takes it, the others have an address (native/shared.c)."""

from __future__ import annotations

import ctypes
import os

from analyzer.devices import load
from analyzer_emulation.device import described
from tests.extensions.emulation.native import loaded, malloc

MIB = 2**20
TWO = "count=2;capacity=4294967296;context=209715200;known=4096;multicast=1;name=Two"
FILE_DESCRIPTOR = 1


class IpcHandle(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * 64),)


def where(device: int) -> ctypes.Array[ctypes.c_int]:
    return (ctypes.c_int * 8)(1, 1, 1, device)  # pinned, as file descriptors, on that device


def mapped(library: ctypes.CDLL, handle: ctypes.c_uint64, nbytes: int) -> int:
    address = ctypes.c_uint64()
    size = ctypes.c_size_t(nbytes)
    assert (
        library.cuMemAddressReserve(
            ctypes.byref(address), size, ctypes.c_size_t(512 * MIB), ctypes.c_uint64(0), 0
        )
        == 0
    )
    assert library.cuMemMap(address, size, ctypes.c_size_t(0), handle, 0) == 0
    return address.value


def device_of(library: ctypes.CDLL, address: int) -> int:
    found = ctypes.c_int(-1)
    assert library.cuPointerGetAttribute(ctypes.byref(found), 9, ctypes.c_uint64(address)) == 0
    return found.value


def test_what_another_process_exported_takes_nothing_here() -> None:
    one, other = loaded(TWO), loaded(TWO)
    assert one.cudaSetDevice(1) == 0
    made, opened, file = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_int()
    size = ctypes.c_size_t(512 * MIB)
    assert one.cuMemCreate(ctypes.byref(made), size, where(1), ctypes.c_uint64(0)) == 0
    assert one.emulated_page_bytes(1) == 512 * MIB and one.emulated_page_bytes(0) == 0
    assert (
        one.cuMemExportToShareableHandle(ctypes.byref(file), made, FILE_DESCRIPTOR, ctypes.c_uint64(0)) == 0
    )
    assert (
        other.cuMemImportFromShareableHandle(
            ctypes.byref(opened), ctypes.c_void_p(file.value), FILE_DESCRIPTOR
        )
        == 0
    )
    os.close(file.value)
    address = mapped(other, opened, 512 * MIB)
    assert address % (512 * MIB) == 0
    assert device_of(other, address + MIB) == 1  # where it was taken
    assert other.emulated_page_bytes(0) == other.emulated_page_bytes(1) == 0
    assert device_of(one, mapped(one, made, 512 * MIB)) == 1
    own = (ctypes.c_int * 8)()
    assert other.cuMemGetAllocationPropertiesFromHandle(own, opened) == 0 and list(own[:4]) == [1, 1, 1, 1]
    again = ctypes.c_uint64()
    assert other.cuMemRetainAllocationHandle(ctypes.byref(again), ctypes.c_void_p(address)) == 0
    assert again.value == opened.value
    assert (
        other.cuMemImportFromShareableHandle(ctypes.byref(opened), ctypes.c_void_p(0), 8) == 801
    )  # a fabric's


def test_multicast_objects_hold_nothing_and_round_up_what_is_bound() -> None:
    library, handle = loaded(TWO), ctypes.c_uint64()
    prop = (ctypes.c_uint64 * 4)(2, 64 * MIB, FILE_DESCRIPTOR, 0)
    found = ctypes.c_size_t()
    sizes = [
        library.cuMulticastGetGranularity(ctypes.byref(found), prop, option) or found.value
        for option in (0, 1)
    ]
    assert sizes == [2 * MIB, 512 * MIB]
    assert library.cuMulticastCreate(ctypes.byref(handle), prop) == 0
    assert library.cuMulticastAddDevice(handle, 0) == 0 and library.cuMulticastBindMem() == 0
    assert library.emulated_page_bytes(0) == 0


def test_an_allocation_opened_by_its_handle_is_the_whole_of_it() -> None:
    one, other = loaded(TWO), loaded(TWO)
    address, handle, opened = malloc(one, 6 * MIB), IpcHandle(), ctypes.c_void_p()
    assert address is not None
    assert one.cudaIpcGetMemHandle(ctypes.byref(handle), ctypes.c_void_p(address + MIB)) == 0
    assert other.cudaIpcOpenMemHandle(ctypes.byref(opened), handle, 1) == 0
    assert opened.value is not None and device_of(other, opened.value + 6 * MIB - 1) == 0
    assert other.emulated_page_bytes(0) == 0
    assert other.cudaIpcCloseMemHandle(opened) == 0
    assert other.cudaIpcCloseMemHandle(opened) == 1  # it is closed
    assert one.cudaIpcGetMemHandle(ctypes.byref(handle), ctypes.c_void_p(1)) == 1  # nothing lies there
    base, nbytes = ctypes.c_uint64(), ctypes.c_size_t()
    assert one.cuPointerGetAttribute(ctypes.byref(base), 11, ctypes.c_uint64(address + 5)) == 0
    assert one.cuPointerGetAttribute(ctypes.byref(nbytes), 12, ctypes.c_uint64(address + 5)) == 0
    assert (base.value, nbytes.value) == (address, 6 * MIB)


def test_the_drivers_own_allocation_is_the_runtimes() -> None:
    library, address = loaded(TWO), ctypes.c_uint64()
    assert library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(0)) == 1
    assert library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(2**40)) == 2
    assert library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4 * MIB)) == 0
    assert library.emulated_page_bytes(0) == 4 * MIB
    assert library.cuMemsetD8_v2(address, 7, ctypes.c_size_t(16)) == 0
    found = ctypes.create_string_buffer(16)
    assert library.cuMemcpyDtoH_v2(found, address, ctypes.c_size_t(16)) == 0 and found.raw == b"\x07" * 16
    assert library.cuMemFree_v2(address) == 0 and library.emulated_page_bytes(0) == 0


def test_multicast_is_of_gpus_behind_switches() -> None:
    said = {
        (name, count): "multicast=1" in described(load(name), (12, 8), count)
        for name, count in (("h100", 1), ("h100", 2), ("h100-pcie", 2), ("a100-80gb", 8), ("b200", 8))
    }
    assert [pair for pair, has in said.items() if has] == [("h100", 2), ("b200", 8)]
    library, value = loaded(described(load("h200"), (13, 0), 2)), ctypes.c_int()
    assert library.cuDeviceGetAttribute(ctypes.byref(value), 132, 0) == 0 and value.value == 1
