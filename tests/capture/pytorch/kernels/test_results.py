"""Shapes, strides and types of results, as an H200 made them: every distinct call of the two recordings, and by hand."""

from __future__ import annotations

import collections
import functools
import gzip
import json
import random
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from analyzer.capture.pytorch.kernels.layouts import channels_last_like, convolution_format
from analyzer.capture.pytorch.kernels.results import META_KERNELS
from analyzer.devices import load
from tests.capture.pytorch.captures import Model, names, step, the, traced
from tests.paths import DATA

CONSTANTS = {
    str(value): value
    for value in vars(torch).values()
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format))
}
aten = torch.ops.aten

# Operators whose result sizes depend on values, and the calls recorded of them.
BY_VALUE = {"aten._unique2.default": 20, "aten.bincount.default": 10, "aten.nonzero.default": 10,
            "aten.unique_consecutive.default": 10, "aten.index.Tensor": 11}  # fmt: skip
# Composite here: `kernels/decisions.py` takes it apart (`test_decisions.py`).
COMPOSITE = {"aten._native_multi_head_attention.default": 1}
# Recorded on tensors that lie otherwise (`benchmarks/operators/layouts.py` of commit cf817472): results whose sizes are data, arguments that the recording keeps
# as text or that are copied from a meta tensor, what the capture asks nobody (`use_..._ctc_loss`) or takes apart first.
LYING = {
    "aten.masked_select.default": 14, "aten.nonzero.default": 7, "aten._unique.default": 2, "aten._unique2.default": 3,
    "aten.unique_consecutive.default": 3, "aten.repeat_interleave.Tensor": 1, "aten.mul.Scalar": 9, "aten._to_copy.default": 2,
    "aten._use_cudnn_ctc_loss.default": 3, "aten._use_cudnn_ctc_loss.Tensor": 5, "aten._use_miopen_ctc_loss.default": 3,
    "aten._use_miopen_ctc_loss.Tensor": 5, "aten._ctc_loss.Tensor": 9, "aten._ctc_loss_backward.Tensor": 9, "aten.view_copy.default": 2,
}  # fmt: skip
# As wrong as this: cuDNN refuses an output padding as large as the stride, and another kernel's result is contiguous; an operator of exported
# programs alone.
WRONG = {
    "aten.convolution.default": 1,
    "aten.convolution_backward.default": 1,
    "aten.batch_norm_backward.default": 1,
}


class CutShort(Exception):
    """The recording replaced a long list by its length."""


def rebuilt(value: Any) -> Any:
    """A recorded argument: ["T", shape, dtype, stride[, offset, device]] is a tensor."""
    if isinstance(value, list):
        if value and value[0] == "T":
            _, shape, dtype, stride, offset, device = (*value, 0, "cuda")[:6] if len(value) < 6 else value[:6]
            reach = sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + 1
            whole = torch.empty(
                offset + (0 if 0 in shape else reach), dtype=getattr(torch, dtype),
                device="meta" if device == "cuda" else "cpu",
            )  # fmt: skip
            return whole.as_strided(shape, stride, offset)
        if len(value) == 2 and value[0] == "L":
            raise CutShort
        return [rebuilt(part) for part in value]
    if isinstance(value, str):
        return torch.device("meta") if value.startswith("cuda") else CONSTANTS.get(value, value)
    return value


def recorded() -> Iterator[list[Any]]:
    """Every recorded call: operator, arguments, keywords, results."""
    for name in ("operators_h200.json.gz", "h200/operators_layouts.json.gz"):
        with gzip.open(DATA / name, "rt") as file:
            for calls in json.load(file)["cases"].values():
                yield from ([row[0], *row[2:5]] for row in calls if not isinstance(calls, str))
    with tarfile.open(DATA / "probe_h200.tar") as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member) if member.isfile() else None
            raw = content.read() if content else b""
            if raw:
                yield from ([row[1], *row[4:7]] for row in json.loads(gzip.decompress(raw))["rows"])


@functools.cache
def distinct() -> tuple[list[Any], ...]:
    found = {json.dumps(call): call for call in recorded()}
    left_out = ("profiler.", "aten._local_scalar_dense.")
    return tuple(
        call
        for call in found.values()
        if not call[0].startswith(left_out) and not from_a_mask_on_the_host(call)
    )


