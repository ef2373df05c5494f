"""What runs of cuDNN's plans: recorded, asked, or bounded, under every setting."""

from __future__ import annotations

import gzip
import json

import pytest

from analyzer.devices import load, names
from analyzer.libraries.cudnn.choices import (
    ASKED,
    MEASURED,
    UNKNOWN,
    NextPlans,
    Workspace,
    choices_of,
    most_bytes,
)
from analyzer.libraries.cudnn.convolution import Convolution, Plan, Question
from analyzer.libraries.cudnn.plans import DEFAULT, ConvolutionSettings, passing
from analyzer.libraries.cudnn.recorded import RELEASE, record
from analyzer.libraries.cudnn.transforms import transforms_bytes
from tests.libraries.cudnn.fakes import FakeAsker, with_asker
from tests.paths import DATA

# ResNet-50's second stage at batch 32, and a convolution no network has.
KNOWN = Convolution("forward", "float32", False, (32, 64, 56, 56), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1))
UNSEEN = Convolution("forward", "float32", False, (7, 61, 39, 39), (83, 61, 3, 3), (1, 1), (1, 1), (1, 1))
PLANS = (
    Plan(67, 3000, tensor_core=True),
    Plan(38, 5000, deterministic=False, tensor_core=True),
    Plan(25, 200, deterministic=False),
    Plan(1, 0),
)


@pytest.fixture
def asker(monkeypatch: pytest.MonkeyPatch) -> FakeAsker:
    made = FakeAsker({}, PLANS)
    with_asker(monkeypatch, made)
    return made


def test_what_is_recorded_is_not_asked(asker: FakeAsker) -> None:
    found = choices_of(load("h200")).workspace(KNOWN)
    assert found.source == MEASURED and found.low_bytes == found.nbytes == found.high_bytes > 0
    assert choices_of(load("a100-80gb")).workspace(KNOWN).source == ASKED
    assert not asker.asked


def test_a_record_of_another_release_is_not_taken(asker: FakeAsker) -> None:
    asker.release = (9, 10)
    assert choices_of(load("h200")).workspace(KNOWN).nbytes == 3000
    assert asker.release != RELEASE


@pytest.mark.parametrize(
    ("settings", "runs", "trial"),
    [
        (DEFAULT, 3000, 5000),
        (ConvolutionSettings(deterministic=True), 3000, 3000),
        (ConvolutionSettings(allow_tf32=False), 200, 200),
        (ConvolutionSettings(allow_tf32=False, deterministic=True), 0, 0),
    ],
)
def test_settings_choose_among_the_plans(
    asker: FakeAsker, settings: ConvolutionSettings, runs: int, trial: int
) -> None:
    choices = choices_of(load("rtx4090"))
    assert choices.workspace(UNSEEN, settings).nbytes == runs
    tried = choices.workspaces([UNSEEN], settings, trial=True)[0]
    assert (tried.low_bytes, tried.nbytes, tried.source) == (trial, transforms_bytes(UNSEEN), UNKNOWN)
    strided = UNSEEN._replace(stride=(2, 2))  # no engine that is missing in the list computes it
    assert choices.workspaces([strided], settings, trial=True)[0].nbytes == trial
    assert [question.whole for question in asker.asked] == [False, True, True]


def test_half_precision_knows_no_tf32(asker: FakeAsker) -> None:
    half = UNSEEN._replace(dtype="float16")
    assert choices_of(load("rtx4090")).workspace(half, ConvolutionSettings(allow_tf32=False)).nbytes == 3000
    assert len(asker.asked) == 1


def test_a_winner_nobody_timed_lies_between_nothing_and_the_largest_timed(asker: FakeAsker) -> None:
    found = choices_of(load("h200")).workspace(
        UNSEEN._replace(stride=(2, 2)), ConvolutionSettings(benchmark=True)
    )
    assert (found.nbytes, found.low_bytes, found.high_bytes, found.source) == (3000, 0, 5000, UNKNOWN)
    assert asker.asked[0].whole


