"""The emulated CUDA runtime, called as PyTorch calls it."""

from __future__ import annotations

import ctypes
import json
import random
from pathlib import Path
from typing import Any

import pytest

from analyzer.allocators.process import KernelNeeds, Process
from analyzer.devices import load
from analyzer_emulation.device import described
from tests.extensions.emulation.native import free, loaded, malloc
from tests.paths import ROOT

MIB = 2**20
H200 = described(load("h200"), (13, 0))
SMALL = "capacity=1073741824;context=209715200;known=4096;name=Small"


# Offsets and sizes as a C compiler gives them for struct cudaDeviceProp of driver_types.h (nvidia-cuda-runtime-cu12 12.8.90, nvidia-cuda-runtime 13.0.96).
@pytest.mark.parametrize(
    ("call", "major", "nbytes", "multiprocessors", "l2", "threads", "shared", "blocks"),
    [
        ("cudaGetDeviceProperties_v2", 12, 1032, 388, 616, 624, 696, 712),
        ("cudaGetDeviceProperties", 13, 1008, 384, 596, 604, 672, 688),
    ],
)
def test_properties_lie_where_each_release_of_cuda_looks(
    call: str, major: int, nbytes: int, multiprocessors: int, l2: int, threads: int, shared: int, blocks: int
) -> None:
    library = loaded(H200)
    assert library.emulated_properties_bytes(major) == nbytes
    found = ctypes.create_string_buffer(b"\xff" * (nbytes + 8), nbytes + 8)
    assert getattr(library, call)(found, 0) == 0
    assert found.raw[nbytes:] == b"\xff" * 8  # nothing is written behind it

    def at(offset: int, kind: type[ctypes.c_int | ctypes.c_size_t]) -> int:
        return kind.from_buffer(found, offset).value

    assert found.value == b"NVIDIA H200"
    assert at(multiprocessors, ctypes.c_int) == 132
    assert at(l2, ctypes.c_int) == 60 * MIB
    assert at(threads, ctypes.c_int) == 2048
    assert at(shared, ctypes.c_size_t) == 227 * 1024
    assert at(blocks, ctypes.c_int) == 32


def test_the_runtime_and_the_driver_agree_on_the_device() -> None:
    library, value = loaded(described(load("t4"), (12, 8))), ctypes.c_int()
    for call in (library.cudaDeviceGetAttribute, library.cuDeviceGetAttribute):
        assert [call(ctypes.byref(value), which, 0) or value.value for which in (75, 76, 16, 39)] == [
            7,
            5,
            40,
            1024,
        ]
    assert library.cudaRuntimeGetVersion(ctypes.byref(value)) == 0 and value.value == 12080
    stack = ctypes.c_size_t()
    assert library.cuCtxSetLimit(0, ctypes.c_size_t(4096)) == 0
    assert library.cuCtxGetLimit(ctypes.byref(stack), 0) == 0 and stack.value == 4096
    assert library.cudaSetDevice(1) == 101  # cudaErrorInvalidDevice: there is one


def test_memory_is_given_until_the_device_is_full() -> None:
    library = loaded(SMALL)
    available, total = ctypes.c_size_t(), ctypes.c_size_t()

    def left() -> int:
        assert library.cudaMemGetInfo(ctypes.byref(available), ctypes.byref(total)) == 0
        return available.value

    assert left() == 1024 * MIB - 200 * MIB and total.value == 1024 * MIB
    one = malloc(library, 300 * MIB + 1)  # pages of 2 MiB
    assert one is not None and left() == 522 * MIB
    assert malloc(library, 523 * MIB) is None and library.cudaGetLastError() == 2
    assert library.cudaGetErrorString(2) == b"out of memory"
    two = malloc(library, 522 * MIB)
    assert two is not None and left() == 0
    free(library, one)
    assert left() == 302 * MIB
    assert library.cudaFree(ctypes.c_void_p(one)) == 1  # twice