def from_a_mask_on_the_host(call: list[Any]) -> bool:
    """How many are chosen is data that nobody recorded."""
    return call[0] == "aten.index.Tensor" and "'bool'" in str(call[1]) and "'cpu'" in str(call[1])


def described(result: Any) -> Any:
    """Shape, type and strides; the stride of a dimension of size 1 says nothing."""
    shape, dtype, stride = (
        (list(result.shape), str(result.dtype)[6:], result.stride())
        if isinstance(result, torch.Tensor)
        else (result[1], result[2], result[3])
    )
    free = [0 if size == 1 or 0 in shape else step for size, step in zip(shape, stride, strict=True)]
    return shape, dtype, free


def computed(name: str, args: Any, kwargs: Any) -> list[Any]:
    namespace, base, overload = name.split(".")
    operator = getattr(getattr(getattr(torch.ops, namespace), base), overload)
    out = (META_KERNELS.get(operator) or operator)(*args, **kwargs)
    leaves = [out] if isinstance(out, torch.Tensor) else torch.utils._pytree.tree_leaves(out)
    return [described(t) for t in leaves if isinstance(t, torch.Tensor)]


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.campaign)])
def test_every_recorded_call(every: int) -> None:
    """Every third here, of all operators; all of them with `-m campaign`."""
    differing: dict[str, list[Any]] = collections.defaultdict(list)
    checked = 0
    for name, arguments, keywords, results in sorted(distinct(), key=lambda call: call[0])[::every]:
        try:
            args, kwargs = rebuilt(arguments), {key: rebuilt(value) for key, value in keywords.items()}
        except CutShort:
            continue
        checked += 1
        expected = [described(result) for result in results if result and result[0] == "T"]
        try:
            with torch.no_grad():
                found: Any = computed(name, args, kwargs)
        except (NotImplementedError, RuntimeError) as error:
            found = str(error)
        if found != expected:
            differing[name].append((arguments, keywords, found, expected))
    counts = collections.Counter({name: len(found) for name, found in differing.items()})
    known = (
        collections.Counter(BY_VALUE)
        + collections.Counter(COMPOSITE)
        + collections.Counter(LYING)
        + collections.Counter(WRONG)
    )
    assert counts == known if every == 1 else counts <= known, {
        name: found[:2] for name, found in differing.items() if counts[name] != known[name]
    }
    assert checked > 24_000 // every and len({call[0] for call in distinct()}) > 550


class TestChannelsLast:
    @pytest.mark.parametrize(("shape", "stride", "expected"), [
        ((2, 3, 4, 5), (60, 20, 5, 1), False),
        ((2, 3, 4, 5), (60, 1, 15, 3), True),
        ((2, 1, 4, 5), (20, 20, 5, 1), False),
        ((2, 1, 4, 5), (20, 1, 5, 1), True),
        ((2, 3, 1, 1), (3, 1, 3, 3), True),  # as a channels-last pooling leaves it
        ((2, 3, 1, 1), (3, 1, 1, 1), False),  # contiguous
        ((1, 1, 1, 1), (1, 1, 1, 1), False),
        ((2, 3, 4, 5), (20, 0, 5, 1), False),  # expanded
        ((0, 3, 4, 5), (60, 1, 15, 3), False),
        ((2, 3, 4, 5, 6), (360, 1, 90, 18, 3), True),
        ((2, 3, 4), (12, 1, 3), False),
    ])  # fmt: skip
    def test_strides(self, shape: Any, stride: Any, expected: bool) -> None:
        assert channels_last_like(torch.empty_strided(shape, stride, device="meta")) is expected

    def test_format_of_a_convolution(self) -> None:
        def layout(x: Any, weight: Any, transposed: bool = False, more: int = 0) -> torch.memory_format:
            spatial = x.dim() - 2
            return convolution_format(x, weight, [1] * spatial, transposed, [more] * spatial)

        plain, turned = torch.empty(2, 3, 4, 5, device="meta"), torch.empty(2, 3, 4, 5, device="meta")
        turned = turned.to(memory_format=torch.channels_last)
        assert layout(plain, plain) is torch.contiguous_format
        assert (
            layout(plain, turned)
            is layout(turned, plain)
            is layout(turned, plain, True)
            is torch.channels_last
        )
        assert layout(turned.double(), plain) is layout(turned, plain, True, 1) is torch.contiguous_format
        volume = torch.empty(1, 2, 3, 4, 5, device="meta").to(memory_format=torch.channels_last_3d)
        assert layout(volume, volume) is torch.channels_last_3d
        with torch.backends.cudnn.flags(enabled=False):
            assert layout(turned, turned) is torch.contiguous_format

    @pytest.mark.parametrize("groups", [1, 4])
    def test_bfloat16_where_cudnn_lacks_it(self, groups: int) -> None:
        """Emulated as a T4, torch 2.11 gives cuDNN the depthwise one alone."""
        layer = nn.Conv2d(4, 4, 3, groups=groups, dtype=torch.bfloat16).to(memory_format=torch.channels_last)

        def convolve() -> None:
            result = layer.to("cuda")(torch.ones(2, 4, 9, 9, dtype=torch.bfloat16, device="cuda"))
            assert channels_last_like(result) == (groups > 1)

        traced(convolve, load("t4"))


