"""Texts of errors for want of memory, as the projects' issues have them."""

from __future__ import annotations

import pytest

from analyzer.recordings.messages import understood

GIB, MIB = 2**30, 2**20
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 10.92 GiB total capacity; 8.62 GiB already"
    " allocated; 1.39 GiB free; 8.81 GiB reserved in total by PyTorch)"
)
CACHED = (
    "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 6.99 GiB already allocated; 5.38"
    " MiB free; 81.61 MiB cached)"
)
NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 139.80 GiB of"
    " which 130.88 GiB is free. Process 1670 has 2.05 GiB memory in use. Process 1697 has 2.24 GiB memory in use."
    " Including non-PyTorch memory, this process has 2.39 GiB memory in use. 1.86 GiB allowed; Of the allocated memory"
    " 1.80 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated. If reserved but unallocated"
    " memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
FRAGMENTED = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacty of 23.69 GiB"
    " of which 512.00 MiB is free. Including non-PyTorch memory, this process has 23.10 GiB memory in use. Of the"
    " allocated memory 16.00 GiB is allocated by PyTorch, with 1.00 GiB allocated in private pools (e.g., CUDA Graphs),"
    " and 6.50 GiB is reserved by PyTorch but unallocated."
)


def figures(text: str) -> dict[str, int]:
    found = understood(text)
    assert found is not None
    return {figure.name: figure.nbytes for figure in found.figures}


def test_pytorch_before_2_1() -> None:
    found = figures(f"Traceback\n{OLD}\n")
    assert (
        found["asked"] == 2 * GIB
        and found["total"] == round(10.92 * GIB)
        and found["free"] == round(1.39 * GIB)
    )
    assert found["reserved but not in use"] == round(8.81 * GIB) - round(8.62 * GIB)
    assert figures(CACHED)["reserved by PyTorch"] == round(81.61 * MIB)


def test_pytorch_since_2_1_with_a_fraction_and_other_processes() -> None:
    found = figures(NEW)
    assert found["allowed"] == round(1.86 * GIB) and found["in process 1697"] == round(2.24 * GIB)
    assert found["reserved but not in use"] == 0
    message = understood(NEW)
    assert (
        message is not None
        and "fraction" in message.advice[0]
        and "other processes hold 4.29 GiB" in message.advice[1]
    )
    assert not any("expandable" in line for line in message.advice)


def test_fragmentation_is_named_and_measured() -> None:
    message = understood(FRAGMENTED)
    assert message is not None and figures(FRAGMENTED)["in private pools"] == GIB
    assert any("6.50 GiB are held" in line and "expandable_segments:True" in line for line in message.advice)
    assert not any("have to go" in line for line in message.advice)


def test_a_precision_goes_with_each_figure() -> None:
    message = understood(OLD)
    assert message is not None
    by_name = {figure.name: figure for figure in message.figures}
    assert by_name["asked"].precision_bytes == GIB // 100
    assert by_name["reserved but not in use"].precision_bytes == 2 * (GIB // 100)


def test_the_last_of_several_counts() -> None:
    assert figures(f"{OLD}\nretrying\n{FRAGMENTED}")["asked"] == round(1.5 * GIB)


@pytest.mark.parametrize(
    ("text", "source", "words"),
    [
        (
            "[E:onnxruntime:, sequential_executor.cc:514 ExecuteKernel] Non-zero status code returned while running Conv node."
            " Name:'/layer1/Conv' Status Message: bfc_arena.cc:376 void* AllocateRawInternal Failed to allocate memory for"
            " requested buffer of size 1073741824",
            "ONNX Runtime",
            "1.00 GiB asked for at the Conv node '/layer1/Conv'",
        ),
        (
            "bfc_arena.cc:342 Available memory of 524288000 is smaller than requested bytes of 1073741824",
            "ONNX Runtime",
            "500.00 MiB left of the arena's limit",
        ),
        (
            "CUDA failure 2: out of memory ; GPU=0 ; hostname=x ; expr=cudaMalloc((void**)&p, size);",
            "ONNX Runtime",
            "driver",
        ),
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing",
            "vLLM",
            "no room for the cache",
        ),
        (
            "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in"
            " KV cache (20000).",
            "vLLM",
            "32,768 tokens does not fit the cache, which has room for 20,000",
        ),
        (
            "ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is needed,"
            " which is larger than the available KV cache memory (3.92 GiB). Based on the available memory, the estimated",
            "vLLM",
            "needs 5.62 GiB of cache, 3.92 GiB are there",
        ),
        (
            "ValueError: Free memory on device (10.5/23.6 GiB) on startup is less than desired GPU memory utilization (0.9,"
            " 21.24 GiB). Decrease GPU memory utilization",
            "vLLM",
            "10.50 GiB are free",
        ),
    ],
)
def test_other_engines(text: str, source: str, words: str) -> None:
    message = understood(f"INFO before\n{text}\n")
    assert message is not None and message.source == source and words in message.verdict and message.advice


def test_advised_lengths_surely_fit() -> None:
    message = understood(
        "max seq len (40960), (5.62 GiB KV cache is needed, which is larger than the available KV cache memory (3.92 GiB)"
    )
    assert (
        message is not None and f"--max-model-len {int(40960 * 3.91 / 5.63)} surely fits" in message.advice[0]
    )


def test_other_texts_are_none() -> None:
    assert understood("RuntimeError: CUDA error: device-side assert triggered") is None
    assert understood("") is None
