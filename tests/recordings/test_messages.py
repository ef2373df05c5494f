"""Texts of errors for want of memory, as the projects' issues have them."""

from __future__ import annotations

import pytest

from analyzer.recordings.messages import understood
from analyzer.report.formats import render

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
            "1.00 GiB requested at the Conv node '/layer1/Conv'",
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


NEEDS = (
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.0 GiB KV cache is needed, which is larger"
    " than the available KV cache memory ({there} GiB)."
)
SHARE = "the current vLLM instance can use total_gpu_memory (23.65GiB) x gpu_memory_utilization (0.90) = 21.28GiB\n"


def test_a_change_that_is_not_enough_says_so() -> None:
    """12.09 GiB are missing of 16: a tenth of the GPU is 2.37, and half a request's cache is 8."""
    told = advice(SHARE + NEEDS.format(there="3.91"))
    assert (
        "--gpu-memory-utilization is not enough alone: 1 instead of 0.9 gives 2.36 GiB of 12.09 GiB" in told
    )
    assert "--kv-cache-dtype fp8 is not enough alone: saves 8.00 GiB of 12.09 GiB missing" in told
    without = advice(NEEDS.format(there="3.91"))
    assert "is enough only on a GPU of more than 120.90 GiB" in without


def test_a_change_that_is_enough_says_how() -> None:
    told = advice(SHARE + NEEDS.format(there="14.0"))
    assert "--gpu-memory-utilization 0.985: 2.00 GiB more" in told
    assert "--kv-cache-dtype fp8: a request then takes 8.00 GiB, which fits" in told


def test_other_texts_are_none() -> None:
    assert understood("RuntimeError: CUDA error: device-side assert triggered") is None
    assert understood("") is None


# As releases print it; figures of public reports.
RELEASES = {
    "1.13": (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.69 GiB (GPU 0; 14.56 GiB total capacity; 649.97 MiB"
        " already allocated; 1.31 GiB free; 1.01 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try"
        " setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
        {"asked": 1.69, "total": 14.56, "free": 1.31, "reserved by PyTorch": 1.01},
    ),
    "2.1": (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacty of 23.65 GiB of"
        " which 1.66 GiB is free. Including non-PyTorch memory, this process has 20.81 GiB memory in use. Of the allocated memory"
        " 12.09 GiB is allocated by PyTorch, and 4.84 GiB is reserved by PyTorch but unallocated. If reserved but unallocated"
        " memory is large try setting max_split_size_mb to avoid fragmentation.",
        {"asked": 3.0, "total": 23.65, "free": 1.66, "in this process": 20.81, "allocated by PyTorch": 12.09,
         "reserved but not in use": 4.84},
    ),
    "2.5": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB of which"
        " 12.73 GiB is free. Including non-PyTorch memory, this process has 18.73 GiB memory in use. Of the allocated memory 9.08"
        " GiB is allocated by PyTorch, and 9.35 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is"
        " large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
        {"asked": 22.78, "total": 31.47, "free": 12.73, "in this process": 18.73, "reserved but not in use": 9.35},
    ),
    "2.6, private pools": (
        "(VllmWorker rank=1 pid=2978) ERROR 03-19 07:27:53 [multiproc_executor.py:375] torch.OutOfMemoryError: CUDA out of memory."
        " Tried to allocate 1.74 GiB. GPU 1 has a total capacity of 23.57 GiB of which 605.88 MiB is free. Process 133288 has 22.97"
        " GiB memory in use. Of the allocated memory 20.21 GiB is allocated by PyTorch, with 128.00 MiB allocated in private pools"
        " (e.g., CUDA Graphs), and 185.98 MiB is reserved by PyTorch but unallocated.",
        {"asked": 1.74, "total": 23.57, "in private pools": 0.125, "in process 133288": 22.97, "allocated by PyTorch": 20.21},
    ),
    "2.11": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.11 GiB of which"
        " 4.00 GiB is free. Including non-PyTorch memory, this process has 40.20 GiB memory in use. 39.55 GiB allowed; Of the"
        " allocated memory 39.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated. If reserved"
        " but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
        {"asked": 20 / 1024, "total": 79.11, "free": 4.0, "allowed": 39.55, "reserved but not in use": 0.5},
    ),
    "cudaMallocAsync": (
        r'Generation("Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 16.08 GiB'
        r"\nRequested               : 4.83 GiB\nDevice limit            : 22.20 GiB\nFree (according to CUDA): 11.12 MiB"
        r'\nPyTorch limit (set by user-supplied memory fraction)\n                        : 22.20 GiB")',
        {"asked": 4.83, "total": 22.2, "allocated by PyTorch": 16.08, "free": 11.12 / 1024},
    ),
}  # fmt: skip


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_says_the_same_figures(release: str) -> None:
    text, expected = RELEASES[release]
    found = figures(f"before\n{text}\nafter")
    assert {name: found[name] for name in expected} == {
        name: round(gib * GIB) for name, gib in expected.items()
    }
    message = understood(text)
    assert message is not None and message.source.startswith("PyTorch") and message.advice