@pytest.mark.parametrize(
    "settings", [ConvolutionSettings(deterministic=True), ConvolutionSettings(allow_tf32=False)]
)
def test_the_plan_measured_on_the_gpu_is_listed_first(
    asker: FakeAsker, settings: ConvolutionSettings
) -> None:
    """Known by its bytes; where a description's list has none of as many, it goes before that list, and passes a filter where the GPU
    took as many bytes with that setting."""
    choices = choices_of(load("h200"))
    measured = choices.workspace(KNOWN).nbytes
    first, *others = choices.listed(KNOWN) or ()
    assert (first.workspace_bytes, [plan.workspace_bytes for plan in others]) == (
        measured,
        [plan.workspace_bytes for plan in PLANS],
    )
    as_many = choices.workspace(KNOWN, settings).nbytes == measured
    assert bool(passing([first], KNOWN.dtype, settings)) == as_many
    asker.others = (*PLANS, Plan(62, measured))
    assert [plan.engine for plan in choices.listed(KNOWN) or ()] == [62, 67, 38, 25, 1]


def test_what_follows_a_plan_without_room_is_asked_for_only_then(asker: FakeAsker) -> None:
    choices = choices_of(load("rtx4090"))
    following = NextPlans(choices, UNSEEN, DEFAULT, 3000)
    assert following and not asker.asked
    assert list(following) == [200, 0] and asker.asked == [Question.of(UNSEEN, whole=True)]
    assert following == NextPlans(choices, UNSEEN, DEFAULT, 3000) != NextPlans(choices, UNSEEN, DEFAULT, 1)


def test_many_batches_are_one_question_each_asked_together(asker: FakeAsker) -> None:
    calls = [UNSEEN._replace(x_shape=(batch, *UNSEEN.x_shape[1:])) for batch in (1, 2, 3, 2)]
    found = choices_of(load("rtx4090")).workspaces(calls)
    assert [each.nbytes for each in found] == [3000] * 4
    assert [question.call.x_shape[0] for question in asker.asked] == [1, 2, 3]


def test_onnx_runtime_takes_the_first_plan_of_its_heuristics(asker: FakeAsker) -> None:
    question = Question.of(UNSEEN)._replace(searcher="EXHAUSTIVE")
    (found,) = choices_of(load("rtx4090")).frontend([question])
    assert (found.nbytes, found.source) == (3000, ASKED) and asker.asked == [question]


def test_without_a_library_the_range_holds_and_says_so() -> None:
    found = choices_of(load("h200")).workspace(UNSEEN)
    x, w, y = 7 * 61 * 39 * 39, 83 * 61 * 9, 7 * 83 * 39 * 39
    assert (found.nbytes, found.low_bytes, found.source) == (4 * (x + w + y), 0, UNKNOWN)
    assert found.high_bytes == most_bytes(UNSEEN) > found.nbytes
    assert list(NextPlans(choices_of(load("h200")), UNSEEN, DEFAULT, 3000))[:3] == [1500, 750, 375]


def test_a_workspace_that_may_be_none_has_a_range() -> None:
    """In NHWC kernels on tensor cores take nothing, as far as is known: where nobody answers that is no certainty."""
    found = choices_of(load("a100-80gb")).workspace(UNSEEN._replace(dtype="float16", channels_last=True))
    assert (found.nbytes, found.low_bytes, found.source) == (0, 0, UNKNOWN) and found.high_bytes > 2**20


def test_between_recorded_batches_others_bound_what_is_taken() -> None:
    """A first layer takes nothing between two batches at which it takes nothing; of others, and beyond them, nobody knows."""
    first = Convolution("forward", "float32", False, (246, 3, 224, 224), (8, 3, 3, 3), (0, 0), (1, 1), (1, 1))
    choices = choices_of(load("h200"))
    assert choices.workspace(first) == Workspace.known(0, MEASURED)
    far = choices.workspace(first._replace(x_shape=(4854, 3, 224, 224)))
    assert (far.nbytes, far.source) == (0, UNKNOWN) and far.high_bytes > 2**30
    weight = KNOWN._replace(operation="weight", x_shape=(310, 64, 56, 56))
    between, known = choices.workspace(weight), record("h200").answers(weight)  # type: ignore[union-attr]
    assert between.source == UNKNOWN and between.nbytes <= between.high_bytes < most_bytes(weight)
    assert between.high_bytes >= max(known[288], known[320])