class TestConvolution:
    @pytest.mark.parametrize(("layer", "shape"), [
        (nn.Conv1d(4, 6, 3, padding=1, stride=2), (2, 4, 9)),
        (nn.Conv2d(4, 6, (3, 5), padding=(1, 2), stride=(2, 1), dilation=(1, 2)), (2, 4, 9, 11)),
        (nn.Conv2d(4, 8, 3, groups=4, bias=False), (2, 4, 9, 9)),
        (nn.Conv3d(2, 3, 3), (1, 2, 5, 6, 7)),
        (nn.Conv2d(4, 6, 3, padding="same"), (2, 4, 9, 9)),
        (nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (2, 4, 9, 9)),
        (nn.ConvTranspose1d(4, 6, 3, stride=2), (2, 4, 9)),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), (2, 4, 9, 9)),
        (nn.ConvTranspose3d(2, 4, 3, dilation=2), (1, 2, 5, 6, 7)),
        (nn.Conv2d(4, 6, 3), (4, 9, 9)),  # no batch
    ])  # fmt: skip
    def test_shapes_are_the_cpus(self, layer: nn.Module, shape: tuple[int, ...]) -> None:
        x = torch.zeros(shape)
        graph = step(layer, x)
        made = [o for o in graph.operators if o.name == "aten::convolution.default"]
        expected = tuple(layer(x).shape)
        assert made[-1].outputs[0] and made[-1].outputs[0].shape[-len(expected) :] == expected
        backward = the(graph, "convolution_backward").outputs
        assert backward[0] is None and backward[1] and backward[1].shape == tuple(layer.weight.shape)

    def test_channels_last_weight_turns_the_result(self) -> None:
        def convolve() -> Any:
            weight = torch.empty(4, 3, 3, 3, device="cuda").to(memory_format=torch.channels_last)
            return torch.conv2d(torch.empty(1, 3, 8, 8, device="cuda"), weight)

        result = the(traced(convolve), "convolution").outputs[0]
        assert result and result.stride == (144, 1, 24, 4)

    def test_impossible_ones_raise(self) -> None:
        weight = torch.empty(4, 3, 3, 3, device="meta")
        rest = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        kernel = META_KERNELS[aten.convolution.default]
        with pytest.raises(RuntimeError, match="to have 3 channels"):
            kernel(torch.empty(1, 2, 8, 8, device="meta"), weight, *rest)
        with pytest.raises(RuntimeError, match=r"too small|can't be greater"):
            kernel(torch.empty(1, 3, 2, 8, device="meta"), weight, *rest)
        with pytest.raises(RuntimeError, match="must be the same"):
            kernel(torch.empty(1, 3, 8, 8, device="meta", dtype=torch.float16), weight, *rest)


