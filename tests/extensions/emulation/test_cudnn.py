"""What the analyzer answers for cuDNN, asked as the emulated library asks."""

from __future__ import annotations

from typing import Any

import pytest

from analyzer.devices import load
from analyzer.libraries.cudnn.choices import choices_of
from analyzer.libraries.cudnn.convolution import Convolution, Plan, strides_of
from analyzer.libraries.cudnn.plans import ConvolutionSettings
from analyzer.libraries.cudnn.recurrent import Recurrent
from analyzer.libraries.cudnn.transforms import transforms_bytes
from analyzer_emulation.cudnn import CudnnAnswers
from analyzer_emulation.questions import Unanswered
from tests.libraries.cudnn.fakes import FakeAsker, with_asker

# ResNet-50's second stage at batch 32: measured.
KNOWN = Convolution("forward", "float32", False, (32, 64, 56, 56), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1))
ATTRIBUTES = {
    "forward": (10, 704, 703, 705, 702),
    "data": (12, 710, 709, 711, 708),
    "weight": (11, 716, 715, 717, 714),
}
TYPES = {"float32": 0, "float16": 2, "bfloat16": 9}


def tensor(
    shape: tuple[int, ...], dtype: str = "float32", last: bool = False, **more: list[int]
) -> dict[str, Any]:
    return {
        "kind": 17,
        "901": [TYPES[dtype]],
        "902": list(shape),
        "903": list(strides_of(shape, last)),
        **more,
    }


def operation(call: Convolution) -> dict[str, Any]:
    kind, *names, described = ATTRIBUTES[call.operation]
    found: dict[str, Any] = {"kind": kind}
    for name, shape in zip(names, (call.x_shape, call.w_shape, call.y_shape), strict=True):
        found[str(name)] = [tensor(shape, call.dtype, call.channels_last)]
    found[str(described)] = [
        {"kind": 1, "102": list(call.dilation), "103": list(call.stride), "105": list(call.padding)}
    ]
    return found


def question(*operations: dict[str, Any], mode: int = 0) -> dict[str, Any]:
    return {"about": "cudnn.plans", "mode": mode, "graph": {"kind": 15, "801": list(operations)}}


def workspaces(told: list[int]) -> list[int]:
    return told[::4]


PLANS = (Plan(67, 3000, tensor_core=True), Plan(25, 200, deterministic=False), Plan(1, 0))


