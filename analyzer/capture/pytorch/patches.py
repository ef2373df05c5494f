"""Everything that is replaced in PyTorch while a program is captured, or run to be measured, in one table.

1. A name of PyTorch is replaced only through `replaced`, and only if it stands in `PATCHES`, which says what
   the replacement stands for and which releases of torch need it. A name that this version of torch does not
   have is an error at once: a renamed function must not switch anything off in silence. A name that a module
   only imports from the one it is written in (`torch.cuda.memory_allocated`, of `torch.cuda.memory`) is
   replaced there too.
2. A kernel of PyTorch's dispatcher is replaced only through `registered`; `decisions.py` and `autocast.py`
   hold the tables of those operators, each with its source.
3. Operators of a library that cannot be loaded here are declared only through `declared`.
4. `RELIED_ON` are private names that are not replaced but read. `tests/capture/pytorch/test_patches.py` looks
   all of them up in the torch that is installed.

The replacements lie with their topics; only the reasons are gathered here.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from analyzer.capture.pytorch import build
from analyzer.capture.pytorch.importing import once_imported
from analyzer.releases import Release, Span, parse


@dataclass(frozen=True, slots=True)
class Patch:
    """stands_for: purpose of the replacement. since, until: releases of torch that need it.

    cuda_only: builds without CUDA do not have the name; there it is added. newer: some of these releases do
        not have the name yet; there it stays unknown.
    """

    stands_for: str
    since: Release | None = None
    until: Release | None = None
    cuda_only: bool = False
    newer: bool = False

    @property
    def needed(self) -> bool:
        """Whether the torch that is installed needs it."""
        return parse(torch.__version__) in Span(self.since, self.until)


_ANSWER = "answers for the device profile: nothing is initialised, no GPU is asked"
_NOTHING = "does nothing: there is no GPU to wait for, or to be told"
_GPU = "torch.cuda."

PATCHES: dict[str, Patch] = {
    **{
        _GPU + name: Patch(_ANSWER)
        for name in (
            "is_available", "is_initialized", "device_count", "current_device", "get_device_name",
            "get_device_capability", "get_device_properties", "is_bf16_supported", "is_tf32_supported",
            "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved",
            "mem_get_info", "memory_cached", "max_memory_cached", "default_generators", "memory_stats",
            "memory_stats_as_nested_dict", "memory_summary", "set_per_process_memory_fraction",
            "get_per_process_memory_fraction", "get_allocator_backend", "get_arch_list", "get_gencode_flags",
            "can_device_access_peer", "utilization", "memory_usage", "temperature", "power_draw",
            "clock_rate", "list_gpu_processes", "host_memory_stats", "host_memory_stats_as_nested_dict",
            "current_blas_handle", "get_sync_debug_mode", "cudart", "memory_snapshot", "memory._snapshot",
        )
    },
    **{_GPU + name: Patch(_ANSWER, newer=True) for name in ("device_memory_used", "current_solver_handle",
    "caching_allocator_enable")},
    **{
        _GPU + name: Patch("memory taken by address, of the simulated allocator")
        for name in ("caching_allocator_alloc", "caching_allocator_delete")
    },
    **{
        _GPU + name: Patch("the types that named device and element type together (`legacy_types.py`)")
        for name in (
            "FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "IntTensor", "LongTensor",
            "ShortTensor", "CharTensor", "ByteTensor", "BoolTensor",
        )
    },
    **{
        f"torch.{module}{name}_dlpack": Patch("a CUDA tensor handed from PyTorch to PyTorch is the same "
                                              "memory")
        for module in ("", "utils.dlpack.")
        for name in ("to", "from")
    },
    "torch.ops.load_library": Patch("torchvision's library for CUDA cannot be loaded beside a CPU build "
                                    "(`detection.py`)"),
    "torch.set_default_tensor_type": Patch("takes the CUDA types of `legacy_types.py`"),
    "torch.Tensor._make_wrapper_subclass": Patch("a wrapper lies where what it wraps does: autograd's engine "
                                                 "looks for its GPU"),
    "torch.Tensor.__new__": Patch("`torch.Tensor(2, 3)` is a tensor of the default type, which may be the "
                                  "GPU's"),
    **{
        _GPU + name: Patch("CUDA graphs: what is captured takes its memory from a pool of its own "
                           "(`device/graphs.py`)")
        for name in ("CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing")
    },
    **{
        _GPU + name: Patch(_NOTHING)
        for name in (
            "init", "_lazy_init", "set_device", "synchronize", "empty_cache", "reset_peak_memory_stats",
            "reset_max_memory_allocated", "reset_max_memory_cached", "reset_accumulated_memory_stats",
            "reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats", "ipc_collect",
            "set_sync_debug_mode", "device_of", "device", "nvtx.range_push", "nvtx.range_pop",
            "nvtx.range_start", "nvtx.range_end", "nvtx.mark", "profiler.start", "profiler.stop",
        )
    },
    **{
        f"torch.cuda.memory.{name}": Patch("the history of an allocator that is simulated is in the estimate")
        for name in ("_record_memory_history", "_dump_snapshot")
    },
    **{
        f"torch.cuda.{name}": Patch("no GPU's generator is asked or seeded: nothing random on the device has "
                                    "a value")
        for name in (
            "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed",
            "seed_all", "set_rng_state", "set_rng_state_all",
        )
    },
    **{
        _GPU + name: Patch("streams and events that can be made, used and waited for: their numbers decide "
                           "who serves a request")
        for name in ("Stream", "ExternalStream", "Event", "stream", "current_stream", "default_stream",
        "set_stream", "get_stream_from_external")
    },
    **{
        f"torch.{name}": Patch("streams and events by PyTorch's newer names: they are the pretended device's")
        for name in ("Stream", "Event", "accelerator.current_stream", "accelerator.set_stream",
        "accelerator.synchronize")
    },
    **{
        f"torch.accelerator.{name}": Patch(_ANSWER)
        for name in (
            "current_accelerator", "is_available", "device_count", "current_device_index",
            "current_device_idx", "set_device_index", "set_device_idx",
        )
    },
    **{
        f"torch.accelerator.{name}": Patch(_ANSWER, since=(2, 9))
        for name in (
            "empty_cache", "memory_allocated", "max_memory_allocated", "memory_reserved",
            "max_memory_reserved", "memory_stats", "reset_peak_memory_stats",
            "reset_accumulated_memory_stats",
        )
    },
    **{
        f"torch.accelerator.{name}": Patch(_ANSWER, newer=True)
        for name in ("get_memory_info", "empty_host_cache", "get_device_capability", "device_index")
    },
    **{
        f"torch.Tensor.{name}": Patch("pinned memory is host memory like any other; data loaders pin in a "
                                      "thread of their own")
        for name in ("pin_memory", "is_pinned")
    },
    **{
        f"torch.UntypedStorage.{name}": Patch("storages of CUDA tensors lie on the GPU, each at an address "
                                              "of its own, until they give theirs back")
        for name in ("data_ptr", "device", "is_cuda", "cuda")
    },
    **{
        f"torch._C.{name}": Patch("copies between the GPUs of one process",
        cuda_only=True)
        for name in (
            "_scatter", "_scatter_out", "_gather", "_gather_out", "_broadcast", "_broadcast_out",
            "_broadcast_coalesced",
        )
    },
    **{
        f"torch._C.{name}": Patch("the current one of the pretended GPUs", cuda_only=True)
        for name in ("_accelerator_exchangeDevice", "_accelerator_maybeExchangeDevice")
    },
    **{
        f"torch.cuda.nccl.{name}": Patch("NCCL between GPUs of one process; a CPU build has none")
        for name in ("is_available", "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter")
    },
    "torch.nn.parallel._functions._get_stream": Patch("the stream inputs are copied on is made once a "
                                                      "program, not once a process"),
    "torch.Tensor.record_stream": Patch("takes a stream of the pretended device, which PyTorch's own parser "
                                        "refuses"),
    **{
        f"torch.distributed.distributed_c10d.{name}": Patch("process groups of a world that is not there",
        cuda_only=True)
        for name in (
            "ProcessGroupNCCL", "ProcessGroupGloo", "_NCCL_AVAILABLE", "default_pg_nccl_timeout",
            "rendezvous", "broadcast_object_list", "batch_isend_irecv", "_register_process_group",
        )
    },
    "torch.distributed.distributed_c10d.ProcessGroupNCCL2": Patch(
        'what "nccl" makes since torch 2.15', since=(2, 15), cuda_only=True
    ),
    **{
        f"torch.distributed.{name}": Patch("objects another rank sends are known where that rank says them "
                                           "(`messages.py`)")
        for name in (
            "broadcast_object_list", "scatter_object_list", "gather_object", "all_gather_object",
            "optim.zero_redundancy_optimizer._broadcast_object",
        )
    },
    **{
        f"torch.distributed.{module}split_group": Patch("the fake process group splits no communicator: it "
                                                        "is one of its own")
        for module in ("", "distributed_c10d.", "device_mesh.")
    },
    "torch.distributed.batch_isend_irecv": Patch("tells that messages go through the group's communicator"),
    **{
        f"torch.distributed.{name}": Patch("nothing listens: what other ranks write is asked of them "
                                           "(`world/store.py`)")
        for name in ("TCPStore", "FileStore", "HashStore")
    },
    "torch._C._distributed_c10d.FakeProcessGroup._set_sequence_number_for_group": Patch(
        "backends of other names count their collectives; the fake one refuses to", cuda_only=True
    ),
    "torch._C._distributed_c10d.Logger.set_runtime_stats_and_log": Patch("times nobody reads; it says on "
                                                                         "stderr that no GPU has them"),
    "torch.nn.parallel.distributed._verify_param_shape_across_processes": Patch(
        "C++ compares values with other ranks: they have the same"
    ),
    "torch.compile": Patch("what a compiler would make of a program is not followed: it runs as eager code "
                           "(`compiling.py`)"),
    "torch.jit.trace": Patch("what is traced runs as eager code, as often as it would (`tracing.py`)"),
    "torch.jit.ScriptModule": Patch("its classes are plain modules, as with PYTORCH_JIT=0 (`tracing.py`)"),
    "torch.jit.is_scripting": Patch("attention keeps what it drops since torch 2.12, in figures of an older "
                                    "one (`attention.py`)"),
    "torch.jit.ScriptFunction.__call__": Patch("a caveat says that TorchScript runs it (`tracing.py`)"),
    "torch.jit.script_method": Patch("what TorchScript's interpreter would run is run as eager code "
                                     "(`tracing.py`)"),
    "torch.utils.data.dataloader._BaseDataLoaderIter._next_index": Patch(
        "a note says where sizes of batches are drawn (`batches.py`)"
    ),
    "torch.export.export": Patch("its fake tensors are not the pretended device's (`exporting.py`)"),
    **{
        name: Patch("the rank that is followed runs here instead of in a process of its own")
        for name in (
            "torch.multiprocessing.spawn", "torch.multiprocessing.start_processes",
            "multiprocessing.process.BaseProcess.start",
        )
    },
    **{
        f"torch.nested._internal.sdpa.can_use_{name}_attention": Patch("C++ looks for the kernels of a GPU "
                                                                       "that is there (`nested.py`)")
        for name in ("flash", "efficient")
    },
    "torch.Generator": Patch("a build without CUDA makes none for a GPU (`device/generators.py`)"),
    **{
        f"torch.{name}": Patch("programs ask what PyTorch was built with before they choose a path "
                               "(`build.json`)", cuda_only=True)
        for name in (*build.names(), "_C._cuda_getDeviceCount", "_C._cuda_set_cudnn_benchmark_limit",
        "backends.cudnn.benchmark_limit")
    },
    "torch._C._get_accelerator": Patch("the kind of device FSDP and device meshes are made for"),
    "torch.UntypedStorage._set_from_file": Patch("what a file holds is not read into memory that is not "
                                                 "there (`files.py`)"),
    "torch.UntypedStorage.resize_": Patch("memory given back or taken by a storage that stays the same"),
    "torch.backends.cudnn.is_acceptable": Patch(
        "meta tensors stand for CUDA tensors, which cuDNN takes in its types (no bfloat16, so recurrent "
        "layers of that type "
        "keep separate weights)"
    ),
    **{
        f"torch.backends.cuda.can_use_{name}_attention": Patch("which kernels of attention the device has "
                                                               "(`attention.py`)")
        for name in ("flash", "efficient", "cudnn")
    },
    "torch.backends.cudnn.rnn.get_cudnn_mode": Patch("cudnnRNNMode_t by number: the enumeration is in CUDA "
                                                     "builds only"),
    "torch._has_compatible_shallow_copy_type": Patch(
        "CPU and CUDA tensors are of one kind to `Module.to`, which then keeps its parameters' identity"
    ),
    "torch.Tensor._reduce_ex_internal": Patch("tensors without memory are zeros in files (`files.py`)"),
    "torch.optim.Optimizer.__init__": Patch("tells that the program has one: it is to take steps "
                                            "(`script.py`)"),
    "torch.autograd.backward": Patch("tells when a backward pass is over (`script.py`)"),
    "torch._use_cudnn_rnn_flatten_weight": Patch(
        "true on CUDA; it has no tensor among its arguments, so no torch-function mode sees it"
    ),
    "torch._C._group_tensors_by_device_and_dtype": Patch(
        "C++ groups tensor lists by their real device; by the answer `clip_grad_norm_` decides for or "
        "against foreach"
    ),
    "torch.overrides.has_torch_function": Patch(
        "`MultiheadAttention` refuses its fast path while any torch-function mode is active; ours changes no "
        "results"
    ),
    "torch.autograd.has_torch_function": Patch(
        "autograd would leave the torch-function mode before user code runs in the backward pass"
    ),
    "torch.autograd.graph.saved_tensors_hooks.__init__": Patch(
        "hooks on saved tensors run inside operators, where the torch-function mode is left; they must see "
        "CUDA tensors"
    ),
    "torch.clear_autocast_cache": Patch("the cache of casts of meta tensors is ours (`autocast.py`)"),
    "torch.set_autocast_enabled": Patch("a call's handler cannot see whether autocast was on for the call "
                                        "(`autocast.py`)"),
    "torch.amp.GradScaler._maybe_opt_step": Patch(
        "in a real run, steps are taken although random weights overflow (`analyzer_verify/runs/program.py`)"
    ),
    **{
        f"torch.Tensor.{name}": Patch("in a real run, large tensors repeat one block of random values "
                                      "(`analyzer_verify/runs/program.py`)")
        for name in ("normal_", "uniform_")
    },
    "torch._C._cuda_jiterator_compile_and_launch_kernel": Patch(
        "an elementwise kernel of the program's own code: its results (`device/functions.py`)", cuda_only=True
    ),
    "torch._C._cuda_CUDAAllocator_AllocatorState": Patch(
        "a class that `torch._dynamo.reset` imports with CUDA graphs' trees, of which there are none",
        cuda_only=True,
    ),
    "torch._C._cuda_getCurrentRawStream": Patch("the default stream, by number; libraries look for it",
    cuda_only=True), "torch.autograd._engine_run_backward": Patch(
        "nodes made in a backward pass are numbered by autograd's own thread (`device_thread.py`)"
    ),
    "threading.Thread.start": Patch("a program's threads are followed too: modes of PyTorch's hold for one "
                                    "thread (`threads.py`)"),
    "threading.Thread.join": Patch("a wait for a thread orders those before and after it (`threads.py`)"),
    "torch.nn.Module.__call__": Patch("tells which module is running: operators are attributed to it"),
}  # fmt: skip

RELIED_ON: dict[str, str] = {
    "torch._meta_registrations.meta__scaled_dot_product_flash_attention": (
        "its results but the first, of older releases (`decisions.py`)"
    ),
    "torch.distributed.tensor.debug._clear_sharding_prop_cache": (
        "so is where another rank lies on a mesh (`world/groups.py`)"
    ),
    "torch._subclasses.fake_tensor.FakeTensorMode.cache_clear": (
        "shapes of another rank are forgotten (`world/groups.py`)"
    ),
    "torch.serialization._package_registry": "who puts storages of a file on their device (`files.py`)",
    "torch.autograd.graph._engine_run_backward": (
        "the frame from which the engine asks for sums of gradients (`fan_in.py`)"
    ),
    "torch.overrides._pop_mode_temporarily": (
        "leaving torch-function modes while a model is exported (`exporting.py`)"
    ),
    "torch._library.custom_ops.OPDEFS": (
        "the bodies of operators made of Python functions (`recording/custom.py`)"
    ),
    "torch._C._storage_Use_Count": "how many hold a gradient's storage (`fan_in.py`)",
    "torch.utils._python_dispatch.TorchDispatchMode._should_skip_dynamo": (
        "whether the recorder is wrapped for the compiler"
    ),
    "torch._compile._disable_dynamo": "remembers in a function what to call instead of it (`no_compiler.py`)",
    "torch.utils._python_dispatch._disable_current_modes": (
        "making host tensors nobody follows (`host.py`, `recording/`)"
    ),
    "torch._C._current_autograd_node": "the node of the backward pass an operator runs for (`places.py`)",
    "torch._C._autograd._get_sequence_nr": "which forward operator made a node (`places.py`)",
    "torch._C._get_dispatch_mode": "whether fake tensors are asked for shapes (`recorder.py`)",
    **{
        f"torch._C.{name}": "leaving the recorder for calls among host tensors (`fake_cuda.py`)"
        for name in (
            "_len_torch_dispatch_stack",
            "_pop_torch_dispatch_stack",
            "_push_on_torch_dispatch_stack",
        )
    },
    "torch._C._AutoDispatchBelowADInplaceOrView": (
        "a kernel of Triton's is launched below autograd (`triton_kernels.py`)"
    ),
    **{
        f"torch.utils._triton.{name}.cache_clear": (
            "whether Triton is there is asked anew (`triton_kernels.py`)"
        )
        for name in ("has_triton", "has_triton_package")
    },
    "torch._C._swap_tensor_impl": "a tensor that becomes another one and stays the same object (`host.py`)",
    "torch._C._len_torch_function_stack": "whether a torch-function mode is on (`fake_cuda.py`)",
    "torch._C._get_function_stack_at": "which device a thread has for its default (`default_device.py`)",
    "torch.utils._device.DeviceContext": "the same",
    "torch.utils._device._device_constructors": "what makes a tensor on it (`fake_cuda.py`)",
    **{
        f"torch._C._functorch.{name}": "the tensor behind those of `torch.func`'s transforms (`parts.py`)"
        for name in ("is_functorch_wrapped_tensor", "get_unwrapped")
    },
    "torch._C._functorch.peek_interpreter_stack": "whether a transform is at work (`device_thread.py`)",
    "torch._C._dispatch_has_kernel_for_dispatch_key": "whether an operator is composite (`schema.py`)",
    "torch._C._ExcludeDispatchKeyGuard": "leaving autocast inside its own kernels (`autocasting.py`)",
    "torch._C._ForceDispatchKeyGuard": (
        "which keys act on parts of a composite operator (`autocasting.py`, `composite.py`)"
    ),
    "torch._C._dispatch_tls_set_dispatch_key_included": (
        "switching AutocastCUDA on for meta tensors (`autocast.py`)"
    ),
}

# It imports FSDP and DTensor.
_LATE = "torch.distributed.optim"


def look_up(where: str) -> tuple[Any, str]:
    """Return a dotted name's object and last part. Raises AttributeError if torch lacks a needed one."""
    head, _, name = where.rpartition(".")
    parts = head.split(".")
    owner: Any = importlib.import_module(parts[0])
    for position, part in enumerate(parts[1:], 2):
        module = ".".join(parts[:position])
        if not hasattr(owner, part):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(module)
        if not hasattr(owner, part) and module in sys.modules:  # which its package learns once it is imported
            owner = sys.modules[module]
        else:
            owner = getattr(owner, part)
    if where not in PATCHES or not PATCHES[where].cuda_only:
        getattr(owner, name)
    return owner, name


