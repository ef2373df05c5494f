"""cuDNN's workspaces: the shipped table against executed calls, the forms, and what is inferred beyond the table."""

from __future__ import annotations

import gzip
import json
import statistics
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.libraries.cudnn.convolutions import Workspace, workspace
from analyzer.libraries.cudnn.forms import Form, bytes_of, form_of, parts_of
from analyzer.libraries.cudnn.table import OPERATIONS, Convolution, measurements
from tests.paths import DATA

CALLS = DATA / "h200" / "convolution_calls.json.gz"


def executed(part: str) -> list[tuple[Convolution, int, int]]:
    """(call, groups, bytes requested beside the result) of recorded executions."""
    with gzip.open(CALLS, "rt") as file:
        rows = json.load(file)[part]
    calls = []
    for operation, dtype, channels_last, *shapes, groups, nbytes in rows:
        x, w, padding, stride, dilation = (tuple(part) for part in shapes)
        call = Convolution(operation, dtype, channels_last, x, w, padding, stride, dilation)
        if len(x) == 3:  # as PyTorch does
            call = replace(call, x_shape=(*x[:2], 1, x[2]), w_shape=(*w[:2], 1, w[2]))
            call = replace(call, padding=(0, *padding), stride=(1, *stride), dilation=(1, *dilation))
        calls.append((call, groups, nbytes))
    return calls


def is_native_depthwise(call: Convolution, groups: int) -> bool:
    """PyTorch's own kernel rather than cuDNN's (`runtimes/pytorch/scratch/convolution.py`, rule 2); float16 has a rule of its own."""
    return groups > 1 and groups == call.x_shape[1] and not call.channels_last


def test_every_executed_call_of_the_networks_tables_is_found_to_the_byte() -> None:
    for call, groups, nbytes in executed("table"):
        if not is_native_depthwise(call, groups):
            assert workspace(call, "h200") == Workspace(nbytes, nbytes, nbytes, "measured"), call


def test_calls_recorded_inside_models() -> None:
    """27 recorded cases (ResNet to UNETR): in the table nearly all, and then to the byte."""
    found = [
        (workspace(call, "h200"), nbytes)
        for call, groups, nbytes in executed("models")
        if not is_native_depthwise(call, groups)
    ]
    measured = [(space, nbytes) for space, nbytes in found if space.source == "measured"]
    assert len(measured) > 0.9 * len(found)
    assert all(space.nbytes == nbytes for space, nbytes in measured)


def test_convolutions_no_network_has() -> None:
    """1,500 random shapes, executed: measured 56 % to the allocator's 512 bytes, 80 % within the range given."""
    exact, errors, inside = 0, [], 0
    for call, groups, nbytes in executed("random"):
        if is_native_depthwise(call, groups):
            continue
        space = workspace(call, "h200")
        x, y, w, _ = parts_of(call, False)
        exact += -(-space.nbytes // 512) == -(-nbytes // 512)
        inside += space.low_bytes - 512 <= nbytes <= space.high_bytes + 512
        errors.append(abs(space.nbytes - nbytes) / max(x + y + w, nbytes))
    assert exact > 0.5 * len(errors)
    assert inside > 0.75 * len(errors)
    assert statistics.quantiles(errors, n=4)[2] < 0.3  # three quarters: 30 % of the call's own tensors
    # What the votes found when all measured calls were let vote (814, 1171 when the first million did alone; 841, 1196,
    # 462.980 before the usual grids): a vote that moves any of the calls moves these.
    assert (exact, inside, round(sum(errors), 3)) == (870, 1208, 442.836)


def test_the_table_says_where_it_comes_from() -> None:
    about = measurements("h200").about
    assert "H200" in about["gpu"]
    assert all(about[key] for key in ("driver", "cudnn", "torch", "date", "method", "settings", "check"))
    assert int(about["entries"]) > 1_300_000
    assert CALLS.stat().st_size < 100_000


def test_other_devices_take_the_h200s_figures_and_say_so() -> None:
    call = Convolution("forward", "float32", False, (32, 64, 56, 56), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1))
    assert workspace(call, "h200") == Workspace(25_837_584, 25_837_584, 25_837_584, "measured")
    assert workspace(call, "rtx4090").source == "measured (transferred from h200)"
    assert workspace(replace(call, dtype="float64"), "h200").source == "unknown"


def test_an_unseen_batch_size_has_the_form_of_its_neighbours() -> None:
    """Copies of input, output and filter, in NHWC, and 147 bytes: as at batch 32."""
    for batch, source in ((32, "measured"), (33, "inferred")):
        call = Convolution(
            "forward", "bfloat16", False, (batch, 64, 56, 56), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1)
        )
        assert measurements("h200").family_row(call) is not None
        space = workspace(call, "h200")
        assert (space.nbytes, space.source) == (2 * (2 * batch * 64 * 56 * 56 + 64 * 64 * 9) + 147, source)


@pytest.mark.parametrize(
    ("nbytes", "form"),
    [
        (0, Form(0, 0, 0, False, 0, False, 0)),
        (400, Form(0, 0, 0, False, 0, False, 400)),
        (4 * (8 * 64 * 56 * 56 + 64 * 64 * 9) + 16, Form(1, 0, 1, False, 0, False, 16)),
        (4 * (2 * 8 * 64 * 56 * 56 + 64 * 64 * 9) + 147, Form(1, 1, 1, False, 0, False, 147)),
        (4 * 8 * 64 * 64 * 9, Form(0, 0, 0, False, 1, True, 0)),
        (4 * (2 * 8 * 64 * 56 * 56 + 5 * 64 * 64 * 9) + 144, Form(1, 1, 1, False, 4, False, 144)),
    ],
)
def test_forms(nbytes: int, form: Form) -> None:
    call = Convolution("weight", "float32", False, (8, 64, 56, 56), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1))
    assert form_of(call, nbytes) == form


def square(
    operation: str, dtype: str, batch: int, channels: int, results: int, kernel: int, size: int
) -> Convolution:
    """A square image under a square filter, whose result is as large."""
    image, filters = (batch, channels, size, size), (results, channels, kernel, kernel)
    return Convolution(operation, dtype, False, image, filters, (kernel // 2,) * 2, (1, 1), (1, 1))


squares = st.builds(
    square,
    st.sampled_from(OPERATIONS),
    st.sampled_from(["float32", "bfloat16", "float16"]),
    batch=st.integers(1, 64),
    channels=st.integers(1, 96),
    results=st.integers(1, 96),
    kernel=st.sampled_from([1, 3, 7]),
    size=st.integers(7, 64),
)


@given(squares, st.integers(0, 2**33))
@settings(max_examples=200, deadline=None)
def test_a_form_gives_back_the_bytes_it_was_read_from(call: Convolution, nbytes: int) -> None:
    form = form_of(call, nbytes)
    assert bytes_of(call, form) == nbytes
    assert form.rest_bytes >= 0


@given(squares)
@settings(max_examples=60, deadline=None)
def test_any_convolution_gets_an_answer_within_its_own_range(call: Convolution) -> None:
    space = workspace(call, "h200")
    assert 0 <= space.low_bytes <= space.nbytes <= space.high_bytes