@pytest.mark.parametrize("seed", range(5))
def test_addresses_are_those_of_the_driver_model(seed: int) -> None:
    """`allocators/process.py` is held to addresses recorded on an H200; the runtime gives the same ones."""
    library, model, draw = loaded(H200), Process(), random.Random(seed)
    kernels = [draw.choice(list(KernelNeeds)) for _ in range(3)]
    origin: int | None = None
    live: list[tuple[int, int, int]] = []
    for _ in range(400):
        if kernels and draw.random() < 0.05:
            kernel = kernels.pop()
            model.launch(kernel)
            library.emulated_launches(kernel.value)
        elif live and draw.random() < 0.45:
            address, expected, nbytes = live.pop(draw.randrange(len(live)))
            free(library, address)
            model.give(expected, nbytes)
        else:
            nbytes = draw.choice(
                (draw.randint(1, 4096), draw.randint(1, 4 * MIB), draw.randint(MIB, 200 * MIB))
            )
            address, expected = malloc(library, nbytes), model.take(nbytes)
            assert address is not None
            origin = address - expected if origin is None else origin
            assert address - expected == origin
            live.append((address, expected, nbytes))
    assert library.emulated_page_bytes(0) == model.page_bytes


def test_copies_to_the_host_read_what_was_copied_there() -> None:
    library = loaded(SMALL)
    address = malloc(library, 4 * MIB)
    assert address is not None

    def read(at: int, nbytes: int) -> bytes:
        found = ctypes.create_string_buffer(nbytes)
        assert library.cudaMemcpy(found, ctypes.c_void_p(at), ctypes.c_size_t(nbytes), 2) == 0
        return found.raw

    def write(at: int, content: bytes) -> None:
        assert library.cudaMemcpy(ctypes.c_void_p(at), content, ctypes.c_size_t(len(content)), 1) == 0

    write(address, b"abcdefgh")
    write(address + 2, b"XY")
    assert read(address, 8) == b"abXYefgh"
    assert library.cudaMemset(ctypes.c_void_p(address + 4), 1, ctypes.c_size_t(2)) == 0
    assert read(address + 2, 6) == b"XY\1\1gh"
    write(address + 100, b"z" * 4097)  # larger than what is kept
    library.emulated_begin(0, None, 0)
    assert read(address + 100, 4) == bytes(4) and library.emulated_end() == 1  # unknown, and said so
    library.emulated_begin(
        1, (ctypes.c_int64 * 1)(77), 1
    )  # within an operator: its own answer, nothing older
    assert int.from_bytes(read(address, 4), "little") == 77
    assert read(address, 8) == bytes(8)
    library.emulated_end()
    free(library, address)
    again = malloc(library, 4 * MIB)
    assert again == address and read(address, 8) == bytes(8)


@pytest.mark.parametrize("seed", range(4))
def test_known_contents_are_those_of_real_memory(seed: int) -> None:
    library, draw = loaded(SMALL), random.Random(seed)
    base = malloc(library, 2 * MIB)
    assert base is not None
    real: list[int | None] = [None] * 256
    for _ in range(600):
        at = draw.randrange(256)
        nbytes = draw.randint(1, 256 - at)
        match draw.randrange(4):
            case 0 | 1:
                content = draw.randbytes(nbytes)
                library.emulated_poke(ctypes.c_uint64(base + at), ctypes.c_uint64(nbytes), content)
                real[at : at + nbytes] = content
            case 2:
                library.emulated_forget(ctypes.c_uint64(base + at), ctypes.c_uint64(nbytes))
                real[at : at + nbytes] = [None] * nbytes
            case _:
                found = ctypes.create_string_buffer(nbytes)
                known = library.emulated_peek(ctypes.c_uint64(base + at), ctypes.c_uint64(nbytes), found)
                expected = real[at : at + nbytes]
                assert known == (None not in expected)
                assert not known or list(found.raw) == expected


def test_expandable_segments_take_memory_page_by_page() -> None:
    library = loaded(SMALL)
    handle, address = ctypes.c_uint64(), ctypes.c_uint64()
    where = (ctypes.c_int * 8)(1, 0, 1, 0)  # pinned, no handle type, on device 0
    reserve = (ctypes.byref(address), ctypes.c_size_t(4096 * MIB), ctypes.c_size_t(0), ctypes.c_uint64(0), 0)
    assert library.cuMemAddressReserve(*reserve) == 0  # addresses cost nothing
    assert (
        library.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(825 * MIB), where, 0) == 1
    )  # no whole pages
    assert library.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(826 * MIB), where, 0) == 2
    assert library.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(20 * MIB), where, 0) == 0
    assert library.cuMemMap(address, ctypes.c_size_t(20 * MIB), ctypes.c_size_t(0), handle, 0) == 0
    assert library.cuMemRelease(handle) == 0
    assert library.emulated_page_bytes(0) == 20 * MIB  # mapped still
    assert library.cuMemUnmap(address, ctypes.c_size_t(20 * MIB)) == 0
    assert library.emulated_page_bytes(0) == 0