@contextlib.contextmanager
def replaced(replacements: Mapping[str, Any]) -> Iterator[None]:
    """While open, the named parts of PyTorch are the ones given; afterwards, also after an error, its own
    again. Those of a package that costs a second to import (`_LATE`) are, once the program has imported it.

    Raises KeyError for a name that is not in `PATCHES`, AttributeError for one this torch does not have.
    """
    late = {where: new for where, new in replacements.items() if where.startswith(f"{_LATE}.")}
    with contextlib.ExitStack() as stack:
        for where, replacement in replacements.items():
            if where not in late:
                _replace(where, replacement, stack)
        if late:

            def imported(_: ModuleType) -> None:
                for where, replacement in late.items():
                    _replace(where, replacement, stack)

            stack.enter_context(once_imported(_LATE, imported))
        yield


def _replace(where: str, replacement: Any, stack: contextlib.ExitStack) -> None:
    """Replace one entry of `PATCHES` until the stack is closed."""
    if not PATCHES[where].needed:
        return
    try:
        owner, name = look_up(where)
    except AttributeError:
        if PATCHES[where].newer:
            return
        raise
    own = name in vars(owner)
    # A setting of a build with CUDA (`torch.backends.cudnn.benchmark_limit`) is its module's class's, and
    # cannot be taken away.
    setting = isinstance(owner, ModuleType) and hasattr(type(owner), name)
    original = vars(owner)[name] if own else getattr(owner, name) if setting else None
    if setting:  # which PyTorch's own tests freeze (`disable_global_flags`)
        stack.callback(_set, owner, name, original)
        _set(owner, name, replacement)
        return
    setattr(owner, name, replacement)
    if own:
        stack.callback(setattr, owner, name, original)
    else:
        stack.callback(delattr, owner, name)
    home = sys.modules.get(getattr(original, "__module__", None) or "", owner)
    if home is not owner and isinstance(owner, ModuleType) and vars(home).get(name) is original:
        setattr(home, name, replacement)
        stack.callback(setattr, home, name, original)


