"""`flex_attention` where it is compiled: the tensors its Triton kernels write, and no scores.

1. Forward: the logarithms of the sums and the largest scores, a float32 a row and head each, then the output,
   which lies as the query does. The largest scores are dropped at once. For the backward pass stay query,
   key, value, output, the logarithms and the block mask's own tensors.
2. With fewer than 128 rows, keys and values are read in pieces, several a multiprocessor where heads are few:
   each piece has an output of its own in float32 and two numbers a row, which are put together afterwards.
3. Backward: the output's gradient is copied where it is not contiguous (since torch 2.13: where it lies
   otherwise than the output), a float32 a row and head is computed of both, the output is dropped, then the
   three gradients are written.
4. Trained tensors that a `score_mod` holds have their gradients summed in float32.
5. The first time each of these shapes is compiled, with each code of `score_mod` and `mask_mod`, the kernels
   that sum (of rule 2's pieces, and of rule 3's rows) are timed, beside a buffer as large as the GPU's L2
   cache, which clears it: 60 MiB on an H200, measured; on GPUs of another capability at most 128 MiB. In
   single precision the sum of a row is written in place, of which each timed run has a copy.
6. A call that is not inside `torch.compile` is what it is: eager code, with every score.

The records are plain operators of the sizes the compiled code asks for, in its order.

Source: torch 2.11 `torch/_inductor/kernel/flex/flex_attention.py` (`flex_attention`,
`flex_attention_backward`), `flex/flex_decoding.py` (`_use_flex_decoding`, `get_split_k`,
`create_flex_decoding_kernel`), `flex/common.py` (`infer_dense_strides`),
`torch/_inductor/runtime/benchmarking.py` (`InductorBenchmarker`),
`torch/_inductor/runtime/triton_heuristics.py` (`CachingAutotuner.bench`, `maybe_clone_args`),
`torch/_dynamo/guards.py` (`closure_match`: a function's code is guarded),
`torch/_functorch/_aot_autograd/runtime_wrappers.py` (`coerce_to_expected_memory_format`),
`torch/_functorch/config.py` (`guess_tangent_strides_as_outputs`: false in 2.11, true in 2.13; 2.12 is taken
to be as 2.11). Not modelled: tuning (`mode="max-autotune"`), the backends FLASH and CUTEDSL, code around it,
which runs as eager code (`program/compiling.py`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from analyzer.capture.pytorch.importing import once_imported
from analyzer.releases import Span

if TYPE_CHECKING:
    from analyzer.devices import DeviceProfile

_MODULE = "torch.nn.attention.flex_attention"
_NAME = "flex_attention_hop"
_MOST_ROWS_IN_PIECES = 127
_GRADIENT_AS_OUTPUT = Span(since=(2, 13))
Timed = Callable[..., None]
_open = threading.local()  # how many calls of compiled code this thread is in


@contextlib.contextmanager
def compiled_call() -> Iterator[None]:
    """While open, this thread runs code that was to be compiled, attention with it."""
    _open.count = getattr(_open, "count", 0) + 1
    try:
        yield
    finally:
        _open.count -= 1


@contextlib.contextmanager
def compiled_flex(device: DeviceProfile) -> Iterator[None]:
    """While open, attention inside compiled code allocates what its kernels do, once imported."""
    with contextlib.ExitStack() as stack:

        def imported(module: ModuleType) -> None:
            original = getattr(module, _NAME)
            stack.callback(setattr, module, _NAME, original)
            setattr(module, _NAME, _choosing(original, device))

        with once_imported(_MODULE, imported):
            yield


def _choosing(original: Callable[..., Any], device: DeviceProfile) -> Callable[..., Any]:
    """Return the replacement of the attention operator, which allocates as the compiled kernels do."""
    clearing = device.architecture.cleared_bytes
    as_output = device.releases["torch"] in _GRADIENT_AS_OUTPUT
    compiled: set[Any] = set()

    def timed_of(*functions: Any) -> Timed:
        codes = tuple(getattr(function, "__code__", function) for function in functions)

        def timed(tensor: torch.Tensor, key: Any, in_place: bool = False) -> None:
            if (codes, key) not in compiled:
                compiled.add((codes, key))
                clears = tensor.new_empty(clearing // 4, dtype=torch.int)
                if in_place:
                    tensor.clone()
                del clears

        return timed

    def attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        score_mod: Any,
        block_mask: tuple[Any, ...],
        scale: float,
        kernel_options: dict[str, Any],
        *more: Any,
    ) -> Any:
        if not getattr(_open, "count", 0):
            return original(query, key, value, score_mod, block_mask, scale, kernel_options, *more)
        mask = tuple(part for part in block_mask if isinstance(part, torch.Tensor))
        held = tuple(part for part in _held(score_mod) if part.requires_grad)
        pieces = _pieces(query, value, block_mask, kernel_options, device.sm_count)
        timed = timed_of(score_mod, block_mask[-1])
        tensors = (query, key, value, mask, pieces, timed, as_output, *held)
        return _Attention.apply(*tensors)  # type: ignore[no-untyped-call]

    return attention


class _Attention(torch.autograd.Function):
    """The compiled kernels' requests."""

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: tuple[torch.Tensor, ...],
        pieces: int | None,
        timed: Timed,
        as_output: bool,
        *held: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Allocate the result, the logarithms of its sums and its largest scores, as compiled kernels do."""
        rows = query.shape[:-1]
        shape = (*rows, value.shape[-1])
        if pieces is None:
            logarithms = query.new_empty(rows, dtype=torch.float32)
            largest = query.new_empty(rows, dtype=torch.float32)
            out = _lying_as(query, shape)
        else:
            out, logarithms = _in_pieces(query, shape, pieces, timed)
            largest = query.new_empty(0, dtype=torch.float32)
        ctx.mark_non_differentiable(largest)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(query, key, value, out, logarithms, *mask)
        ctx.held, ctx.timed = held, timed
        ctx.as_output = as_output
        return out, logarithms, largest

    @staticmethod
    def backward(ctx: Any, grad: Any, *_: Any) -> tuple[Any, ...]:
        """Allocate the gradients of query, key, value and the tensors that the score function reads."""
        query, key, value, out, logarithms, *mask = ctx.saved_tensors
        ctx.maybe_clear_saved_tensors()
        if grad is None:
            grad = torch.zeros_like(out)
        elif not ctx.as_output:
            grad = grad.contiguous()
        elif grad.stride() != out.stride():
            lying = torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device=out.device)
            grad = lying.copy_(grad)
        delta = torch.empty_like(logarithms)
        ctx.timed(delta, (query.shape, value.shape, query.dtype), query.dtype is torch.float32)
        del out
        grads = [_lying_as(tensor, tensor.shape) for tensor in (query, value, key)]
        trained = [torch.zeros(part.shape, dtype=torch.float32, device=part.device) for part in ctx.held]
        del delta, logarithms, grad, mask
        first, third, second = grads
        gradients = (part.to(held.dtype) for part, held in zip(trained, ctx.held, strict=True))
        return first, second, third, None, None, None, None, *gradients


def _lying_as(tensor: torch.Tensor, shape: Any) -> torch.Tensor:
    """Make a dense tensor with another's order of dimensions, the last one innermost."""
    order = sorted(range(len(shape) - 1), key=tensor.stride().__getitem__)
    strides, step = [1] * len(shape), shape[-1]
    for dimension in order:
        strides[dimension] = step
        step *= shape[dimension]
    return torch.empty_strided(tuple(shape), tuple(strides), dtype=tensor.dtype, device=tensor.device)