def test_managed_memory_is_the_hosts() -> None:
    """It can be written from here, is told from the device's and takes none of it, and is given back as the device's is."""
    library = loaded(SMALL)
    before = library.emulated_used_bytes(0)
    address = ctypes.c_void_p()
    assert (
        library.cudaMallocManaged(ctypes.byref(address), ctypes.c_size_t(2**31), 1) == 0
    )  # twice what the device has
    ctypes.memset(address.value, 7, 4096)
    found = (ctypes.c_uint64 * 8)()  # type and device in the first word, then both addresses
    assert library.cudaPointerGetAttributes(found, ctypes.c_void_p(address.value + 5)) == 0
    assert found[0] & 0xFFFFFFFF == 3 and found[1] == found[2] == address.value + 5
    assert library.cudaMemPrefetchAsync(address, ctypes.c_size_t(4096), 0, None) == 0
    assert library.emulated_used_bytes(0) == before
    free(library, address.value)
    assert library.cudaPointerGetAttributes(found, address) == 0 and found[0] & 0xFFFFFFFF == 0
    assert library.cudaMallocManaged(ctypes.byref(address), ctypes.c_size_t(0), 1) == 1


def test_a_function_without_an_answer_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    library, function, status = loaded(SMALL), ctypes.c_void_p(), ctypes.c_int()
    assert library.cublasCaxpy_v2() == 15 and library.cublasCaxpy_v2() == 15
    named = "analyze emulate: the program called cublasCaxpy_v2, which is not emulated\n"
    assert capfd.readouterr().err == named
    assert library.emulated_refused(0) == b"cublasCaxpy_v2" and library.emulated_refused(1) is None
    by_name = (ctypes.byref(function), 12000, ctypes.c_uint64(0), ctypes.byref(status))
    assert library.cudaGetDriverEntryPointByVersion(b"cuMemGetAddressRange", *by_name) == 0
    assert function.value and status.value == 0  # its _v2
    assert library.cudaGetDriverEntryPointByVersion(b"cuNoSuchThing", *by_name) == 0
    assert function.value is None and status.value == 1
    # Nothing stands for NVIDIA's driver to libraries that ask for more than it documents.
    assert (
        library.cudaGetDriverEntryPointByVersion(b"cuGetExportTable", *by_name) == 0
        and function.value is None
    )


def test_nvml_counts_the_process() -> None:
    library, handle = loaded(SMALL), ctypes.c_void_p()
    assert library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
    assert malloc(library, 100 * MIB)
    memory = (ctypes.c_uint64 * 3)()
    assert library.nvmlDeviceGetMemoryInfo(handle, memory) == 0
    assert list(memory) == [1024 * MIB, 724 * MIB, 300 * MIB]


def test_nvml_lists_what_the_driver_keeps() -> None:
    """An H100's 81,559 MiB, of which CUDA has 81,079."""
    library, handle = loaded(f"{SMALL};listed={1064 * MIB}"), ctypes.c_void_p()
    assert library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
    memory = (ctypes.c_uint64 * 5)()
    assert library.nvmlDeviceGetMemoryInfo_v2(handle, memory) == 0
    total, reserved, free, used = list(memory)[1:]
    assert (total, reserved, free + used) == (1064 * MIB, 40 * MIB, 1024 * MIB)
    available, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert library.cudaMemGetInfo(ctypes.byref(available), ctypes.byref(total)) == 0
    assert total.value == 1024 * MIB


