"""Which kernel of PyTorch's own an operator runs, as far as `allocators/process.py` tells kernels apart.

1. One that neither makes nor changes anything on the device runs nothing, nor do `empty` and its kin.
2. A copy from the host is no kernel, and a copy on the device of the same type and order of elements is a
   plain copy of memory (`aten/src/ATen/native/cuda/Copy.cu`, `memcpy_eligible`).
3. Matrix products and convolutions are kernels of cuBLAS and cuDNN, collectives of NCCL.
4. Random numbers, ranges, scans, sorting, joining, pooling, softmax, triangles and `_foreach` operators have
   kernels whose threads need no memory of their own; those of reductions, of what takes indices or classes,
   and of draws check what they are given and may stop the program; all others are taken to be like `fill_`.

Source of 4: `tests/data/h200/driver_holes.json.gz`, the programs "alone" and "alone first".
"""

from __future__ import annotations

from analyzer.allocators.process import KernelNeeds
from analyzer.graph import Operator, TensorMeta
from analyzer.runtimes.pytorch.eager import AnyProgram

# Operators by how their names begin.
_COPIES = ("_to_copy", "copy_", "clone")
_NONE = ("empty", "new_empty", "mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "convolution")
_PLAIN_NAMES = """
    rand normal uniform arange linspace cumsum cumprod sort cat max_pool _softmax _log_softmax tril triu
    _foreach_ native_batch_norm cudnn_batch_norm
"""
_PLAIN = tuple(_PLAIN_NAMES.split())
_ASSERTING_NAMES = """
    sum nansum mean norm linalg_vector_norm var std max. max_dim min. amax amin aminmax argmax argmin
    logsumexp topk any all bernoulli multinomial bincount embedding index gather scatter nll_loss _ctc_loss
    mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy
"""
_ASSERTING = tuple(_ASSERTING_NAMES.split())


def kernel_of(operator: Operator, program: AnyProgram) -> KernelNeeds | None:
    """Return what the operator's PyTorch kernel needs of the driver; None if it has none."""
    on_device = [tensor for tensor in operator.inputs if program.storages[tensor.storage].on_device]
    inputs = {tensor.storage for tensor in on_device}
    outputs = [
        output
        for output in operator.outputs
        if output is not None and output.storage not in inputs and program.storages[output.storage].on_device
    ]
    into = outputs or [tensor for tensor in on_device if tensor.storage in operator.writes]
    library, _, name = operator.name.rpartition("::")
    if not into or library.endswith("c10d_functional") or library == "c10d":
        return None
    if name.startswith(_COPIES):
        source = next((tensor for tensor in on_device if tensor.storage != into[0].storage), None)
        return None if source is None or _layout(source) == _layout(into[0]) else KernelNeeds.STACK
    return kernel_named(name)


def kernel_named(name: str) -> KernelNeeds | None:
    """Return what an operator needs by its name ("sum.dim_IntList")."""
    if name.startswith(_NONE):
        return None
    if name.startswith(_PLAIN):
        return KernelNeeds.PLAIN
    return KernelNeeds.ASSERTING if name.startswith(_ASSERTING) else KernelNeeds.STACK


def _layout(tensor: TensorMeta) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return type, and size and stride of every dimension that has more than one element."""
    pairs = zip(tensor.shape, tensor.stride, strict=True)
    return tensor.dtype, tuple((size, stride) for size, stride in pairs if size != 1)


def by_name() -> dict[str, list[str]]:
    """Return the prefixes of names by kernel: none, plain, asserting; all others need a stack."""
    return {"none": [*_NONE, *_COPIES], "plain": [*_PLAIN], "asserting": [*_ASSERTING]}