class TestRecurrent:
    @pytest.mark.parametrize("batch_first", [False, True])
    @pytest.mark.parametrize("layer", [
        nn.LSTM(5, 6), nn.LSTM(5, 6, 2, bidirectional=True), nn.LSTM(5, 6, proj_size=3), nn.GRU(5, 6, 2), nn.RNN(5, 6),
        nn.LSTM(5, 6, bias=False),
    ])  # fmt: skip
    def test_shapes_are_the_cpus(self, layer: nn.RNNBase, batch_first: bool) -> None:
        layer.batch_first = batch_first
        x = torch.zeros(4, 7, 5)
        out, state = layer(x)
        graph = step(layer, x, loss=lambda o, *_: o[0].sum())
        results = the(graph, "_cudnn_rnn").outputs
        assert results[0] and results[0].shape == tuple(out.shape)
        hidden = state[0] if isinstance(state, tuple) else state
        assert results[1] and results[1].shape == tuple(hidden.shape)
        weights = [s for s in graph.storages if s.name.endswith(".grad")]
        # Weight gradients are views of one buffer, which without biases has room for some and is not kept.
        assert sum(s.nbytes for s in weights) == 4 * sum(p.numel() for p in layer.parameters())
        assert len(weights) == 1 if layer.bias else len(weights) > 1

    def test_packed_sequence(self) -> None:
        def packed(model: Any, x: Any) -> Any:
            sequence = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([7, 5, 2]), batch_first=True)
            out, _ = model.lstm(sequence)
            return nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0]

        graph = step(Model(packed, lstm=nn.LSTM(5, 6, batch_first=True)), torch.empty(3, 7, 5))
        call = the(graph, "_cudnn_rnn")
        assert call.outputs[0] and call.outputs[0].shape == (7 + 5 + 2, 6)
        assert call.outputs[1] and call.outputs[1].shape == (1, 3, 6)
        assert call.arguments[14] == (3, 3, 2, 2, 2, 1, 1)


class TestOthers:
    def test_batch_norm_backward_with_running_statistics_is_contiguous(self) -> None:
        x = torch.empty(2, 3, 4, 5, device="meta").to(memory_format=torch.channels_last)
        w = torch.empty(3, device="meta")
        kernel = META_KERNELS[aten.native_batch_norm_backward.default]
        train, frozen = (kernel(x, x, w, w, w, w, w, t, 1e-5, [True, True, True])[0] for t in (True, False))
        assert train.stride() == (60, 1, 15, 3) and frozen.stride() == (60, 20, 5, 1)

    def test_log_sigmoid_keeps_no_buffer(self) -> None:
        graph = traced(lambda: nn.functional.logsigmoid(torch.zeros(4, 5, device="cuda")))
        assert [o and o.shape for o in the(graph, "log_sigmoid_forward").outputs] == [(4, 5), (0,)]

    def test_layer_norm_backward_is_contiguous(self) -> None:
        x = torch.empty(5, 4, device="meta").t()
        w = torch.empty(5, device="meta")
        kernel = META_KERNELS[aten.native_layer_norm_backward.default]
        dx, dw, db = kernel(x, x, [5], w[:4, None], w[:4, None], w, None, [True, True, False])
        assert dx.stride() == (5, 1) and dw.shape == (5,) and db is None

    def test_group_norm_statistics_follow_the_weights(self) -> None:
        x, w = torch.empty(2, 4, 9, device="meta", dtype=torch.bfloat16), torch.empty(4, device="meta")
        out, mean, rstd = META_KERNELS[aten.native_group_norm.default](x, w, w, 2, 4, 9, 2, 1e-5)
        assert (out.dtype, mean.dtype, rstd.shape) == (torch.bfloat16, torch.float32, (2, 2))

    def test_products_of_unlike_types_raise(self) -> None:
        half, single = torch.empty(2, 2, device="meta", dtype=torch.float16), torch.empty(2, 2, device="meta")
        for operator, args in (
            (aten.mm.default, (half, single)), (aten.addmm.default, (single[0], half, half)),
            (aten.bmm.default, (half[None], single[None])), (aten.mv.default, (half, single[0])),
        ):  # fmt: skip
            with pytest.raises(RuntimeError, match="same dtype, but got float16 and float32"):
                META_KERNELS[operator](*args)

    def test_grouped_product_rows_start_on_16_bytes(self) -> None:
        a, b = torch.empty(6, 4, device="meta", dtype=torch.bfloat16), torch.empty(2, 4, 5, device="meta")
        out = META_KERNELS[aten._grouped_mm.default](a, b.bfloat16(), torch.empty(2, device="meta"))
        assert out.shape == (6, 5) and out.stride() == (8, 1)

    def test_weight_norm_keeps_norms_in_float32(self) -> None:
        v, g = (
            torch.empty(3, 4, device="meta", dtype=torch.float16),
            torch.empty(3, 1, device="meta", dtype=torch.float16),
        )
        w, norm = META_KERNELS[aten._weight_norm_interface.default](v, g)
        assert w.dtype is torch.float16 and norm.dtype is torch.float32 and norm.shape == (3, 1)

    def test_fused_optimizers_return_nothing(self) -> None:
        graph = step(nn.Linear(2, 2), torch.empty(1, 2), optimizer=lambda p: torch.optim.AdamW(p, fused=True))
        assert "_fused_adamw_" in names(graph, "optimizer")
        assert the(graph, "_fused_adamw_").outputs == (None,)