def test_nvml_knows_no_fabric() -> None:
    """torch 2.13 and later ask when a segment is to be expandable, and take nothing but success for an answer."""
    library, handle = loaded(SMALL), ctypes.c_void_p()
    assert library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
    info = (ctypes.c_ubyte * 40)(*[255] * 40)
    ctypes.c_uint32.from_buffer(info).value = 36 | 2 << 24  # nvmlGpuFabricInfo_v2
    assert library.nvmlDeviceGetGpuFabricInfoV(handle, info) == 0
    assert list(info[4:]) == [0] * 32 + [255] * 4
    ctypes.c_uint32.from_buffer(info).value = 0
    assert library.nvmlDeviceGetGpuFabricInfoV(handle, info) == 2


def test_a_stream_that_is_captured_counts_its_kernels() -> None:
    library, stream, graph = loaded(SMALL), ctypes.c_void_p(), ctypes.c_void_p()
    status, count = ctypes.c_int(), ctypes.c_size_t()
    assert library.cudaStreamCreate(ctypes.byref(stream)) == 0
    assert library.cudaStreamBeginCapture(stream, 0) == 0
    assert library.cudaStreamIsCapturing(stream, ctypes.byref(status)) == 0 and status.value == 1
    for _ in range(3):
        assert library.cuLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, stream, None, None) == 0
    assert library.cudaStreamEndCapture(stream, ctypes.byref(graph)) == 0
    assert library.cudaGraphGetNodes(graph, None, ctypes.byref(count)) == 0 and count.value == 3
    assert library.cudaStreamIsCapturing(stream, ctypes.byref(status)) == 0 and status.value == 0


def test_streams_that_wait_for_a_captured_one_are_captured_with_it() -> None:
    """As CUDA joins them: by an event, until the capture ends; an event of an earlier capture joins nothing."""
    library, graph, forked = loaded(SMALL), ctypes.c_void_p(), ctypes.c_void_p()
    streams = [ctypes.c_void_p() for _ in range(3)]
    status, count = ctypes.c_int(), ctypes.c_size_t()
    main, side, other = streams
    for stream in streams:
        assert library.cudaStreamCreate(ctypes.byref(stream)) == 0
    assert library.cudaEventCreate(ctypes.byref(forked)) == 0
    assert library.cudaStreamBeginCapture(main, 0) == 0
    assert library.cudaEventRecord(forked, main) == 0
    assert library.cudaStreamWaitEvent(side, forked, 0) == 0
    for stream in (main, side, side, other):
        assert library.cuLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, stream, None, None) == 0
    captured = []
    for stream in streams:
        assert library.cudaStreamIsCapturing(stream, ctypes.byref(status)) == 0
        captured.append(status.value)
    assert captured == [1, 1, 0]
    assert library.cudaStreamEndCapture(main, ctypes.byref(graph)) == 0
    assert library.cudaGraphGetNodes(graph, None, ctypes.byref(count)) == 0 and count.value == 3
    assert library.cudaStreamIsCapturing(side, ctypes.byref(status)) == 0 and status.value == 0
    assert library.cudaStreamWaitEvent(other, forked, 0) == 0
    assert library.cudaStreamIsCapturing(other, ctypes.byref(status)) == 0 and status.value == 0


def recorded() -> dict[str, dict[str, int]]:
    """Of an H100, by experiment and step: bytes in use that the allocator does not hold (`python -m benchmarks serving measure` of commit cf817472)."""
    found = json.loads((ROOT / "tests/data/h100/outside.json").read_text())
    return {row["name"]: dict(row["steps"]) for row in found["experiments"]}


H100 = described(load("h100"), (13, 0))


def outside(library: ctypes.CDLL) -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert library.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    return total.value - free.value


def test_the_first_kernel_loads_what_it_did() -> None:
    library, measured = loaded(H100), recorded()["context"]
    assert outside(library) == measured["context"]
    assert library.cuLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0
    assert outside(library) == measured["fill_"]


def test_streams_take_what_they_took() -> None:
    library, measured = loaded(H100), recorded()
    at_first, stream = outside(library), ctypes.c_void_p()
    alone = measured["pool"]["pool"] - measured["pool"]["first kernel"]
    taken = {}
    for count in range(1, 193):
        assert library.cudaStreamCreateWithFlags(ctypes.byref(stream), 1) == 0
        taken[count] = outside(library) - at_first
    before = measured["streams"]["first kernel"]
    for step, nbytes in measured["streams"].items():
        if step.endswith("of the runtime's"):
            assert taken[int(step.split()[0])] == nbytes - before, step
    assert taken[128] == alone and taken[192] == measured["streams"]["pool"] - before


