"""Stories of convolutions and recurrent layers: every recorded call of 26 models, and orders told by hand.

A recorded peak counts block sizes, so it may exceed the story's by remainders of blocks not worth splitting: at most
1 MiB for each request of more than 1 MiB that is alive. It can never be below.
"""

from __future__ import annotations

import collections
import gzip
import json
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from analyzer.devices import load
from analyzer.graph import Argument, Operator, TensorMeta, dtype_bytes
from analyzer.libraries.cudnn.convolutions import workspace
from analyzer.libraries.cudnn.table import Convolution
from analyzer.runtimes.pytorch.scratch import Basis, Give, Output, Take, story_of
from tests.paths import DATA

RECORDED = DATA / "probe_h200.tar"
MIB = 1 << 20
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
                yield case["case"]["model"], Operator(0, name, argument(row[4]), outputs), row[2]  # type: ignore[arg-type]


def rounded(nbytes: int) -> int:
    return -(-nbytes // 512) * 512


def peak_of(operator: Operator) -> tuple[int, int]:
    """Peak of the story in bytes of whole units, and how many requests came from the large pool."""
    live = peak = large = 0
    sizes: dict[int, int] = {}
    for step in story_of(operator, H200).steps:
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
    for model, operator, measured in recorded():
        peak, large = peak_of(operator)
        assert 0 <= measured - peak <= large * MIB, (model, operator, measured, peak)
        exact[operator.name] += measured == peak
        total[operator.name] += 1
    assert total["aten::convolution"] > 500
    assert total["aten::convolution_backward"] > 400
    assert all(exact[name] > 0.5 * total[name] for name in total), (exact, total)


def steps_of(name: str, arguments: tuple[Argument, ...], outputs: tuple[TensorMeta | None, ...]) -> list[str]:
    """A story in words: "+N" takes N bytes, "-N" gives them back, "=I" allocates result I."""
    sizes: dict[int, int] = {}
    words = []
    for step in story_of(Operator(0, name, arguments, outputs), H200).steps:
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
    story = steps_of("aten::convolution", (view, W, None, *ONE), (Y,))
    assert story == [f"+{copy}", "=0", f"+{FORWARD}", f"-{FORWARD}", f"-{copy}"]


def test_channels_last_input_makes_the_filter_follow() -> None:
    x, y = tensor(X.shape, "float16", channels_last=True), tensor(Y.shape, "float16", channels_last=True)
    story = steps_of("aten::convolution", (x, tensor(W.shape, "float16"), None, *ONE), (y,))
    assert story[:2] == ["=0", f"+{W.element_count * 2}"]
    assert story[-1] == f"-{W.element_count * 2}"


def test_backward_makes_data_then_weight_then_bias() -> None:
    story = steps_of(
        "aten::convolution_backward",
        (Y, X, W, (64,), *ONE, (True, True, True)),
        (X, W, tensor((64,))),
    )
    assert [word for word in story if word.startswith("=")] == ["=0", "=1", "=2"]
    data, weight = (
        workspace(
            Convolution(operation, "float32", False, X.shape, W.shape, (1, 1), (1, 1), (1, 1)), "h200"
        ).nbytes
        for operation in ("data", "weight")
    )
    assert story[:6] == ["=0", f"+{data}", f"-{data}", "=1", f"+{weight}", f"-{weight}"]


def test_transposed_convolution_is_the_data_gradient_of_its_twin() -> None:
    small, large = tensor((8, 64, 32, 32)), tensor((8, 32, 64, 64))
    weight = tensor((64, 32, 2, 2))
    twin = Convolution("data", "float32", False, large.shape, weight.shape, (0, 0), (2, 2), (1, 1))
    nbytes = workspace(twin, "h200").nbytes
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
    story = story_of(Operator(0, "aten::convolution", arguments, (x,)), H200)
    assert ("cudnn" not in story.libraries) == native
    if native:
        assert story.steps == (Output(0),)


def test_native_depthwise_backward_makes_the_weight_first() -> None:
    x, weight = tensor((32, 96, 56, 56)), tensor((96, 1, 7, 7))
    arguments = (x, x, weight, (96,), (1, 1), (3, 3), (1, 1), False, (0, 0), 96, (True, True, False))
    assert steps_of("aten::convolution_backward", arguments, (x, weight)) == ["=1", "=0"]


def test_a_one_dimensional_convolution_runs_as_a_two_dimensional_one() -> None:
    x, weight, y = tensor((16, 64, 1000)), tensor((64, 64, 3)), tensor((16, 64, 1000))
    flat = Convolution("forward", "float32", False, (16, 64, 1, 1000), (64, 64, 1, 3), (0, 1), (1, 1), (1, 1))
    nbytes = workspace(flat, "h200").nbytes
    arguments = (x, weight, None, (1,), (1,), (1,), False, (0,), 1)
    story = steps_of("aten::convolution", arguments, (y,))
    assert story == ["=0", *([f"+{nbytes}", f"-{nbytes}"] if nbytes else [])]


def test_a_type_cudnn_was_not_asked_about_is_bounded() -> None:
    x, weight = tensor((4, 8, 16, 16), "float64"), tensor((8, 8, 3, 3), "float64")
    story = story_of(Operator(0, "aten::convolution", (x, weight, None, *ONE), (x,)), H200)
    takes = [step for step in story.steps if isinstance(step, Take)]
    assert [step.basis for step in takes] == [Basis.BOUNDED]
    assert takes[0].nbytes == 8 * (2 * x.element_count + weight.element_count)


def test_lstm_training_forward_and_backward() -> None:
    """The recorded LSTM case: batch first, 64 x 128 tokens of 256, hidden 512, two layers, dropout."""
    x = tensor((64, 128, 256))
    state, result = tensor((2, 64, 512)), TensorMeta(0, (64, 128, 512), (512, 64 * 512, 1), "float32")
    flat, reserve = tensor((3_678_208,)), tensor((0,), "uint8")
    options = (2, 512, 0, 2, True, 0.1, True, False, (), None)
    arguments = (x, (flat,), 4, flat, state, state, *options)
    story = steps_of("aten::_cudnn_rnn", arguments, (result, state, state, reserve, flat))
    copy, space = 64 * 128 * 256 * 4, 143_131_392
    assert story == [f"+{copy}", "=0", "=1", "=2", "=4", f"+{space}", "=3", f"-{space}", f"-{copy}"]
    outputs = story_of(
        Operator(0, "aten::_cudnn_rnn", arguments, (result, state, state, reserve, flat)), H200
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
    story = steps_of("aten::_cudnn_rnn_backward", arguments, (x, state, state, flat))
    zeros = state.element_count * 4
    assert story == [
        *(f"+{zeros}", f"+{zeros}", f"+{copy}", "=0", "=1", "=2", f"+{space}", f"-{space}", f"-{copy}"),
        *(f"+{copy}", "=3", f"+{space}", f"-{space}", f"-{copy}", f"-{zeros}", f"-{zeros}"),
    ]


def test_dropout_state_is_24_bytes_a_thread() -> None:
    story = story_of(Operator(0, "aten::_cudnn_init_dropout_state", (0.1, True, 0), ()), H200)
    assert [step.nbytes for step in story.steps if isinstance(step, Take)] == [8, 6_488_064]