def advice(text: str) -> str:
    message = understood(text)
    assert message is not None
    return " | ".join(message.advice)


def test_a_containers_own_process_is_not_another_one() -> None:
    """The process has another number there than NVML knows it by, and is not to be ended."""
    said = advice(RELEASES["2.6, private pools"][0])
    assert "process 133288 is most likely this one" in said and "other processes" not in said
    assert "2.58 GiB of this process are not PyTorch's" in said
    # Of two the smaller that can be it; the other one is another's.
    two = RELEASES["2.6, private pools"][0].replace(
        " Of the allocated", " Process 7 has 21.00 GiB memory in use. Of the allocated"
    )
    assert "process 7 is most likely this one" in advice(two) and "other processes hold 22.97 GiB" in advice(
        two
    )


def test_free_memory_that_is_enough_has_a_reason() -> None:
    enough = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 4.00 GiB of which 2.80 GiB is free. Of the"
        " allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated."
    )
    assert "2.80 GiB free, which is enough" in advice(enough)
    assert "which is enough" not in advice(enough.replace("2.80 GiB is free", "1.99 GiB is free"))


def test_more_than_the_gpu_and_the_hosts_memory() -> None:
    larger = (
        "CUDA out of memory. Tried to allocate 55.57 GiB. GPU 0 has a total capacty of 12.00 GiB of which 9.02 GiB is free. Of the"
        " allocated memory 984.52 MiB is allocated by PyTorch, and 463.48 MiB is reserved by PyTorch but unallocated."
    )
    assert "more than the whole GPU" in advice(larger)
    lent = (
        "CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacty of 8.00 GiB of which 0 bytes is free. Of the"
        " allocated memory 22.44 GiB is allocated by PyTorch, and 3.16 MiB is reserved by PyTorch but unallocated."
    )
    assert "lent the host's memory" in advice(lent)


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("torch.AcceleratorError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported", "the CUDA driver"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "cuBLAS"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "cuDNN"),
        ("ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'", "NCCL"),
    ],
)  # fmt: skip
def test_what_asks_past_the_allocator(text: str, who: str) -> None:
    message = understood(f"Traceback\n{text}\n")
    assert (
        message is not None
        and message.verdict == f"out of memory: {who} found none beside PyTorch's allocator"
    )
    assert "how much was asked for" in message.unknown and not message.figures


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "2024-10-29 [E:onnxruntime:, sequential_executor.cc:514 ExecuteKernel] Non-zero status code returned while running Gemm"
            " node. Name:'fullyconnected0' Status Message: cuda_call.cc:114 onnxruntime::CudaCall CUBLAS failure 3:"
            " CUBLAS_STATUS_ALLOC_FAILED ; GPU=0 ; hostname=host ; line=168 ; expr=cublasCreate(&cublas_handle_);",
            "cuBLAS had no memory at the Gemm node 'fullyconnected0'",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : onnxruntime::CudaCall CUDA failure 2: out of memory ; GPU=0 ; hostname=host ; line=175"
            " ; expr=cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);",
            "the CUDA driver had no memory",
        ),
        (
            "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running FusedMatMul node. Name:"
            "'MatMul_92_FusedMatMulAndScale' Status Message: bfc_arena.cc:331 void* onnxruntime::BFCArena::AllocateRawInternal(size_t,"
            " bool) Failed to allocate memory for requested buffer of size 8388608000",
            "7.81 GiB requested at the FusedMatMul node 'MatMul_92_FusedMatMulAndScale'",
        ),
    ],
)
def test_onnxruntime_says_which_node(text: str, words: str) -> None:
    message = understood(text)
    assert message is not None and message.source == "ONNX Runtime" and words in message.verdict


def test_a_size_no_device_has_is_no_want_of_memory() -> None:
    said = advice(
        "Non-zero status code returned while running Conv node. Name:'/patch_embed/Conv' Status Message: bfc_arena.cc:376 Failed to"
        " allocate memory for requested buffer of size 4585490524328388608"
    )
    assert "a shape is wrong" in said and "arena_extend_strategy" not in said


