"""What convolutions and recurrent layers allocate: every recorded call of 26 models, and orders worked out by hand.

A recorded peak counts block sizes, so it may exceed the rules' by remainders of blocks not worth splitting: at most
1 MiB for each request of more than 1 MiB that is alive. It can never be below.
"""

from __future__ import annotations

import collections
import gzip
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from analyzer.devices import load
from analyzer.graph import Argument, Category, Operator, Phase, Run, Storage, TensorMeta, dtype_bytes
from analyzer.libraries.cudnn.choices import choices_of
from analyzer.libraries.cudnn.convolution import Convolution
from analyzer.libraries.cudnn.plans import ConvolutionSettings
from analyzer.runtimes.events import EmptyCache, Free, Malloc
from analyzer.runtimes.pytorch.eager import Eager
from analyzer.runtimes.pytorch.scratch import Basis, Give, Output, Take, kernel_allocations
from tests.paths import DATA
from tests.schemas import called

RECORDED = DATA / "probe_h200.tar"
MIB = 1 << 20
# What the recorded allocator did not split off, all calls together: a rule that moves a byte of any call moves this.
UNSPLIT_BYTES = 205_596_160
H200 = load("h200")


def tensor(shape: tuple[int, ...], dtype: str = "float32", *, channels_last: bool = False) -> TensorMeta:
    order = (1, *range(len(shape) - 1, 1, -1), 0) if channels_last else range(len(shape) - 1, -1, -1)
    strides, step = [0] * len(shape), 1
    for dim in order:
        strides[dim] = step
        step *= shape[dim]
    return TensorMeta(0, shape, tuple(strides), dtype)


def recorded() -> Iterator[tuple[str, Operator, int]]:
    """(model, call, peak beyond what was allocated before)."""

    def argument(value: Any) -> Argument:
        if isinstance(value, list):
            if len(value) == 4 and value[0] == "T":
                return TensorMeta(0, tuple(value[1]), tuple(value[3]), value[2])
            return tuple(argument(part) for part in value)
        return value  # type: ignore[no-any-return]

    with tarfile.open(RECORDED) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member) if member.isfile() else None
            raw = content.read() if content else b""
            case = json.loads(gzip.decompress(raw)) if raw else {"rows": []}
            for row in case["rows"]:
                name = row[1].removesuffix(".default").replace("aten.", "aten::")
                if "convolution" not in name:
                    continue
                results = iter([argument(result) for result in row[6]])
                mask = row[4][-1] if name.endswith("backward") else [True]
                outputs = tuple(next(results) if wanted else None for wanted in mask)
                yield case["case"]["model"], called(0, name, argument(row[4]), outputs), row[2]  # type: ignore[arg-type]