@pytest.mark.parametrize(("nodes", "percent"), [(1, 15), (8, 4), (16, 3), (64, 5), (256, 3)])
def test_graphs_take_about_what_they_took(nodes: int, percent: int) -> None:
    """The driver gives them pages of 2 MiB, and keeps these for the next."""
    measured = recorded()[f"many {nodes} 1"]
    library, stream, graph = loaded(H100), ctypes.c_void_p(), ctypes.c_void_p()
    assert library.cudaStreamCreate(ctypes.byref(stream)) == 0
    instances = [ctypes.c_void_p() for _ in range(256)]
    for instance in instances:
        assert library.cudaStreamBeginCapture(stream, 0) == 0
        for _ in range(nodes):
            assert library.cuLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, stream, None, None) == 0
        assert library.cudaStreamEndCapture(stream, ctypes.byref(graph)) == 0
        if instance is instances[0]:
            before = outside(library)
        assert library.cudaGraphInstantiate(ctypes.byref(instance), graph, ctypes.c_ulonglong(0)) == 0
        assert library.cudaGraphDestroy(graph) == 0
    held = outside(library)
    assert held - before == pytest.approx(measured["256 graphs"] - measured["1 graphs"], rel=percent / 100)
    assert library.emulated_graph_nodes(0) == 256 * nodes
    for instance in instances:
        assert library.cudaGraphExecDestroy(instance) == 0
    assert library.emulated_graph_nodes(0) == 0
    assert outside(library) == held and measured["given back"] == measured["256 graphs"]


MEASURED_GRAPHS = [
    json.loads(line) for line in (ROOT / "tests/data/h100/graphs.jsonl").read_text().splitlines()
]


def instantiated(library: ctypes.CDLL, counts: dict[int, int]) -> int:
    """Bytes that so many graphs take, by their nodes."""
    stream, graph, instance = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert library.cudaStreamCreate(ctypes.byref(stream)) == 0
    assert library.cuLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, stream, None, None) == 0
    before = outside(library)
    for nodes, count in counts.items():
        assert library.cudaStreamBeginCapture(stream, 0) == 0
        for _ in range(nodes):
            assert library.cuLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, stream, None, None) == 0
        assert library.cudaStreamEndCapture(stream, ctypes.byref(graph)) == 0
        for _ in range(count):
            assert library.cudaGraphInstantiate(ctypes.byref(instance), graph, ctypes.c_ulonglong(0)) == 0
    return outside(library) - before


@pytest.mark.parametrize(
    "row",
    [row for row in MEASURED_GRAPHS if row["name"] == "shapes"],
    ids=lambda row: f"{row['count']} of {row['nodes']}",
)
def test_many_small_graphs_and_few_large_ones(row: dict[str, Any]) -> None:
    """The driver's share does not grow evenly with nodes: within two pages, or 25 % (700 nodes take 24 % more than is said)."""
    found = instantiated(loaded(H100), {row["nodes"]: row["count"]})
    assert found == pytest.approx(row["taken"], rel=0.25, abs=4 * MIB) and row["replayed"] == row["taken"]


@pytest.mark.parametrize(
    "row",
    [row for row in MEASURED_GRAPHS if row["name"] == "engine"],
    ids=lambda row: f"{row['layers']} layers",
)
def test_the_graphs_of_a_serving_engine(row: dict[str, Any]) -> None:
    """For each of 51 sizes one between two attentions each, and one of the whole."""
    layers = row["layers"]
    found = instantiated(loaded(H100), {9: 51 * (layers + 1), 12 * layers: 51})
    assert found == pytest.approx(row["pieces"] + row["full"], rel=0.03)


def test_another_runtime_or_flag_takes_no_more() -> None:
    """64 instances of 64 kernels, by CUDA 13.0's runtime and 12.8's, with each flag: two pages more at most; nothing for the upload."""
    rows = [row for row in MEASURED_GRAPHS if row["name"] == "flags"]
    assert {row["runtime"] for row in rows} == {"12", "13"} and len(rows) == 8
    found = instantiated(loaded(H100), {64: 64})
    assert all(abs(row["taken"] - found) <= 4 * MIB for row in rows)
    assert all(row["uploaded"] == row["launched"] == row["taken"] for row in rows)