def _pieces(
    query: torch.Tensor,
    value: torch.Tensor,
    block_mask: tuple[Any, ...],
    options: dict[str, Any],
    sm_count: int,
) -> int | None:
    """Into how many pieces keys are split, or None where the plain kernel runs."""
    heads, groups, masks = query.shape[1], value.shape[1], block_mask[3].shape[1]
    shared, left = divmod(heads, groups)
    if (
        not 0 < query.shape[-2] <= _MOST_ROWS_IN_PIECES
        or options.get("FORCE_USE_FLEX_ATTENTION", False)
        or options.get("OUTPUT_MAX", False)
        or (masks != 1 and (shared != 1 or masks != heads))
        or left
        or shared & (shared - 1)
    ):
        return None
    return max(sm_count // max(query.shape[0] * groups, 1) * 2, 1)


def _in_pieces(
    query: torch.Tensor, shape: Any, pieces: int, timed: Timed
) -> tuple[torch.Tensor, torch.Tensor]:
    """Combine the output and the logarithms of all pieces."""
    batch, *rest = query.shape[:-1]
    most = query.new_empty((batch, pieces, *rest), dtype=torch.float32)
    sums = query.new_empty((batch, pieces, *rest), dtype=torch.float32)
    parts = query.new_empty((batch, pieces, *rest, shape[-1]), dtype=torch.float32)
    largest = query.new_empty((batch, 1, *rest), dtype=torch.float32)
    total = query.new_empty((batch, *rest), dtype=torch.float32)
    logarithms = torch.empty_like(total)
    timed(query, (query.shape, pieces, "logarithms"))
    del sums
    out = query.new_empty(shape)
    timed(query, (query.shape, pieces, "output"))
    del most
    del parts, largest, total
    return out, logarithms


def _held(function: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors a function of the program reads besides its arguments."""
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # a cell nobody has filled
            if isinstance(cell.cell_contents, torch.Tensor):
                yield cell.cell_contents
