"""cuDNN's interface in the emulated runtime, called as PyTorch and cuDNN's frontend call it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from typing import Any

import pytest

from analyzer.devices import load
from analyzer.libraries.cudnn.backend import Cudnn
from analyzer.libraries.cudnn.convolution import Convolution, Plan, Question
from analyzer.libraries.cudnn.enumerators import Attribute, Descriptor, Kind
from analyzer_emulation.cudnn import CudnnAnswers as Answers
from analyzer_emulation.device import described
from analyzer_emulation.questions import Question as Asked
from analyzer_emulation.questions import QuestionServer
from tests.extensions.emulation.native import loaded
from tests.libraries.cudnn.fakes import FakeAsker, with_asker

H200 = described(load("h200"), (13, 0))
NOT_SUPPORTED, NOT_FINALIZED, BAD_PARAM = 3000, 2004, 2000
LSTM, FLOAT, HALF = 2, 0, 2
CALL = Convolution("forward", "float32", False, (32, 64, 56, 56), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1))


def ints(*numbers: int) -> ctypes.Array[ctypes.c_int]:
    return (ctypes.c_int * len(numbers))(*numbers)


def created(library: ctypes.CDLL, kind: str) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    assert getattr(library, f"cudnnCreate{kind}Descriptor")(ctypes.byref(made)) == 0
    return made


PLANS = (Plan(67, 3000, tensor_core=True), Plan(25, 200, deterministic=False), Plan(38, 100), Plan(1, 0))


def answered(monkeypatch: pytest.MonkeyPatch, topics: Any) -> Iterator[ctypes.CDLL]:
    with QuestionServer(topics) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield loaded(H200)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    """The library, and a cuDNN's answers of four plans."""
    with_asker(monkeypatch, FakeAsker({}, PLANS))
    yield from answered(monkeypatch, Answers(load("h200")).topics)


class Heard(dict[str, Any]):
    """Answers every question with a few numbers, and keeps it."""

    def __init__(self, *told: int) -> None:
        self.questions: list[Asked] = []
        self.told = told

    def get(self, _topic: str, _default: Any = None) -> Any:
        return lambda question: self.questions.append(question) or self.told


@pytest.mark.parametrize("name", ["forward", "data", "weight"])
@pytest.mark.parametrize(("dtype", "last"), [("float32", False), ("bfloat16", True)])
def test_plans_come_as_they_do_from_cudnn(library: ctypes.CDLL, name: str, dtype: str, last: bool) -> None:
    call = Convolution(name, dtype, last, (32, 64, 56, 56), (128, 32, 3, 3), (1, 2), (2, 1), (1, 2))
    told = [plan._replace(engine=0) for plan in Cudnn(library).plans(Question.of(call))]
    assert told == [plan._replace(engine=0) for plan in PLANS]