def _set(owner: Any, name: str, value: Any) -> None:
    with torch.backends.__allow_nonbracketed_mutation():
        setattr(owner, name, value)


def declared(namespace: str, schemas: Mapping[str, str]) -> tuple[torch.library.Library, list[str]]:
    """Declare operators of a library that does not load; return those not declared before.

    They are there as long as the `Library` is.
    """
    schemas_of = torch._C._jit_get_schemas_for_operator
    new = [name for name in schemas if not schemas_of(f"{namespace}::{name}")]
    library = torch.library.Library(namespace, "FRAGMENT")
    for name in new:
        library.define(name + schemas[name])
    return library, new


@contextlib.contextmanager
def registered(key: str, kernels: Mapping[Any, Callable[..., Any]], override: bool = False) -> Iterator[None]:
    """While open, these overloads of `aten` have these kernels under a dispatch key of PyTorch's.

    override: PyTorch has kernels of its own there, which are back afterwards.
    """
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        # Replacing PyTorch's own kernels for the time of a capture is the point.
        warnings.filterwarnings("ignore", message=".*[Oo]verrid.*")
        for overload, function in kernels.items():
            if (
                key == "Meta"
            ):  # `impl` refuses where PyTorch has a composite kernel, which a GPU's own comes before
                assert library.m is not None
                library.m.impl(overload.name().partition("::")[2], key, function, False)
            else:
                library.impl(overload, function, key, allow_override=override)
    try:
        yield
    finally:
        library._destroy()