def rounded(nbytes: int) -> int:
    return -(-nbytes // 512) * 512


def peak_of(operator: Operator) -> tuple[int, int]:
    """Peak of the allocations in bytes of whole units, and how many requests came from the large pool."""
    live = peak = large = 0
    sizes: dict[int, int] = {}
    for step in kernel_allocations(operator, H200).steps:
        if isinstance(step, Give):
            live -= rounded(sizes[step.token])
            continue
        if isinstance(step, Take):
            nbytes = sizes[step.token] = step.nbytes
        else:
            result = operator.outputs[step.index]
            nbytes = 0 if result is None else result.element_count * dtype_bytes(result.dtype)
        live += rounded(nbytes)
        large += nbytes > MIB
        peak = max(peak, live)
    return peak, large


def test_peak_during_every_recorded_convolution() -> None:
    exact: collections.Counter[str] = collections.Counter()
    total: collections.Counter[str] = collections.Counter()
    unsplit = 0
    for model, operator, measured in recorded():
        peak, large = peak_of(operator)
        unsplit += measured - peak
        assert 0 <= measured - peak <= large * MIB, (model, operator, measured, peak)
        exact[operator.name] += measured == peak
        total[operator.name] += 1
    assert total["aten::convolution"] > 500
    assert total["aten::convolution_backward"] > 400
    assert all(exact[name] > 0.5 * total[name] for name in total), (exact, total)
    assert unsplit == UNSPLIT_BYTES


def steps_of(name: str, arguments: tuple[Argument, ...], outputs: tuple[TensorMeta | None, ...]) -> list[str]:
    """Allocations in words: "+N" takes N bytes, "-N" gives them back, "=I" allocates result I."""
    sizes: dict[int, int] = {}
    words = []
    for step in kernel_allocations(called(0, name, arguments, outputs), H200).steps:
        if isinstance(step, Take):
            sizes[step.token] = step.nbytes
            words.append(f"+{step.nbytes}")
        elif isinstance(step, Give):
            words.append(f"-{sizes[step.token]}")
        else:
            words.append(f"={step.index}")
    return words


X, W, Y = tensor((32, 64, 56, 56)), tensor((64, 64, 3, 3)), tensor((32, 64, 56, 56))
ONE = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
FORWARD = 25_837_584  # a copy of the input, one of the filter, 16 bytes


def test_forward() -> None:
    assert steps_of("aten::convolution", (X, W, None, *ONE), (Y,)) == ["=0", f"+{FORWARD}", f"-{FORWARD}"]


def test_forward_of_a_strided_view_copies_it_first() -> None:
    view = TensorMeta(0, X.shape, (2 * X.stride[0], *X.stride[1:]), "float32")
    copy = X.element_count * 4
    allocations = steps_of("aten::convolution", (view, W, None, *ONE), (Y,))
    assert allocations == [f"+{copy}", "=0", f"+{FORWARD}", f"-{FORWARD}", f"-{copy}"]


def test_channels_last_input_makes_the_filter_follow() -> None:
    x, y = tensor(X.shape, "float16", channels_last=True), tensor(Y.shape, "float16", channels_last=True)
    allocations = steps_of("aten::convolution", (x, tensor(W.shape, "float16"), None, *ONE), (y,))
    assert allocations[:2] == ["=0", f"+{W.element_count * 2}"]
    assert allocations[-1] == f"-{W.element_count * 2}"


def test_backward_makes_data_then_weight_then_bias() -> None:
    allocations = steps_of(
        "aten::convolution_backward",
        (Y, X, W, (64,), *ONE, (True, True, True)),
        (X, W, tensor((64,))),
    )
    assert [word for word in allocations if word.startswith("=")] == ["=0", "=1", "=2"]
    data, weight = (
        choices_of(H200)
        .workspace(Convolution(operation, "float32", False, X.shape, W.shape, (1, 1), (1, 1), (1, 1)))
        .nbytes
        for operation in ("data", "weight")
    )
    assert allocations[:6] == ["=0", f"+{data}", f"-{data}", "=1", f"+{weight}", f"-{weight}"]


def test_transposed_convolution_is_the_data_gradient_of_its_twin() -> None:
    small, large = tensor((8, 64, 32, 32)), tensor((8, 32, 64, 64))
    weight = tensor((64, 32, 2, 2))
    twin = Convolution("data", "float32", False, large.shape, weight.shape, (0, 0), (2, 2), (1, 1))
    nbytes = choices_of(load("h200")).workspace(twin).nbytes
    arguments = (small, weight, None, (2, 2), (0, 0), (1, 1), True, (0, 0), 1)
    taken = [f"+{nbytes}", f"-{nbytes}"] if nbytes else []
    assert steps_of("aten::convolution", arguments, (large,)) == ["=0", *taken]


@pytest.mark.parametrize(
    ("dtype", "channels_last", "native"),
    [
        ("float32", False, True),
        ("bfloat16", False, True),
        ("float16", False, False),
        ("float32", True, False),
    ],
)
def test_depthwise_backend(dtype: str, channels_last: bool, native: bool) -> None:
    x = tensor((32, 96, 56, 56), dtype, channels_last=channels_last)
    weight = tensor((96, 1, 3, 3), dtype)
    arguments = (x, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 96)
    allocations = kernel_allocations(called(0, "aten::convolution", arguments, (x,)), H200)
    assert ("cudnn" not in allocations.libraries) == native
    if native:
        assert allocations.steps == (Output(0),)


@pytest.mark.parametrize(
    ("device", "release", "groups", "channels_last", "cudnn"),
    [
        ("t4", (2, 11), 1, False, False),
        ("t4", (2, 11), 1, True, False),
        ("t4", (2, 11), 96, False, False),
        ("t4", (2, 11), 96, True, True),
        ("v100", (2, 7), 96, True, False),
        ("h200", (2, 11), 1, True, True),
    ],
)
def test_bfloat16_is_cudnns_from_compute_capability_8_on(
    device: str, release: tuple[int, int], groups: int, channels_last: bool, cudnn: bool
) -> None:
    """As `torch._C._select_conv_backend` says, emulated."""
    profile = load(device)
    profile = replace(profile, releases={**profile.releases, "torch": release})
    x = tensor((8, 96, 28, 28), "bfloat16", channels_last=channels_last)
    weight = tensor((96, 96 // groups, 3, 3), "bfloat16")
    operator = called(
        0, "aten::convolution", (x, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), groups), (x,)
    )
    assert ("cudnn" in kernel_allocations(operator, profile).libraries) == cudnn


@pytest.mark.parametrize(("device", "cudnn"), [("p100", False), ("v100", True), ("h200", True)])
def test_depthwise_planes_are_cudnns_from_compute_capability_7_on(device: str, cudnn: bool) -> None:
    """As torch 2.7's own host code asks, emulated as a P100 and a V100 (keywords, fp16)."""
    x, weight = tensor((8, 96, 28, 28), "float16"), tensor((96, 1, 3, 3), "float16")
    arguments = (x, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 96)
    allocations = kernel_allocations(called(0, "aten::convolution", arguments, (x,)), load(device))
    assert ("cudnn" in allocations.libraries) == cudnn


def test_native_depthwise_backward_makes_the_weight_first() -> None:
    x, weight = tensor((32, 96, 56, 56)), tensor((96, 1, 7, 7))
    arguments = (x, x, weight, (96,), (1, 1), (3, 3), (1, 1), False, (0, 0), 96, (True, True, False))
    assert steps_of("aten::convolution_backward", arguments, (x, weight)) == ["=1", "=0"]


def test_a_one_dimensional_convolution_runs_as_a_two_dimensional_one() -> None:
    x, weight, y = tensor((16, 64, 1000)), tensor((64, 64, 3)), tensor((16, 64, 1000))
    flat = Convolution("forward", "float32", False, (16, 64, 1, 1000), (64, 64, 1, 3), (0, 1), (1, 1), (1, 1))
    nbytes = choices_of(load("h200")).workspace(flat).nbytes
    arguments = (x, weight, None, (1,), (1,), (1,), False, (0,), 1)
    allocations = steps_of("aten::convolution", arguments, (y,))
    assert allocations == ["=0", *([f"+{nbytes}", f"-{nbytes}"] if nbytes else [])]


def test_a_type_cudnn_was_not_asked_about_is_bounded() -> None:
    x, weight = tensor((4, 9, 16, 17), "float64"), tensor((9, 9, 3, 3), "float64")
    allocations = kernel_allocations(called(0, "aten::convolution", (x, weight, None, *ONE), (x,)), H200)
    takes = [step for step in allocations.steps if isinstance(step, Take)]
    assert [step.basis for step in takes] == [Basis.BOUNDED]
    assert takes[0].nbytes == 8 * (2 * x.element_count + weight.element_count)
    call = Convolution("forward", "float64", False, x.shape, weight.shape, (1, 1), (1, 1), (1, 1))
    bound = choices_of(H200).workspace(call)
    assert (takes[0].assumed, takes[0].assumed_less) == (bound.high_bytes - bound.nbytes, bound.nbytes)


@pytest.mark.parametrize(("release", "share"), [((2, 2), 2), ((2, 11), 0)])
def test_a_recorded_workspace_may_be_off_by_half_under_cudnn_8(release: tuple[int, int], share: int) -> None:
    device = replace(H200, releases={**H200.releases, "torch": release})
    allocations = kernel_allocations(called(0, "aten::convolution", (X, W, None, *ONE), (Y,)), device)
    (take,) = (step for step in allocations.steps if isinstance(step, Take))
    off = take.nbytes // share if share else 0
    assert take.nbytes > 1 and (take.assumed, take.assumed_less) == (off, off)


def test_lstm_training_forward_and_backward() -> None:
    """The recorded LSTM case: batch first, 64 x 128 tokens of 256, hidden 512, two layers, dropout."""
    x = tensor((64, 128, 256))
    state, result = tensor((2, 64, 512)), TensorMeta(0, (64, 128, 512), (512, 64 * 512, 1), "float32")
    flat, reserve = tensor((3_678_208,)), tensor((0,), "uint8")
    options = (2, 512, 0, 2, True, 0.1, True, False, (), None)
    arguments = (x, (flat,), 4, flat, state, state, *options)
    allocations = steps_of("aten::_cudnn_rnn", arguments, (result, state, state, reserve, flat))
    copy, space = 64 * 128 * 256 * 4, 143_131_392
    assert allocations == [f"+{copy}", "=0", "=1", "=2", "=4", f"+{space}", "=3", f"-{space}", f"-{copy}"]
    outputs = kernel_allocations(
        called(0, "aten::_cudnn_rnn", arguments, (result, state, state, reserve, flat)), H200
    )
    assert Output(3, 185_073_920) in outputs.steps
    arguments = (
        x,
        (flat,),
        4,
        flat,
        state,
        state,
        result,
        result,
        None,
        None,
        *options,
        reserve,
        (True,) * 4,
    )
    allocations = steps_of("aten::_cudnn_rnn_backward", arguments, (x, state, state, flat))
    zeros = state.element_count * 4
    assert allocations == [
        *(f"+{zeros}", f"+{zeros}", f"+{copy}", "=0", "=1", "=2", f"+{space}", f"-{space}", f"-{copy}"),
        *(f"+{copy}", "=3", f"+{space}", f"-{space}", f"-{copy}", f"-{zeros}", f"-{zeros}"),
    ]


def test_dropout_state_is_24_bytes_a_thread() -> None:
    allocations = kernel_allocations(called(0, "aten::_cudnn_init_dropout_state", (0.1, True, 0), ()), H200)
    assert [step.nbytes for step in allocations.steps if isinstance(step, Take)] == [8, 6_488_064]


def depthwise(
    dtype: str = "float16",
    shape: tuple[int, ...] = (8, 96, 56, 56),
    kernel: tuple[int, ...] = (3, 3),
    stride: tuple[int, ...] = (1, 1),
    dilation: tuple[int, ...] = (1, 1),
) -> bool:
    """Whether cuDNN takes this depthwise convolution."""
    channels = shape[1]
    x, weight = tensor(shape, dtype), tensor((channels, 1, *kernel), dtype)
    options = (stride, (0, 0), dilation, False, (0, 0), channels)
    return (
        "cudnn"
        in kernel_allocations(
            called(0, "aten::convolution", (x, weight, None, *options), (x,)), H200
        ).libraries
    )


@pytest.mark.parametrize(
    ("given", "cudnn"),
    [
        ({}, True),
        ({"dtype": "float32"}, False),
        ({"dtype": "bfloat16"}, False),
        ({"dilation": (2, 2)}, False),
        ({"dilation": (1, 2)}, False),
        ({"shape": (8, 31, 56, 56)}, False),
        ({"shape": (8, 32, 56, 56)}, True),
        ({"stride": (1, 2)}, False),
        ({"stride": (2, 1)}, False),
        ({"stride": (3, 3)}, False),
        ({"shape": (8, 96, 1, 56), "stride": (2, 1), "kernel": (1, 3)}, True),
        ({"shape": (8, 96, 1, 56), "stride": (1, 1), "kernel": (1, 9)}, True),
        ({"shape": (8, 96, 1, 56), "stride": (1, 2), "kernel": (1, 9)}, False),
        ({"kernel": (3, 5)}, False),
        ({"kernel": (7, 7)}, False),
        ({"kernel": (5, 5)}, True),
        ({"kernel": (1, 1)}, True),
        ({"kernel": (2, 2)}, False),
        ({"shape": (8, 96, 56, 6)}, False),
        ({"shape": (8, 96, 56, 7)}, True),
        # Steps of 2: many channels, or a batch of one.
        ({"stride": (2, 2)}, False),
        ({"stride": (2, 2), "shape": (8, 511, 14, 14)}, False),
        ({"stride": (2, 2), "shape": (8, 512, 14, 14)}, True),
        ({"stride": (2, 2), "shape": (8, 256, 28, 28)}, True),
        ({"stride": (2, 2), "shape": (8, 256, 28, 27)}, False),
        ({"stride": (2, 2), "shape": (8, 255, 28, 28)}, False),
        ({"stride": (2, 2), "shape": (1, 96, 28, 28)}, True),
        ({"stride": (2, 2), "shape": (1, 96, 28, 28), "kernel": (1, 1)}, True),
        ({"stride": (2, 2), "shape": (1, 96, 28, 29), "kernel": (1, 1)}, False),
        ({"stride": (2, 2), "shape": (1, 96, 28, 29), "kernel": (3, 3)}, True),
        ({"stride": (2, 2), "shape": (16, 128, 7, 7), "kernel": (1, 1)}, True),
        ({"stride": (2, 2), "shape": (17, 128, 7, 7), "kernel": (1, 1)}, False),
        ({"stride": (2, 2), "shape": (16, 127, 7, 7), "kernel": (1, 1)}, False),
        ({"stride": (2, 2), "shape": (16, 128, 8, 8), "kernel": (1, 1)}, False),
        ({"stride": (2, 2), "shape": (2, 512, 14, 14), "kernel": (1, 1)}, False),
        ({"stride": (2, 2), "shape": (2, 96, 14, 14)}, False),
    ],
)
def test_depthwise_workloads_cudnn_takes(given: dict[str, Any], cudnn: bool) -> None:
    """`check_cudnn_depthwise_workload_with_filter`, line by line."""
    assert depthwise(**given) == cudnn


def test_what_counts_as_depthwise() -> None:
    """Groups = input channels above 1, a whole number of filters each, and not transposed."""

    def libraries(channels: int, filters: int, groups: int, transposed: bool = False) -> frozenset[str]:
        x, weight = tensor((2, channels, 8, 8)), tensor((filters, channels // groups, 3, 3))
        options = ((1, 1), (1, 1), (1, 1), transposed, (0, 0), groups)
        result = tensor((2, filters, 8, 8))
        operator = called(0, "aten::convolution", (x, weight, None, *options), (result,))
        return kernel_allocations(operator, H200).libraries

    assert libraries(8, 8, 8) == libraries(8, 16, 8) == libraries(2, 2, 2) == frozenset()
    assert libraries(1, 4, 1) == libraries(8, 8, 4) == libraries(8, 12, 8) == {"cudnn"}
    assert libraries(8, 8, 8, True) == {"cudnn"}


def spread(of: TensorMeta) -> TensorMeta:
    return TensorMeta(0, of.shape, tuple(2 * step for step in of.stride), of.dtype)


def test_native_depthwise_copies_what_is_not_contiguous() -> None:
    x, weight = tensor((4, 8, 6, 6)), tensor((8, 1, 3, 3))
    options = ((1, 1), (1, 1), (1, 1), False, (0, 0), 8)
    n, k = 4 * 8 * 36 * 4, 8 * 9 * 4
    assert steps_of("aten::convolution", (spread(x), spread(weight), None, *options), (x,)) == [
        *(f"+{n}", f"+{k}", "=0", f"-{k}", f"-{n}")
    ]
    backward = "aten::convolution_backward"
    rest = (None, *options)
    assert steps_of(
        backward, (spread(x), spread(x), spread(weight), *rest, (True, True, False)), (x, weight)
    ) == [*(f"+{n}", f"+{n}", "=1", f"-{n}", f"+{k}", "=0", f"-{k}", f"-{n}")]
    only_weight = steps_of(backward, (x, spread(x), weight, *rest, (False, True, False)), (None, weight))
    assert only_weight == [f"+{n}", "=1", f"-{n}", "=0"]
    only_data = steps_of(
        backward, (x, spread(x), weight, *rest, (True, False, True)), (x, None, tensor((8,)))
    )
    assert only_data == ["=0", "=2", "=1"]


def test_a_bias_gradient_is_a_sum_and_comes_last() -> None:
    """512 x 56 x 56 values a channel, 2 channels: 3,136 neighbours and 512 images."""
    x, weight = tensor((512, 2, 56, 56)), tensor((2, 1, 3, 3))
    options = ((1, 1), (1, 1), (1, 1), False, (0, 0), 2)
    allocations = steps_of(
        "aten::convolution_backward",
        (x, x, weight, (2,), *options, (True, True, True)),
        (x, weight, tensor((2,))),
    )
    assert allocations[:3] == ["=1", "=0", "=2"]
    assert [word[0] for word in allocations[3:]] == ["+", "+", "-", "-"] and allocations[4] == "+8"


def test_a_one_dimensional_input_is_made_contiguous() -> None:
    x, weight, y = tensor((16, 64, 1000)), tensor((64, 64, 3)), tensor((16, 64, 1000))
    n = 16 * 64 * 1000 * 4
    arguments = (spread(x), weight, None, (1,), (1,), (1,), False, (0,), 1)
    plain = steps_of("aten::convolution", (x, *arguments[1:]), (y,))
    assert steps_of("aten::convolution", arguments, (y,)) == [f"+{n}", *plain, f"-{n}"]
    mask = (True, True, False)
    grad = (y, spread(x), weight, None, *arguments[3:], mask)
    plain = steps_of("aten::convolution_backward", (y, x, *grad[2:]), (x, weight))
    assert steps_of("aten::convolution_backward", grad, (x, weight)) == [f"+{n}", *plain, f"-{n}"]
    for operation in ("data", "weight"):
        call = Convolution(
            operation, "float32", False, (16, 64, 1, 1000), (64, 64, 1, 3), (0, 1), (1, 1), (1, 1)
        )
        nbytes = choices_of(load("h200")).workspace(call).nbytes
        assert not nbytes or f"+{nbytes}" in plain


def test_one_number_serves_every_dimension_and_defaults_are_known() -> None:
    full = steps_of("aten::convolution", (X, W, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1), (Y,))
    assert steps_of("aten::convolution", (X, W, None, (1,), (1,), (1,), False, (0,), 1), (Y,)) == full
    unpadded = steps_of("aten::convolution", (X, W, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1), (Y,))
    assert steps_of("aten::convolution", (X, W, None), (Y,)) == unpadded
    call = Convolution("forward", "float32", False, X.shape, W.shape, (0, 0), (1, 1), (1, 1))
    assert f"+{choices_of(H200).workspace(call).nbytes}" in unpadded
    strided = Convolution("forward", "float32", False, X.shape, W.shape, (1, 2), (2, 1), (3, 1))
    nbytes = choices_of(load("h200")).workspace(strided).nbytes
    allocations = steps_of("aten::convolution", (X, W, None, (2, 1), (1, 2), (3, 1), False, (0, 0), 1), (Y,))
    assert allocations == ["=0", *([f"+{nbytes}", f"-{nbytes}"] if nbytes else [])]


def test_calls_without_their_tensors_only_have_results() -> None:
    for arguments in ((None, W), (X, None), (tensor((0, 64, 8, 8)), W)):
        assert steps_of("aten::convolution", arguments, (Y,)) == ["=0"]
    assert steps_of("aten::convolution", (X, W), (None,)) == ["=0"]
    for arguments in ((None, X, W), (Y, None, W), (Y, X, None), (Y, tensor((0, 64, 8, 8)), W)):
        assert steps_of("aten::convolution_backward", arguments, (X, W, None)) == ["=0", "=1", "=2"]


def cudnn_backward(
    grad: TensorMeta, x: TensorMeta, weight: TensorMeta, mask: tuple[bool, ...], transposed: bool = False
) -> list[str]:
    results = tuple(part if wanted else None for part, wanted in zip((x, weight), mask, strict=False))
    options = ((1, 1), (1, 1), (1, 1), transposed, (0, 0), 1)
    return steps_of("aten::convolution_backward", (grad, x, weight, None, *options, (*mask, False)), results)


def taken(operation: str, x: TensorMeta, weight: TensorMeta, last: bool) -> list[str]:
    call = Convolution(operation, x.dtype, last, x.shape, weight.shape, (1, 1), (1, 1), (1, 1))
    nbytes = choices_of(load("h200")).workspace(call).nbytes
    return [f"+{nbytes}"] if nbytes else []


def given(words: list[str]) -> list[str]:
    return [word.replace("+", "-") for word in reversed(words)]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_backward_brings_everything_to_the_inputs_format(transposed: bool, last: bool) -> None:
    """The gradient first, kept for both; the filter for the data; each call's memory goes before the next."""
    x, w = tensor((8, 64, 16, 16), channels_last=last), tensor((64, 64, 3, 3), channels_last=last)
    other = tensor(x.shape, channels_last=not last)
    n = x.element_count * 4
    data, ends = ("forward", "weight") if transposed else ("data", "weight")
    d, e = taken(data, x, w, last), taken(ends, x, w, last)
    plain = ["=0", *d, *given(d), "=1", *e, *given(e)]
    assert cudnn_backward(x, x, w, (True, True), transposed) == plain
    if last:
        # A contiguous gradient is converted; so is a contiguous filter, for the data alone.
        assert cudnn_backward(other, x, w, (True, True), transposed) == [f"+{n}", *plain, f"-{n}"]
        k = 64 * 64 * 9 * 4
        contiguous = tensor((64, 64, 3, 3))
        allocations = cudnn_backward(x, x, contiguous, (True, True), transposed)
        assert allocations == ["=0", f"+{k}", *d, *given(d), f"-{k}", "=1", *e, *given(e)]
        # A contiguous input with a channels-last filter follows the filter, where the weight's gradient is wanted.
        allocations = cudnn_backward(x, other, w, (True, True), transposed)
        assert allocations == [f"+{n}", *plain, f"-{n}"]
        assert cudnn_backward(x, other, w, (False, True), transposed) == [
            *(f"+{n}", "=1", *e, *given(e), f"-{n}", "=0")
        ]
        # Otherwise the gradient becomes contiguous, as the input is, and for the data channels-last again.
        allocations = cudnn_backward(x, other, w, (True, False), transposed)
        assert allocations == [f"+{n}", "=0", f"+{n}", *d, *given(d), f"-{n}", f"-{n}", "=1"]
    else:
        assert cudnn_backward(other, x, w, (True, True), transposed) == [f"+{n}", *plain, f"-{n}"]
    assert cudnn_backward(x, x, w, (True, False), transposed) == ["=0", *d, *given(d), "=1"]
    assert cudnn_backward(x, x, w, (False, True), transposed) == ["=1", *e, *given(e), "=0"]


def test_gaps_are_copied_where_a_kernel_reads_them() -> None:
    """A strided gradient already suggests its format: it is copied for each call; transposed, once for both."""
    x, w = tensor((8, 64, 16, 16)), tensor((64, 64, 3, 3))
    n, gaps = x.element_count * 4, spread(tensor((8, 64, 16, 16)))
    d, e = taken("data", x, w, False), taken("weight", x, w, False)
    assert cudnn_backward(gaps, x, w, (True, True)) == [
        *("=0", f"+{n}", *d, *given(d), f"-{n}", f"+{n}", "=1", *e, *given(e), f"-{n}")
    ]
    assert cudnn_backward(x, gaps, w, (True, True)) == [
        *(f"+{n}", "=0", *d, *given(d), "=1", *e, *given(e), f"-{n}")
    ]
    f = taken("forward", x, w, False)
    assert cudnn_backward(gaps, x, w, (True, True), True) == [
        *(f"+{n}", "=0", *f, *given(f), "=1", *e, *given(e), f"-{n}")
    ]


def test_a_channels_last_filter_makes_a_contiguous_input_follow() -> None:
    x, w = tensor((8, 64, 16, 16)), tensor((64, 64, 3, 3), channels_last=True)
    n = x.element_count * 4
    f = taken("forward", x, w, True)
    allocations = steps_of("aten::convolution", (x, w, None, *ONE), (tensor(x.shape, channels_last=True),))
    assert allocations == [f"+{n}", "=0", *f, *given(f), f"-{n}"]
    double = tensor(x.shape, "float64"), tensor(w.shape, "float64", channels_last=True)
    copy = 2 * w.element_count * 4
    allocations = steps_of("aten::convolution", (*double, None, *ONE), (tensor(x.shape, "float64"),))
    assert allocations[:2] == ["=0", f"+{copy}"]


def test_types_cudnn_has_no_plans_for_take_nothing() -> None:
    x = tensor((4, 8, 16, 16), "int8")
    allocations = kernel_allocations(
        called(0, "aten::convolution", (x, tensor((8, 8, 3, 3), "int8"), None, *ONE), (x,)), H200
    )
    assert allocations.steps == (Output(0),) and allocations.libraries == frozenset()


def test_benchmark_mode_tries_once_a_thread_and_empties_the_cache() -> None:
    """The trials' workspace comes before that of the plan that won, and not again for the same convolution."""
    call = called(0, "aten::convolution", (X, W, None, *ONE), (Y,), settings=frozenset({"benchmark"}))
    steps = kernel_allocations(call, H200).steps
    tried = next(step for step in steps if isinstance(step, Take))
    assert tried.trials_of and tried.plan.startswith(tried.trials_of) and tried.plan != tried.trials_of
    assert tried.smaller[:2] == (tried.nbytes // 2, tried.nbytes // 4) and tried.smaller[-2:] == (1, 0)
    of = Convolution("forward", "float32", False, X.shape, W.shape, (1, 1), (1, 1), (1, 1))
    assert (
        tried.nbytes
        == choices_of(load("h200"))
        .workspaces([of], ConvolutionSettings(benchmark=True), trial=True)[0]
        .nbytes
        > FORWARD
    )

    def asked(*phases: Phase) -> list[str]:
        operators = [replace(call, index=number, phase=phase) for number, phase in enumerate(phases)]
        storage = Storage(0, 4, Category.ACTIVATION, on_device=False)
        eager = Eager(Told([storage], operators), H200)
        words = {Malloc: "take", Free: "give", EmptyCache: "empty"}
        return [words[type(event)] for number in range(len(phases)) for event in eager.follow(Run(number))]

    first, again = ["take", "give", "empty", "take", "give"], ["take", "give"]
    assert asked(Phase.FORWARD, Phase.FORWARD) == first + again
    assert asked(Phase.FORWARD, Phase.BACKWARD, Phase.BACKWARD) == first + first + again


@dataclass
class Told:
    """A program of these."""

    storages: list[Storage]
    operators: list[Operator]


@pytest.mark.parametrize("mode", [frozenset(), frozenset({"benchmark"})])
def test_a_workspace_that_is_taken_to_be_none_is_asked_for_so_that_its_range_counts(
    mode: frozenset[str],
) -> None:
    """A convolution no record has, on a GPU nobody can ask about; the trials of benchmark mode may be more and less."""
    x = tensor((7, 61, 39, 39), "float16", channels_last=True)
    w, y = tensor((83, 61, 3, 3), "float16"), tensor((7, 83, 39, 39), "float16", channels_last=True)
    call = called(0, "aten::convolution", (x, w, None, *ONE), (y,), settings=mode)
    *trials, workspace = (
        s for s in kernel_allocations(call, load("rtx4090")).steps if isinstance(s, Take) and s.plan
    )
    assert (workspace.nbytes, workspace.assumed_less) == (0, 0) and workspace.assumed > MIB
    eager = Eager(Told([Storage(0, 4, Category.ACTIVATION, on_device=False)], [call]), load("rtx4090"))
    asked = [event for event in eager.follow(Run(0)) if isinstance(event, Malloc) and event.plan]
    assert len(asked) == 1 + len(mode) and all(event.is_unasked for event in asked)
    for trial in trials:
        assert trial.assumed_less == trial.nbytes > MIB and trial.assumed > MIB