@pytest.mark.parametrize("name", ["forward", "data", "weight"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_convolution_is_recognised_and_its_plans_are_listed(
    name: str, last: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Convolution(name, dtype, last, (32, 64, 57, 56), (128, 32, 3, 3), (1, 2), (2, 1), (1, 2))
    asker = FakeAsker(dict.fromkeys([call], PLANS))
    with_asker(monkeypatch, asker)
    told = CudnnAnswers(load("a100-80gb")).plans(question(operation(call)))
    assert {each.call for each in asker.asked} == {call}
    assert workspaces(told) == [3000, 200, 0]
    assert [note & 1 for note in told[1::4]] == [1, 0, 0]
    assert [not note & 16 for note in told[1::4]] == [True, False, True]
    assert len(set(told[2::4])) == len(PLANS)  # PyTorch forgets plans that take equally long


def test_three_dimensions_and_a_layout_that_only_one_tensor_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Convolution(
        "forward", "float16", True, (2, 1, 8, 16, 16), (24, 1, 3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)
    )
    with_asker(monkeypatch, FakeAsker({call: PLANS}))
    told = CudnnAnswers(load("a100-80gb")).plans(question(operation(call)))
    assert workspaces(told) == [3000, 200, 0]


def test_a_plan_says_what_its_kernel_keeps_of_local_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Convolution("weight", "float16", False, (2, 3, 45, 45), (8, 3, 5, 5), (2, 2), (1, 1), (1, 1))
    plans = (Plan(16, 0, knobs=((2, 2),)), Plan(16, 0, knobs=((2, 1),)), Plan(1, 0))
    with_asker(monkeypatch, FakeAsker({call: plans}))
    told = CudnnAnswers(load("h100")).plans(question(operation(call)))
    assert told[3::4][: len(plans)] == [2512, 0, 0]


def test_the_list_of_the_heuristics_is_whole() -> None:
    assert CudnnAnswers(load("h200")).plans(question(operation(KNOWN), mode=2)) == []


def test_what_is_recorded_raises_no_doubt_and_what_nobody_can_be_asked_about_does() -> None:
    asked = CudnnAnswers(load("h200"))
    asked.plans(question(operation(KNOWN)))
    assert asked.doubts() == ()
    unseen = Convolution("forward", "float32", False, (7, 61, 39, 39), (83, 61, 3, 3), (1, 1), (1, 1), (1, 1))
    for _ in range(2):
        told = asked.plans(question(operation(unseen)))
    first, tried = workspaces(told)  # the latter in benchmark mode alone
    assert first == choices_of(load("h200")).workspace(unseen).nbytes < tried
    (doubt,) = asked.doubts()
    assert doubt.workspace.low_bytes == 0 < doubt.workspace.nbytes < doubt.workspace.high_bytes
    assert str(doubt).startswith("cuDNN convolution (forward, float32, 7x61x39x39 with 83x61x3x3): ")
    assert "unknown" in str(doubt)


def test_who_wins_the_trials_is_a_doubt_of_benchmark_mode_where_nobody_timed_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = KNOWN._replace(x_shape=(31, 64, 56, 57))
    with_asker(monkeypatch, FakeAsker({call: PLANS}))
    asked = CudnnAnswers(load("h200"))
    asked.plans(question(operation(call)))
    assert asked.doubts() == ()
    timed, tried = asked.doubts("benchmark")
    most = transforms_bytes(call)
    assert (timed.workspace.low_bytes, timed.workspace.high_bytes) == (0, most)
    assert (tried.workspace.low_bytes, tried.workspace.nbytes) == (3000, most)


def test_a_convolution_with_elementwise_operations_is_a_doubt() -> None:
    asked = CudnnAnswers(load("h200"))
    told = asked.plans(question(operation(KNOWN), {"kind": 13}, {"kind": 13}))
    h200 = choices_of(load("h200"))
    (tried,) = h200.workspaces([KNOWN], ConvolutionSettings(benchmark=True), trial=True)
    assert workspaces(told) == [h200.workspace(KNOWN).nbytes, tried.nbytes]
    assert "with elementwise operations, taken as without" in str(asked.doubts()[0])


def product(left: tuple[int, ...], right: tuple[int, ...]) -> dict[str, Any]:
    return {"kind": 19, "1520": [tensor(left, "bfloat16")], "1521": [tensor(right, "bfloat16")]}


def test_attention_takes_256_bytes_and_the_gradients_of_grouped_heads() -> None:
    scores = product((2, 8, 128, 64), (2, 2, 64, 128))  # keys come transposed
    full, summed = tensor((2, 8, 128, 64), "bfloat16", **{"907": [1]}), tensor((2, 2, 128, 64), "bfloat16")
    rows = {"kind": 22, "1610": [tensor((2, 8, 128, 64), **{"907": [1]})], "1611": [tensor((2, 8, 128, 1))]}
    heads = {"kind": 22, "1610": [full], "1611": [summed]}
    whole = {"kind": 41, "2800": [tensor((2, 8, 128, 64))], "2801": [tensor((2, 2, 128, 64))]}
    asked = CudnnAnswers(load("h200"))
    assert workspaces(asked.plans(question(scores, scores))) == [256]
    assert workspaces(asked.plans(question(whole))) == [256]
    assert workspaces(asked.plans(question(*[scores] * 5, rows))) == [256]
    assert workspaces(asked.plans(question(*[scores] * 5, rows, heads, heads))) == [
        256 + 2 * 2 * 8 * 128 * 64 * 2
    ]
    assert asked.doubts() == ()


def test_a_single_query_splits_its_keys_unless_a_causal_mask_is_asked_for() -> None:
    asked = CudnnAnswers(load("h200"))
    whole = {"kind": 41, "2800": [tensor((1, 32, 1, 128))], "2801": [tensor((1, 8, 4096, 128))]}
    scores = product((1, 32, 1, 128), (1, 8, 128, 4096))
    positions = {"kind": 13, "750": [{"kind": 0, "0": [501]}]}
    assert workspaces(asked.plans(question(whole))) == [532608]
    assert workspaces(asked.plans(question(scores, scores))) == [532608]
    assert workspaces(asked.plans(question(scores, positions, scores))) == [0]
    assert asked.doubts() == ()
    asked.plans(question(product((1, 32, 1, 128), (1, 8, 128, 600)), scores))
    assert "cuDNN attention (1x32x1x128 on 600 keys): 66,688 bytes of workspace" in str(asked.doubts()[0])


def test_a_gradient_of_one_operation_is_a_doubt() -> None:
    asked = CudnnAnswers(load("h200"))
    whole = {"kind": 43, "2851": [tensor((2, 8, 128, 64))], "2852": [tensor((2, 8, 128, 64))]}
    assert workspaces(asked.plans(question(whole))) == [532736]
    assert len(asked.doubts()) == 1


def test_ctc_losses_are_those_of_the_formula() -> None:
    asked = CudnnAnswers(load("h200"))
    of = {"shape": [50, 8, 29], "longest": 20}
    assert asked.ctc({**of, "newer": 0}) == [179680]  # as an H200 said
    assert asked.ctc({**of, "newer": 1}) == [178976]
    assert asked.doubts() == ()


def norm(
    what: str,
    mode: int = 2,
    last: bool = True,
    operations: int = 0,
    shape: tuple[int, ...] = (32, 64, 56, 56),
) -> dict[str, Any]:
    return {
        "what": what,
        "mode": mode,
        "operations": operations,
        "type": 0,
        "shape": list(shape),
        "strides": list(strides_of(shape, last)),
    }


def test_batch_norm_takes_a_workspace_in_its_persistent_mode() -> None:
    asked = CudnnAnswers(load("h200"))
    # 1,568 blocks of 64 rows, 8 bytes a channel and a flag for every 16; 1,046 of 96 rows. Recorded on the H200.
    assert asked.batch_norm(norm("forward")) == [1568 * (8 * 64 + 4) + 4 + 1072]
    assert asked.batch_norm(norm("backward")) == [1046 * 8 * 64 + 4 + 1056]
    for other in (norm("reserve"), norm("forward", mode=1), norm("backward", last=False)):
        assert asked.batch_norm(other) == [0]
    with pytest.raises(Unanswered, match="batch norm with an activation"):
        asked.batch_norm(norm("forward", operations=1))


def test_recurrent_layers_are_those_of_the_formulas() -> None:
    layer = {"training": 1, "algorithm": 0, "mode": 2, "directions": 1, "type": 0, "inputs": 256, "hidden": 512, "projection": 512,
             "layers": 2, "dropout": 1, "steps": 128, "batch": 64, "rows": 0}  # fmt: skip
    asked = CudnnAnswers(load("h200"))
    like = Recurrent("LSTM", "float32", 256, 512, 2, 1, 64, 128, dropout=True)
    assert asked.recurrent(layer) == [like.training_workspace_bytes(), 185073920]
    assert asked.recurrent({**layer, "training": 0, "dropout": 0}) == [126354176, 0]
    small = {**layer, "algorithm": 3, "mode": 3, "directions": 2, "type": 2, "inputs": 64, "hidden": 100, "projection": 100,
             "layers": 1, "dropout": 0, "steps": 20, "batch": 8}  # fmt: skip
    persistent = Recurrent("GRU", "float16", 64, 100, 1, 2, 8, 20, algorithm="small")
    assert asked.recurrent(small) == [persistent.training_workspace_bytes(), persistent.reserve_bytes()]
    packed = Recurrent("LSTM", "float32", 256, 512, 2, 1, 64, 128, dropout=True, projection=64, rows=1000)
    told = asked.recurrent({**layer, "projection": 64, "rows": 1000})
    assert told == [packed.training_workspace_bytes(), packed.reserve_bytes()]
    assert asked.doubts() == ()
    with pytest.raises(Unanswered, match="dynamic persistent"):
        asked.recurrent({**layer, "algorithm": 2})


def test_the_state_of_dropout_is_of_every_thread() -> None:
    assert CudnnAnswers(load("h200")).dropout_states({}) == [24 * 132 * 2048]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (question({"kind": 25}), "operations 25"),
        (question(), "operations"),
        (question(operation(KNOWN), operation(KNOWN)), "operations 10, 10"),
        (question({**operation(KNOWN), "704": [{**tensor(KNOWN.x_shape), "901": [3]}]}), "data type 3"),
        (question({**operation(KNOWN), "705": [tensor((32, 64, 55, 56))]}), "does not give 32x64x55x56"),
    ],
)
def test_what_is_not_known_says_so(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(Unanswered, match=why):
        CudnnAnswers(load("h200")).plans(asked)