class TestBatchNormOverRanks:
    """`SyncBatchNorm`'s operators, which PyTorch has for CUDA alone."""

    @staticmethod
    def kernel(name: str) -> Any:
        return META_KERNELS[getattr(aten, name).default]

    def test_statistics_are_as_accumulated(self) -> None:
        x, all_means = (
            torch.empty(2, 3, 4, 4, dtype=torch.half, device="meta"),
            torch.empty(5, 3, device="meta"),
        )
        for name, args in (("stats", (x, 1e-5)), ("gather_stats_with_counts", (x, all_means, all_means))):
            found = self.kernel(f"batch_norm_{name}")(*args)
            assert [(tuple(t.shape), t.dtype) for t in found] == [((3,), torch.float32)] * 2
        assert self.kernel("batch_norm_stats")(x.double(), 1e-5)[0].dtype is torch.float64

    def test_normalised_as_the_input_lies(self) -> None:
        x = torch.empty(2, 3, 4, 5, device="meta")
        last = x.to(memory_format=torch.channels_last)
        volume = torch.empty(2, 3, 4, 5, 6, device="meta").to(memory_format=torch.channels_last_3d)
        for tensor in (x, last, volume):
            assert self.kernel("batch_norm_elemt")(tensor).stride() == tensor.stride()
        elemt = self.kernel("batch_norm_backward_elemt")
        assert elemt(last, last).stride() == elemt(last, x.to(memory_format=torch.channels_last)).stride()
        assert elemt(x, last).stride() == x.stride() == elemt(x, x).stride()
        assert elemt(volume, volume).stride() == (360, 120, 30, 6, 1)

    def test_sums_and_gradients(self) -> None:
        x, c, weight = (
            torch.empty(2, 3, 4, 5, device="meta"),
            torch.empty(3, device="meta"),
            torch.empty(3, device="meta"),
        )
        last = x.to(memory_format=torch.channels_last)
        reduce = self.kernel("batch_norm_backward_reduce")

        def sizes(grad: Any, source: Any, weight: Any, *wanted: bool) -> list[int | None]:
            return [None if t is None else t.numel() for t in reduce(grad, source, c, c, weight, *wanted)]

        assert (
            sizes(x, x, weight, True, True, True)
            == sizes(last, last, weight, True, True, True)
            == [3, 3, 3, 3]
        )
        assert sizes(x, last, weight, True, False, False) == [3, 3, None, None]
        assert sizes(last, last, weight, True, False, False) == [3, 3, 3, 3]
        assert sizes(last, last, None, True, False, False) == [3, 3, 0, 0]
        assert sizes(x, x, None, False, False, False) == [None] * 4


def test_the_gradient_of_log_softmax_is_contiguous() -> None:
    """As on the CPU, where PyTorch's own kernel answers; its meta function keeps the strides of the gradient."""
    grad = torch.ones(4, 7, 5).transpose(1, 2)
    real = torch.ops.aten._log_softmax_backward_data(grad, grad, 1, torch.float32)
    ours = META_KERNELS[torch.ops.aten._log_softmax_backward_data.default](
        grad.to("meta"), None, 1, torch.float32
    )
    assert ours.stride() == real.stride() == (35, 7, 1) and ours.shape == real.shape