def test_a_descriptor_may_go_once_another_refers_to_it(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = Cudnn(library)
    graph = asking._graph(Question.of(CALL))
    asking._open.remove(graph)
    asking._close(0)
    monkeypatch.setattr(asking, "_graph", lambda _: graph)
    found = [asking._workspace_bytes(each) for each, _ in asking._configurations(Question.of(CALL))]
    # The plan an H200 ran, which is none of these, then these, then benchmark mode's largest.
    assert found[: len(PLANS) + 1] == [25_837_584, *(plan.workspace_bytes for plan in PLANS)]


def test_a_plan_takes_its_time_on_the_devices_clock(library: ctypes.CDLL) -> None:
    asking = Cudnn(library)
    took = []
    for configuration, _ in asking._configurations(Question.of(CALL)):
        plan = asking._create(Descriptor.EXECUTION_PLAN)
        asking._set(
            plan, Attribute.EXECUTION_PLAN_ENGINE_CONFIG, Kind.BACKEND_DESCRIPTOR, [configuration.value]
        )
        assert library.cudnnBackendExecute(asking._handle, plan, None) == NOT_FINALIZED
        asking._finalize(plan)
        start, stop, milliseconds = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_float()
        for event in (start, stop):
            assert library.cudaEventCreateWithFlags(ctypes.byref(event), 0) == 0
            assert library.cudaEventRecord(event, None) == 0
            assert event is stop or library.cudnnBackendExecute(asking._handle, plan, None) == 0
        assert library.cudaEventElapsedTime(ctypes.byref(milliseconds), start, stop) == 0
        took.append(milliseconds.value)
    assert len(took) > 1
    assert took.index(min(took)) == 0


def test_graphs_are_sent_whole_but_for_what_only_this_process_has(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(5, 16, 1, 0)
    for library in answered(monkeypatch, heard):
        asking = Cudnn(library)
        ranked = asking._configurations(Question.of(CALL))
        _, engine = next(ranked)
        assert asking._notes(engine) == {4}
        list(ranked)
    graph = heard.questions[0]["graph"]
    (operation,) = graph["801"]
    assert heard.questions[0]["mode"] == 0
    assert set(graph) == {"kind", "801"}  # no handle
    assert operation["704"][0] == {
        "kind": 17,
        "900": [32],
        "906": [ord("x")],
        "903": [200704, 3136, 56, 1],
        "902": [32, 64, 56, 56],
        "901": [0],
    }
    assert operation["700"] == [1] and operation["701"] == [0]


@pytest.mark.parametrize(("value", "sent"), [(0.1, 0.1), (float("-inf"), None), (float("nan"), None)])
def test_numbers_json_has_no_word_for(
    monkeypatch: pytest.MonkeyPatch, value: float, sent: float | None
) -> None:
    heard = Heard(0, 0, 0, 0)
    for library in answered(monkeypatch, heard):
        asking = Cudnn(library)
        graph = asking._graph(Question.of(CALL))
        asking._set(graph, 6, Kind.FLOAT, [value])
        monkeypatch.setattr(asking, "_graph", lambda _, graph=graph: graph)
        list(asking._configurations(Question.of(CALL)))
    assert heard.questions[0]["graph"]["6"] == [pytest.approx(sent) if sent else None]


def test_a_type_that_came_after_9_19_is_an_enumerator(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(0, 0, 0, 0)
    for library in answered(monkeypatch, heard):
        asking = Cudnn(library)
        graph = asking._graph(Question.of(CALL))
        asking._set(graph, 2202, 31, [2])  # CUDNN_TYPE_RESHAPE_MODE of cuDNN 9.22
        monkeypatch.setattr(asking, "_graph", lambda _, graph=graph: graph)
        list(asking._configurations(Question.of(CALL)))
    assert heard.questions[0]["graph"]["2202"] == [2]


def test_sizes_are_asked_for_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, heard = ctypes.c_size_t(), ctypes.c_size_t(), Heard(7, 8)
    for library in answered(monkeypatch, heard):
        x = created(library, "Tensor")
        assert library.cudnnSetTensorNdDescriptor(x, HALF, 4, ints(2, 3, 4, 5), ints(60, 1, 15, 3)) == 0
        rnn, dropout, data = created(library, "RNN"), created(library, "Dropout"), created(library, "RNNData")
        assert (
            library.cudnnSetDropoutDescriptor(
                dropout, None, ctypes.c_float(0.5), None, ctypes.c_size_t(0), ctypes.c_ulonglong(0)
            )
            == 0
        )
        assert (
            library.cudnnSetRNNDescriptor_v8(rnn, 1, LSTM, 2, 1, 0, HALF, FLOAT, 1, 10, 20, 15, 3, dropout, 0)
            == 0
        )
        sizes = (None, rnn, 1, data, ctypes.byref(one), ctypes.byref(two))
        for packed, lengths in ((0, ints(6, 6, 6, 6)), (1, ints(6, 5, 1, 1))):
            assert library.cudnnSetRNNDataDescriptor(data, HALF, packed, 6, 4, 10, lengths, None) == 0
            assert library.cudnnGetRNNTempSpaceSizes(*sizes) == 0
        assert (one.value, two.value) == (7, 8)
        heard.told = (9,)
        assert (
            library.cudnnGetBatchNormalizationBackwardExWorkspaceSize(
                None, 2, 0, x, x, x, None, x, x, None, ctypes.byref(one)
            )
            == 0
        )
        assert one.value == 9
        heard.told = ()  # not what was asked for
        assert library.cudnnDropoutGetStatesSize(None, ctypes.byref(one)) == NOT_SUPPORTED
    layer = {"about": "cudnn.recurrent", "training": 1, "algorithm": 1, "mode": LSTM, "directions": 2, "type": HALF, "inputs": 10,
             "hidden": 20, "projection": 15, "layers": 3, "dropout": 1, "steps": 6, "batch": 4}  # fmt: skip
    assert heard.questions == [
        {**layer, "rows": 0},
        {**layer, "rows": 13},
        {"about": "cudnn.batch_norm", "what": "backward", "mode": 2, "operations": 0, "type": HALF, "shape": [2, 3, 4, 5], "strides": [60, 1, 15, 3]},
        {"about": "cudnn.dropout_states"},
    ]  # fmt: skip


def test_a_loss_is_told_its_longest_target_by_both_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    nbytes, heard = ctypes.c_size_t(), Heard(1)
    for library in answered(monkeypatch, heard):
        scores, loss = created(library, "Tensor"), created(library, "CTCLoss")
        assert library.cudnnSetTensorNdDescriptor(scores, FLOAT, 3, ints(50, 3, 29), ints(87, 29, 1)) == 0
        lengths = ints(4, 9, 2), ints(50, 50, 50)
        assert (
            library.cudnnGetCTCLossWorkspaceSize(
                None, scores, scores, ints(*[1] * 15), *lengths, 1, loss, ctypes.byref(nbytes)
            )
            == 0
        )
        assert library.cudnnSetCTCLossDescriptor_v9(loss, FLOAT, 1, 0, 255) == 0
        assert (
            library.cudnnGetCTCLossWorkspaceSize_v8(None, 0, loss, scores, scores, ctypes.byref(nbytes)) == 0
        )
    of = {"about": "cudnn.ctc", "type": FLOAT, "shape": [50, 3, 29], "strides": [87, 29, 1]}
    assert heard.questions == [{**of, "newer": 0, "longest": 9}, {**of, "newer": 1, "longest": 255}]


@pytest.mark.parametrize(("mode", "gates"), [(0, 1), (LSTM, 4), (3, 3)])
@pytest.mark.parametrize("projection", [0, 15])
def test_weights_fill_their_buffer_without_overlap(
    library: ctypes.CDLL, mode: int, gates: int, projection: int
) -> None:
    """Two layers, two directions; matrices first, then biases (`get_parameters`, cudnn/RNN.cpp, checks the order)."""
    inputs, hidden, layers, directions = 10, 20, 2, 2
    projection = projection if mode == LSTM else 0
    rnn, nbytes, base = created(library, "RNN"), ctypes.c_size_t(), 1 << 40
    assert (
        library.cudnnSetRNNDescriptor_v8(
            rnn,
            0,
            mode,
            2,
            directions - 1,
            0,
            HALF,
            FLOAT,
            1,
            inputs,
            hidden,
            projection or hidden,
            layers,
            None,
            0,
        )
        == 0
    )
    assert library.cudnnGetRNNWeightSpaceSize(None, rnn, ctypes.byref(nbytes)) == 0
    matrices: list[tuple[int, int]] = []
    biases: list[tuple[int, int]] = []
    for layer in range(layers * directions):
        for number in range(2 * gates + bool(projection)):
            both = [(created(library, "Tensor"), ctypes.c_void_p()) for _ in range(2)]
            (matrix, matrix_at), (bias, bias_at) = both
            assert (
                library.cudnnGetRNNWeightParams(
                    None,
                    rnn,
                    layer,
                    nbytes,
                    ctypes.c_void_p(base),
                    number,
                    matrix,
                    ctypes.byref(matrix_at),
                    bias,
                    ctypes.byref(bias_at),
                )
                == 0
            )
            for (descriptor, at), into in zip(both, (matrices, biases), strict=True):
                dtype, rank, sizes = ctypes.c_int(), ctypes.c_int(), ints(0, 0, 0, 0)
                assert (
                    library.cudnnGetTensorNdDescriptor(
                        descriptor, 3, ctypes.byref(dtype), ctypes.byref(rank), sizes, ints(0, 0, 0, 0)
                    )
                    == 0
                )
                assert (dtype.value, rank.value) == (HALF, 3)
                if at.value:
                    into.append((at.value - base, 2 * sizes[0] * sizes[1] * sizes[2]))
    end = 0
    for place, length in (*matrices, *biases):
        assert place == end
        end = place + length
    assert end == nbytes.value
    assert len(biases) == layers * directions * 2 * gates


def test_without_anybody_to_ask_the_program_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ANALYZER_EMULATED_QUESTIONS", raising=False)
    asking = Cudnn(loaded(H200))
    for _ in range(2):
        assert list(asking._configurations(Question.of(CALL))) == []
    assert capfd.readouterr().err.count("the analyzer does not answer") == 1


def test_what_the_analyzer_does_not_know_is_said_in_its_words(
    library: ctypes.CDLL, capfd: pytest.CaptureFixture[str]
) -> None:
    bytes_of, x = ctypes.c_size_t(), created(library, "Tensor")
    assert library.cudnnSetTensorNdDescriptor(x, FLOAT, 4, ints(2, 3, 4, 5), ints(60, 20, 5, 1)) == 0
    assert (
        library.cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
            None, 2, 1, None, x, ctypes.byref(bytes_of)
        )
        == NOT_SUPPORTED
    )
    assert (
        "analyze emulate: no size is known for cuDNN's batch norm with an activation"
        in capfd.readouterr().err
    )


def test_an_analyzer_that_went_away_is_an_error_and_no_hang(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    states = ctypes.c_size_t()
    for library in answered(monkeypatch, {"cudnn.dropout_states": lambda _question: [24]}):
        assert library.cudnnDropoutGetStatesSize(None, ctypes.byref(states)) == 0
    for _ in range(2):
        assert library.cudnnDropoutGetStatesSize(None, ctypes.byref(states)) == NOT_SUPPORTED
    said = capfd.readouterr().err
    assert "the analyzer went away while the program was running" in said
    assert "the analyzer does not answer" in said  # asked anew, and nobody is there


def test_a_forked_process_asks_for_itself(library: ctypes.CDLL) -> None:
    states = ctypes.c_size_t()
    assert library.cudnnDropoutGetStatesSize(None, ctypes.byref(states)) == 0
    child = os.fork()
    if child == 0:
        states.value = 0
        status = library.cudnnDropoutGetStatesSize(None, ctypes.byref(states))
        os._exit(0 if status == 0 and states.value == 24 * 132 * 2048 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert library.cudnnDropoutGetStatesSize(None, ctypes.byref(states)) == 0


def test_convolutions_of_cudnn_7_name_themselves(
    library: ctypes.CDLL, capfd: pytest.CaptureFixture[str]
) -> None:
    assert library.cudnnConvolutionForward() == NOT_SUPPORTED
    assert library.emulated_refused(0) == b"cudnnConvolutionForward"
    assert "cudnnConvolutionForward" in capfd.readouterr().err


def test_a_handle_remembers_its_stream(library: ctypes.CDLL) -> None:
    handle, stream = ctypes.c_void_p(), ctypes.c_void_p()
    assert library.cudnnCreate(ctypes.byref(handle)) == 0
    assert library.cudnnSetStream(handle, ctypes.c_void_p(48)) == 0
    assert library.cudnnGetStream(handle, ctypes.byref(stream)) == 0
    assert stream.value == 48
    assert library.cudnnGetStream(None, ctypes.byref(stream)) == BAD_PARAM
    assert library.cudnnDestroy(handle) == 0


def test_reductions(library: ctypes.CDLL) -> None:
    """A copy of 2 x 3 x 4 numbers in float32 (float16's too), of double in its own bytes; with indices two copies, and an index of
    four bytes for each of two results."""
    source, result, reduction = (
        created(library, "Tensor"),
        created(library, "Tensor"),
        created(library, "ReduceTensor"),
    )
    assert library.cudnnSetTensorNdDescriptor(result, FLOAT, 3, ints(2, 1, 1), ints(1, 1, 1)) == 0
    sizes = {}
    for with_indices in (0, 1):
        assert library.cudnnSetReduceTensorDescriptor(reduction, 0, FLOAT, 0, with_indices, 0) == 0
        for kind in (FLOAT, HALF, 1):
            assert library.cudnnSetTensorNdDescriptor(source, kind, 3, ints(2, 3, 4), ints(12, 4, 1)) == 0
            workspace, indices = ctypes.c_size_t(), ctypes.c_size_t()
            asked = (None, reduction, source, result)
            assert library.cudnnGetReductionWorkspaceSize(*asked, ctypes.byref(workspace)) == 0
            assert library.cudnnGetReductionIndicesSize(*asked, ctypes.byref(indices)) == 0
            sizes[with_indices, kind] = workspace.value, indices.value
    assert sizes == {
        (0, FLOAT): (96, 0),
        (0, HALF): (96, 0),
        (0, 1): (192, 0),
        (1, FLOAT): (192, 8),
        (1, HALF): (192, 8),
        (1, 1): (384, 8),
    }