def test_vllms_own_length_and_its_sampler() -> None:
    told = (
        "(EngineCore_DP0 pid=1094) ValueError: To serve at least one request with the models's max seq len (262144), (24.0 GiB KV"
        " cache is needed, which is larger than the available KV cache memory (3.18 GiB). Based on the available memory, the"
        " estimated maximum model length is 34736. Try increasing `gpu_memory_utilization`"
    )
    assert "--max-model-len 34736 fits, as vLLM estimates itself" in advice(told)
    newest = (
        "ValueError: To serve at least one request with the model's max seq len (1048576), 22.5 GiB KV cache is needed, which is larger"
        " than the available KV cache memory (17.39 GiB). Based on the available memory, the estimated maximum model length is 810208."
    )
    assert "--max-model-len 810208 fits" in advice(newest)
    sampler = (
        f"{NEW}\nRuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering"
        " `max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
    )
    message = understood(sampler)
    assert (
        message is not None and message.source == "vLLM" and "--max-num-seqs below 1024" in message.advice[0]
    )


TRACEBACK = """epoch 0
Traceback (most recent call last):
  File "/home/me/unet/train.py", line 50, in <module>
    main()
  File "/home/me/unet/train.py", line 41, in main
    loss = loss_fn(model(images), masks)
  File "/home/me/.venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1773, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/me/unet/model.py", line 34, in forward
    a = self.dec1(torch.cat([self.up1(b), a], 1))
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/me/.venv/lib/python3.11/site-packages/torch/nn/modules/container.py", line 250, in forward
    input = module(input)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.56 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process has 22.35 GiB memory in use. Of the allocated memory 21.50 GiB is allocated by PyTorch, and 562.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)
"""


def test_the_users_own_line_and_script() -> None:
    """Between PyTorch's modules: the model's line is the place, the script is the outermost file."""
    message = understood(TRACEBACK)
    assert message is not None
    assert message.place == "model.py:34, in forward: a = self.dec1(torch.cat([self.up1(b), a], 1))"
    assert any(line.startswith("analyze run --device 23.56GiB train.py, with ") for line in message.advice)
    assert any(
        "analyze fit --vary=--batch-size --device 23.56GiB train.py " in line for line in message.advice
    )
    shown = render("message", "text", message)
    assert isinstance(shown, str) and "\nat model.py:34, in forward: " in shown


def test_a_launchers_prefix_and_a_later_traceback() -> None:
    """torchrun puts the rank before each line; a second traceback is that of the error behind it alone."""
    ranks = "".join(f"[rank0]: {line}\n" for line in TRACEBACK.splitlines())
    message = understood(ranks)
    assert message is not None and message.place.startswith("model.py:34, in forward: a = self.dec1(")
    other = TRACEBACK.replace("model.py", "other.py").replace("34", "12").replace("train.py", "main.py")
    message = understood(TRACEBACK + other)
    assert message is not None and message.place.startswith("other.py:12, ")
    assert any("--device 23.56GiB main.py" in line for line in message.advice)


def test_no_traceback_or_none_of_the_users() -> None:
    message = understood(NEW)
    assert message is not None and not message.place
    assert any("analyze run --device h200 SCRIPT" in line for line in message.advice)
    packages = TRACEBACK.replace("/home/me/unet/", "/usr/lib/python3/dist-packages/unet/")
    message = understood(packages)
    assert message is not None and not message.place


_NODE = (
    "2026-11-28 09:12:44.120938 [E:onnxruntime:, sequential_executor.cc:572 ExecuteKernel] Non-zero status code returned while running"
    " MatMul node. Name:'/attention/MatMul' Status Message: bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal(size_t)"
    " Failed to allocate memory for requested buffer of size 402653184"
)
_PATTERN = (
    "2026-11-28 09:12:44.120 [W:onnxruntime:, execution_frame.cc:673 ExecutionFrame] Allocation of memory pattern buffer for"
    " Device:[DeviceType:1 MemoryType:0 VendorId:4318 DeviceId:0 Alignment:256] failed. Error:bfc_arena.cc:376 void*"
    " onnxruntime::BFCArena::AllocateRawInternal(size_t) Failed to allocate memory for requested buffer of size 12348030976"
)
_START = (
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Exception during initialization: bfc_arena.cc:376 Failed to allocate memory for"
    " requested buffer of size 4294967296"
)


@pytest.mark.parametrize("log", [f"{_NODE}\n{_PATTERN}\n", f"{_PATTERN}\n{_NODE}\n"])
def test_a_memory_patterns_block_is_no_error(log: str) -> None:
    """The run goes on without it (`execution_frame.cc`): the node's own request is what failed."""
    message = understood(log)
    assert message is not None and not message.harmless
    assert message.verdict == "out of memory: 384.00 MiB requested at the MatMul node '/attention/MatMul'"
    alone = understood(_PATTERN)
    assert alone is not None and alone.harmless and alone.verdict.startswith("no error: ")
    assert "enable_mem_pattern=0" in " ".join(alone.advice) and "harmless, and slower" in alone.advice[0]