def test_a_plan_of_nothing_is_behind_one_that_finds_no_room() -> None:
    following = NextPlans(choices_of(load("h200")), UNSEEN, DEFAULT, 0)
    assert following and list(following) == [0] and following.known
    assert not NextPlans(choices_of(load("h200")), UNSEEN, DEFAULT, 3000).known


def test_benchmark_mode_without_a_library_tries_the_largest_plan_there_may_be() -> None:
    """Every third of 752 convolutions an H100 ran: half take no more than is said, nearly all no more than the range's end."""
    rows = json.loads(gzip.decompress((DATA / "h100/tried_plans.json.gz").read_bytes()))["calls"][::3]
    calls = [Convolution.read(fields) for fields, _ in rows]
    most = [max(requests, default=0) for _, requests in rows]
    settings = ConvolutionSettings(benchmark=True)
    tried = choices_of(load("h100")).workspaces(calls, settings, trial=True)
    assert sum(each.nbytes + 512 >= real for each, real in zip(tried, most, strict=True)) > len(rows) / 2
    assert sum(each.high_bytes + 512 < real for each, real in zip(tried, most, strict=True)) <= len(rows) / 60


def test_a_winner_that_is_taken_to_need_nothing_has_a_range(asker: FakeAsker) -> None:
    """The plan that is taken to win a timing needs nothing; another one may."""
    asker.plans = {UNSEEN: (Plan(1, 0), Plan(25, 9000))}
    (found,) = choices_of(load("rtx4090")).workspaces([UNSEEN], ConvolutionSettings(benchmark=True))
    assert (found.nbytes, found.low_bytes, found.source) == (0, 0, UNKNOWN) and found.high_bytes >= 9000


def test_what_follows_without_a_library_is_recorded_or_nobody_s_answer() -> None:
    choices = choices_of(load("h200"))
    stem = Convolution("forward", "float32", False, (270, 3, 224, 224), (64, 3, 7, 7), (3, 3), (2, 2), (1, 1))
    nbytes = choices.workspace(stem).nbytes
    following = NextPlans(choices, stem, DEFAULT, nbytes)
    assert (nbytes, list(following), following.known) == (1029649168, [0], True)
    assert not NextPlans(choices, UNSEEN, DEFAULT, 3000).known


def test_between_recorded_batches_the_figure_is_on_the_straight_line() -> None:
    choices = choices_of(load("h200"))
    at = {batch: choices.workspace(KNOWN._replace(x_shape=(batch, 64, 56, 56))) for batch in (16, 17, 32)}
    assert at[17].source == UNKNOWN and at[16].source == at[32].source == MEASURED
    assert at[17].nbytes == at[16].nbytes + (at[32].nbytes - at[16].nbytes) // 16


def test_every_profile_has_a_description_of_its_own_figures() -> None:
    for name in names():
        profile = load(name)
        device = profile.cudnn_device
        major, minor = profile.compute_capability
        assert device["deviceVer"] == 100 * major + 10 * minor, name
        assert device["multiProcessorCount"] == profile.sm_count, name
        assert device["maxThreadsPerSM"] == profile.max_threads_per_sm, name
        assert set(device) == set(load("h200").cudnn_device), name
        assert "cudnn_device" in profile.sources, name
        json.dumps(dict(device))


def test_the_records_are_small_and_of_one_release() -> None:
    tables = [record(name) for name in ("h200", "sm75", "sm80", "sm86", "sm89", "sm120", "h200.frontend")]
    assert all(table is not None and table.about["cudnn"].startswith("9.19") for table in tables)
    assert record("sm100") is None
