"""Results that are remembered are those the meta kernels give."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from analyzer.capture.pytorch.kernels.results import convolution
from analyzer.capture.pytorch.recording.meta_cache import MetaCache
from tests.capture.pytorch.captures import traced

aten = torch.ops.aten


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


CALLS: list[tuple[Any, tuple[Any, ...]]] = [
    (aten.native_layer_norm.default, (meta(4, 8), [8], meta(8), meta(8), 1e-5)),
    (aten.native_layer_norm.default, (meta(4, 8, dtype=torch.bfloat16), [8], None, None, 1e-5)),
    (aten.addmm.default, (meta(3), meta(5, 4), meta(3, 4).t())),
    (aten.mul.Tensor, (meta(2, 1, 3), meta(4, 1))),
    (aten.mul.Tensor, (meta(2, dtype=torch.int64), 2.0)),
    (aten.mul.Tensor, (meta(2, dtype=torch.int64), 2)),
    (aten.mul.Tensor, (meta(2, dtype=torch.int64), True)),
    (aten.gelu.default, (meta(2, 3, 4, 4).to(memory_format=torch.channels_last),)),
    (aten.sum.dim_IntList, (meta(4, 5), [1], True)),
    (aten.sum.dim_IntList, (meta(4, 5), [-2], True)),
    (aten.split.Tensor, (meta(4, 6), 2, 1)),
    (aten._unsafe_view.default, (meta(4, 6), [24])),
    (aten.cat.default, ([meta(2, 3), meta(5, 3)],)),
    (aten.native_dropout.default, (meta(3, 3), 0.5, True)),
]  # fmt: skip


def looks(out: Any) -> list[Any]:
    results = [out] if isinstance(out, torch.Tensor) else list(out)
    return [
        None if t is None else (t.shape, t.stride(), t.dtype, t.device.type, t.untyped_storage().nbytes())
        for t in results
    ]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_the_second_answer_is_the_first(number: int) -> None:
    """One cache for all calls, each asked twice after all the others: nothing is taken for something else."""
    cache = MetaCache()
    for func, args in CALLS:
        cache.call(func, args, {})
    func, args = CALLS[number]
    expected = func(*args)
    found = cache.call(func, args, {})
    assert looks(found) == looks(expected) and type(found) is type(expected)
    shared = args[0].untyped_storage()._cdata if isinstance(args[0], torch.Tensor) else None
    first = expected if isinstance(expected, torch.Tensor) else expected[0]
    is_view = first.untyped_storage()._cdata == shared
    again = found if isinstance(found, torch.Tensor) else found[0]
    assert (again.untyped_storage()._cdata == shared) == is_view


def test_every_result_is_a_storage_of_its_own() -> None:
    def twice() -> Any:
        x = torch.ones(4, 4, device="cuda")
        return [torch.nn.functional.gelu(x) for _ in range(3)]

    graph = traced(twice)
    made = [o.outputs[0].storage for o in graph.operators if o.name == "aten::gelu.default" and o.outputs[0]]
    assert len(set(made)) == 3


def test_what_ran_with_cudnn_is_not_the_answer_without() -> None:
    """PyTorch's own kernels make a contiguous result, cuDNN one that lies as the input."""
    cache = MetaCache()
    x = meta(2, 3, 8, 8).to(memory_format=torch.channels_last)
    args = (x, meta(4, 3, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    assert cache.call(convolution, args, {}).stride() == (144, 1, 24, 4)
    with torch.backends.cudnn.flags(enabled=False):
        assert cache.call(convolution, args, {}).stride() == (144, 36, 6, 1)


def test_a_call_that_writes_to_a_tensor_returns_it_again() -> None:
    """Also with `out=`; the meta kernel is called once."""
    cache, calls = MetaCache(), 0

    class Counted(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal calls
            calls += 1
            return func(*args, **(kwargs or {}))

    with Counted():
        for _ in range(3):
            target, other = meta(4, 3), meta(3)
            assert cache.write(aten.mul_.Tensor, (target, other), {}, [target]) is target
            out = meta(4, 5)
            assert cache.write(aten.mm.out, (target, meta(3, 5)), {"out": out}, [out]) is out
    # What the loop makes, and each operator once.
    assert calls == 3 * 4 + 2


def test_a_call_that_writes_is_made_where_it_changes_a_form_or_may_fail() -> None:
    cache = MetaCache()
    for _ in range(2):
        out = meta(0)
        assert cache.write(aten.mm.out, (meta(4, 3), meta(3, 5)), {"out": out}, [out]).shape == (4, 5)
    fresh = meta(7)
    cache.write(aten.mul_.Tensor, (fresh, meta(7)), {}, [fresh])
    with pytest.raises(RuntimeError):
        cache.write(aten.mul_.Tensor, (fresh, meta(6)), {}, [fresh])