def test_each_message_is_taken_by_itself() -> None:
    """A session that cannot begin has no node: that of the message before is not its."""
    message = understood(f"{_NODE}\n{_START}\n")
    assert message is not None and message.verdict == "out of memory: 4.00 GiB requested"


def test_a_number_of_twenty_digits_is_whole() -> None:
    message = understood(f"{_START[:-10]}18446744073709551615")
    assert message is not None and message.figures[0].nbytes == 2**64 - 1


def test_ways_out_of_a_desktops_card() -> None:
    """Other processes' memory alone is no way out, and what is missing now is not what the step needs."""
    desktop = NEW.replace("64.00 MiB. GPU", "44.00 MiB. GPU").replace("130.88 GiB", "21.31 MiB")
    said = advice(desktop.replace(" 1.86 GiB allowed;", ""))
    assert "end those that need not run" in said and "a smaller batch or sequence, lower precision" in said
    assert "only to pass this request" in said
    shown = render("message", "text", understood(desktop))
    assert "± 5.1 KiB" in str(shown)


def test_commands_name_the_messages_own_gpu() -> None:
    """By name where one card alone has the total; else as a size, beside the cards that have it."""
    only = RELEASES["1.13"][0]  # 14.56 GiB: 15 listed by nvidia-smi, less the driver's part
    assert "analyze run --device t4 SCRIPT" in advice(only) and "instead of" not in advice(only)
    several = advice(RELEASES["2.1"][0])
    assert "analyze run --device 23.65GiB SCRIPT" in several
    line = next(part for part in several.split(" | ") if part.startswith("instead of 23.65GiB"))
    assert "rtx4090" in line and "rtx3090" in line and "l4" not in line.split() and "a100" not in line
    other = RELEASES["2.1"][0].replace("CUDA out of memory", "HIP out of memory")
    assert "instead of" not in advice(other) and "--device 23.65GiB" in advice(other)


def test_scripts_are_told_the_command_that_takes_them() -> None:
    """`advise` takes models alone; `run` tries changes on a script."""
    told = advice(TRACEBACK)
    assert "checkpointing (analyze run tries them" in told and "net.py:make_model, analyze advise" in told


def test_which_tensor_a_size_is() -> None:
    """A segment of 20 or 2 MiB is shared by requests of many sizes; a larger one is one tensor's."""
    message = understood(TRACEBACK, "oom.log")
    assert message is not None
    line = message.unknown[0]
    assert line.startswith("which tensor the 2.00 GiB are (some 537 million numbers of float32")
    assert "analyze explain oom.log train.py, with the script's arguments behind --" in line
    small = understood(CACHED)
    assert small is not None and "any tensor of 1 to 10 MiB" in small.unknown[0]
    smallest = understood(CACHED.replace("20.00 MiB", "2.00 MiB"))
    assert smallest is not None and "any tensor of up to 1 MiB" in smallest.unknown[0]


def test_a_nodes_request_names_settings_and_commands() -> None:
    told = advice(_NODE)
    assert "analyze fit model.onnx --device NAME finds the largest" in told
    assert "enable_mem_pattern=0" in told and "kSameAsRequested" in told and "NAME is the GPU's" in told
    message = understood(_NODE, "serve.log")
    assert message is not None and message.operator == "/attention/MatMul"
    assert message.unknown[0] == "which tensor it is: analyze explain serve.log model.onnx --batch N"


def test_vllms_command_has_the_logs_model_and_gpu() -> None:
    log = f"config: model='meta-llama/Llama-3.1-8B', speculative\n{SHARE}{NEEDS.format(there='3.91')}"
    told = advice(log)
    assert "analyze serve hf:meta-llama/Llama-3.1-8B --device 23.65GiB --available 3.91GiB says" in told
    assert "which may be more than the log's" in told
    assert "analyze serve config.json --device NAME says" in advice(NEEDS.format(there="-0.91"))


def test_generating_has_no_checkpointing() -> None:
    line = "loss = loss_fn(model(images), masks)"
    generating = TRACEBACK.replace(
        "a = self.dec1(torch.cat([self.up1(b), a], 1))", "out = model.generate(ids)"
    )
    assert line in generating and "fewer max_new_tokens" in advice(generating)
    assert "checkpointing" not in advice(generating) and "checkpointing" in advice(TRACEBACK)