def test_there_is_no_table_of_functions_nobody_documents() -> None:
    """NVRTC asks for those of its cache, and reads what it is given: without an error code it would read at address 0."""
    library, table = loaded(H200), ctypes.c_void_p(1)
    assert library.cuGetExportTable(ctypes.byref(table), ctypes.create_string_buffer(16)) == 500
    assert table.value is None


def test_cudnn_by_its_name_is_this_one() -> None:
    """ONNX Runtime's provider opens it so. Beside PyTorch another file has that name; a search by other names is the loader's."""
    library = loaded(H200)
    library.dlopen.restype = ctypes.c_void_p
    handle = library.dlopen(b"libcudnn.so.9", 2)
    assert handle
    found = ctypes.CDLL(None).dlsym
    found.restype, found.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
    at = ctypes.cast(library.cudnnGetVersion, ctypes.c_void_p).value
    assert found(handle, b"cudnnGetVersion") == at
    assert library.dlopen(b"libc.so.6", 2) and not library.dlopen(b"libcudnn_graph_of_nobody.so.9", 2)


def test_a_graph_takes_over_another_of_the_same_nodes() -> None:
    """As ggml keeps its instance from token to token (ggml-cuda.cu): one of other nodes is refused, and instantiated anew."""
    library, stream = loaded(SMALL), ctypes.c_void_p()
    graphs = [ctypes.c_void_p() for _ in range(3)]
    assert library.cudaSetDeviceFlags(4) == 0  # cudaDeviceScheduleBlockingSync
    assert library.cudaStreamCreate(ctypes.byref(stream)) == 0
    for graph, kernels in zip(graphs, (3, 3, 5), strict=True):
        assert library.cudaStreamBeginCapture(stream, 0) == 0
        for _ in range(kernels):
            assert library.cuLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, stream, None, None) == 0
        assert library.cudaStreamEndCapture(stream, ctypes.byref(graph)) == 0
    instance, result = ctypes.c_void_p(), (ctypes.c_int * 8)(*[9] * 8)
    assert library.cudaGraphInstantiate(ctypes.byref(instance), graphs[0], ctypes.c_ulonglong(0)) == 0
    before = library.emulated_used_bytes(0)
    assert library.cudaGraphExecUpdate(instance, graphs[1], result) == 0 and result[0] == 0
    assert library.cudaGraphExecUpdate(instance, graphs[2], result) == 910 and result[0] == 3
    assert b"graph update" in library.cudaGetErrorString(910)
    assert library.emulated_used_bytes(0) == before and library.emulated_graph_nodes(0) == 3


def test_ggml_computes_nothing_on_the_host_either(tmp_path: Path) -> None:
    """Its file is mapped, and none of its pages are read before somebody does."""
    library, bytes_of_file = loaded(SMALL), 64 * MIB
    assert library.ggml_graph_compute(None, None) == 0
    with (tmp_path / "weights").open("wb") as file:
        file.truncate(bytes_of_file)
    library.mmap.restype = ctypes.c_void_p
    with (tmp_path / "weights").open("rb") as file:
        at = library.mmap(
            None, ctypes.c_size_t(bytes_of_file), 1, 2 | 0x8000, file.fileno(), ctypes.c_long(0)
        )
    resident = (ctypes.c_ubyte * (bytes_of_file // 4096))()
    libc = ctypes.CDLL(None)
    assert libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(bytes_of_file), resident) == 0
    assert not any(resident) and libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(bytes_of_file)) == 0
    assert library.mmap(None, ctypes.c_size_t(4096), 1, 2, 9999, ctypes.c_long(0)) == 2**64 - 1  # MAP_FAILED


def test_the_first_memset_takes_its_code() -> None:
    library = loaded("capacity=1073741824;context=4194304;memset_code=2097152;name=Small")
    page, before = malloc(library, MIB), library.emulated_used_bytes(0)
    for _ in range(2):
        assert library.cudaMemsetAsync(ctypes.c_void_p(page), 0, ctypes.c_size_t(MIB), None) == 0
    assert library.emulated_used_bytes(0) == before + 2 * MIB