def without_memory(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


@pytest.mark.parametrize(
    "name", ["mul.Tensor", "add.Tensor", "eq.Tensor", "maximum.default", "sigmoid_backward.default"]
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_an_expanded_tensor_does_not_say_how_a_result_lies(name: str, dtype: torch.dtype) -> None:
    """As on the CPU; PyTorch's own meta kernels convert tensors of half precision first."""
    base, _, overload = name.partition(".")
    operator = getattr(getattr(aten, base), overload)
    turned = torch.ones(3, 5, 4, 12, dtype=dtype)[..., :6].transpose(1, 2)
    for expanded in (
        torch.ones((), dtype=dtype).expand(3, 4, 5, 6),
        torch.ones(5, 1, dtype=dtype).expand(3, 4, 5, 6),
    ):
        for pair in ((expanded, turned), (turned, expanded)):
            real = operator(*pair)
            ours = META_KERNELS[operator](*map(without_memory, pair))
            assert (ours.stride(), ours.dtype) == (real.stride(), real.dtype)


def test_segments_keep_the_other_dimensions() -> None:
    data = torch.empty(7, 6, 5, device="meta")
    reduced = aten.segment_reduce.default  # which PyTorch's own meta kernel answers
    lengths, offsets = torch.empty(7, 3, device="meta"), torch.empty(4, device="meta")
    assert reduced(data, "max", lengths=lengths, axis=1).shape == (7, 3, 5)
    assert reduced(data, "max", offsets=offsets, axis=0).shape == (3, 6, 5)


def _lying(tensor: torch.Tensor, draw: random.Random) -> torch.Tensor:
    """The tensor with its dimensions in another order in memory."""
    order = draw.sample(range(tensor.dim()), tensor.dim())
    return tensor.permute(order).contiguous().permute([order.index(place) for place in range(tensor.dim())])


@pytest.mark.parametrize("seed", range(300))
def test_what_is_indexed_lies_as_on_the_cpu(seed: int) -> None:
    """`index` is one structured kernel for both (`TensorAdvancedIndexing.cpp`); on CUDA indices of unlike strides are made contiguous first."""
    draw = random.Random(seed)
    sizes = [draw.randint(1, 4) for _ in range(draw.randint(1, 3))]
    source = _lying(torch.zeros([draw.randint(1, 4) for _ in range(draw.randint(1, 4))]), draw)
    indices: list[Any] = [
        _lying(torch.zeros([size if draw.random() < 0.8 else 1 for size in sizes], dtype=torch.long), draw)
        if draw.random() < 0.6
        else None
        for _ in range(source.dim() - 1)
    ]
    indices.append(_lying(torch.zeros(sizes, dtype=torch.long), draw))
    shape = torch.broadcast_shapes(*(index.shape for index in indices if index is not None))
    alike = len({index.expand(shape).stride() for index in indices if index is not None}) == 1
    there = [index if index is None or alike else index.expand(shape).contiguous() for index in indices]

    def meta(tensor: torch.Tensor | None) -> Any:
        return (
            None
            if tensor is None
            else torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        )

    found = META_KERNELS[torch.ops.aten.index.Tensor](meta(source), [meta(index) for index in indices])
    wanted = source[tuple(slice(None) if index is None else index for index in there)]
    assert (found.shape, found.stride()) == (wanted.shape, wanted.stride())


def test_positions_lie_a_row_a_dimension() -> None:
    """As PyTorch's own host code under the emulated runtime (torch 2.11 and 2.15)."""
    found = META_KERNELS[torch.ops.aten.nonzero_static.default](torch.empty(16, 16, device="meta"), size=136)
    assert (found.shape, found.stride(), found.dtype) == ((136, 2), (1, 136), torch.int64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batch_norm_keeps_the_format_that_a_convolution_in_double_precision_leaves(
    dtype: torch.dtype,
) -> None:
    """`cudnn/BatchNorm.cpp` asks the tensor alone, `ConvUtils.h` also its type."""
    x = torch.empty(2, 4, 6, 6, dtype=dtype, device="meta", memory_format=torch.channels_last)
    weight, factor = (torch.empty(shape, dtype=dtype, device="meta") for shape in ((8, 4, 3, 3), (4,)))
    normalized, *_ = META_KERNELS[aten.cudnn_batch_norm.default](
        x, factor, factor, None, None, True, 0.1, 1e-5
    )
    convolved = META_KERNELS[aten.convolution.default](
        normalized, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1
    )
    last = torch.channels_last
    assert normalized.is_contiguous(memory_format=last)
    assert convolved.is_contiguous(memory_format=last) == (dtype is torch.float32)
