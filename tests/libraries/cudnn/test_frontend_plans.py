"""Workspaces of ONNX Runtime's plans: the measured shapes, and the form of the nearest one, on a table of a few rows."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.devices import load
from analyzer.libraries.cudnn.frontend_plans import (
    FrontendConvolution,
    _form,
    _kind,
    _place,
    doubt,
    workspace,
    workspaces,
)
from analyzer.libraries.cudnn.table import Convolution as Call
from analyzer.libraries.cudnn.table import measurements, table_of_device

H200 = load("h200")
ONE = ((1, 1), (1, 1), (1, 1))
DENSE = FrontendConvolution(False, (2, 8, 14, 14), (16, 8, 3, 3), (2, 16, 14, 14), *ONE, 1)
X, W, Y = 4 * 2 * 8 * 14 * 14, 4 * 16 * 8 * 9, 4 * 2 * 16 * 14 * 14
OTHER = FrontendConvolution(False, (2, 32, 28, 28), (32, 32, 3, 3), (2, 32, 28, 28), *ONE, 1)


def test_the_row_of_a_geometry() -> None:
    line = FrontendConvolution(True, (2, 8, 14), (8, 4, 3), (2, 8, 28), (2,), (1,), (3,), 2)
    plane = line.padded()
    assert (plane.x, plane.w, plane.y) == ((2, 8, 14, 1), (8, 4, 3, 1), (2, 8, 28, 1))
    assert (plane.stride, plane.pad, plane.dilation) == ((2, 1), (1, 0), (3, 1))
    assert (plane.transposed, plane.groups, plane.padded()) == (True, 2, plane)
    assert plane.row == (
        *(1, 2, 2, 8, 14, 1, 1, 8, 4, 3, 1, 1),
        *(2, 1, 1, 1, 0, 0, 3, 1, 1, 8, 28, 1, 1),
    )


@pytest.mark.parametrize(
    ("nbytes", "copies", "rest"),
    [
        (0, (0, 0, 0), 0),
        (99, (0, 0, 0), 99),
        (100, (1, 0, 0), 0),
        (1010, (0, 1, 0), 10),
        (1100, (1, 1, 0), 0),
        (10100, (1, 0, 1), 0),
        (11100, (1, 1, 1), 0),
        (11000, (0, 1, 1), 0),
        (10050, (0, 0, 1), 50),
        (99999, (1, 1, 1), 88899),
    ],
)
def test_forms(nbytes: int, copies: tuple[int, int, int], rest: int) -> None:
    """Input 100, weights 1,000, output 10,000 bytes: the copies that leave the least."""
    assert _form((100, 1000, 10000), nbytes) == (copies, rest)


def table(folder: Path, rows: list[tuple[FrontendConvolution, int, int, int, int, int]]) -> Path:
    """(convolution, batch, search, dtype, layout, bytes) as the shipped file holds them, in any order."""
    geometries = sorted({convolution.row for convolution, *_ in rows})
    path = folder / "mine.onnxruntime.npz"
    measurement = [
        (geometries.index(convolution.row), batch, search, dtype, nhwc)
        for convolution, batch, search, dtype, nhwc, _ in rows
    ]
    np.savez(
        path,
        geometry=np.array(geometries, np.int16),
        measurement=np.array(measurement, np.int16),
        workspace=np.array([row[-1] for row in rows]),
    )
    return path


def asked(path: Path, convolution: FrontendConvolution, search: str = "EXHAUSTIVE") -> tuple[int, str]:
    return workspace(convolution, search, dataclasses.replace(H200, data={"onnxruntime": path}))


def test_measured_shapes_give_their_figures(tmp_path: Path) -> None:
    rows = [
        (OTHER, 2, 0, 0, 0, 5),
        (DENSE, 2, 0, 0, 0, 111),
        (DENSE, 4, 0, 0, 0, 222),
        (DENSE, 2, 1, 0, 0, 333),
        (DENSE, 2, 0, 1, 0, 444),
        (DENSE, 2, 0, 0, 1, 555),
        (DENSE, 2, 2, 0, 0, 666),
    ]
    path = table(tmp_path, rows)
    assert asked(path, DENSE) == (111, "measured")
    four = dataclasses.replace(DENSE, x=(4, *DENSE.x[1:]), y=(4, *DENSE.y[1:]))
    assert asked(path, four) == (222, "measured")
    assert asked(path, DENSE, "HEURISTIC") == (333, "measured")
    assert asked(path, DENSE, "DEFAULT") == (666, "measured")
    assert asked(path, dataclasses.replace(DENSE, dtype="float16")) == (444, "measured")
    assert asked(path, dataclasses.replace(DENSE, nhwc=True)) == (555, "measured")
    # A type nobody measured takes float32's figure as a bound.
    assert asked(path, dataclasses.replace(DENSE, dtype="float64")) == (111, "bounded")


BIGGER = FrontendConvolution(False, (3, 10, 15, 15), (20, 10, 3, 3), (3, 20, 15, 15), *ONE, 1)
BX, BW, BY = 4 * 3 * 10 * 225, 4 * 20 * 10 * 9, 4 * 3 * 20 * 225


def test_other_shapes_take_the_form_of_the_nearest(tmp_path: Path) -> None:
    path = table(tmp_path, [(DENSE, 2, 0, 0, 0, X + Y + 7), (OTHER, 2, 0, 0, 0, 0)])
    assert asked(path, BIGGER) == (BX + BY + 7, "bounded")
    large = FrontendConvolution(False, (2, 30, 30, 30), (30, 30, 3, 3), (2, 30, 30, 30), *ONE, 1)
    assert asked(path, large) == (0, "bounded")
    path.unlink()
    (tmp_path / "w").mkdir()
    assert asked(table(tmp_path / "w", [(DENSE, 2, 0, 0, 0, W + 7)]), BIGGER) == (BW + 7, "bounded")


def test_halves_are_measured_in_halves(tmp_path: Path) -> None:
    path = table(tmp_path, [(DENSE, 2, 0, 1, 0, X // 2 + 3), (DENSE, 2, 0, 0, 0, W)])
    half = dataclasses.replace(BIGGER, dtype="float16")
    assert asked(path, half) == (BX // 2 + 3, "bounded")
    assert asked(path, BIGGER) == (BW, "bounded")
    # Without a row of its search: the exhaustive one.
    assert asked(path, BIGGER, "HEURISTIC") == (BW, "bounded")


@pytest.mark.parametrize("search", ["EXHAUSTIVE", "HEURISTIC"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_copies_are_of_the_type_that_was_measured(search: str, dtype: str, tmp_path: Path) -> None:
    half = dtype == "float16"
    row = (DENSE, 2, int(search == "HEURISTIC"), int(half), 1, (X + W) // (2 if half else 1) + 7)
    wanted = dataclasses.replace(BIGGER, dtype=dtype, nhwc=True)
    assert asked(table(tmp_path, [row]), wanted, search) == ((BX + BW) // (2 if half else 1) + 7, "bounded")


def test_a_type_not_measured_takes_float32_of_its_search_first(tmp_path: Path) -> None:
    path = table(tmp_path, [(DENSE, 2, 0, 0, 0, 5), (DENSE, 2, 1, 0, 0, 7)])
    half = dataclasses.replace(BIGGER, dtype="float16")
    assert asked(path, half, "HEURISTIC") == (7, "bounded")
    assert asked(path, half) == (5, "bounded")


def test_float32_copies_that_stand_in_become_half_as_large(tmp_path: Path) -> None:
    """A float16 call measured in no float16 row: the copies of a float32 row are read in its own four bytes."""
    path = table(tmp_path, [(DENSE, 2, 0, 0, 0, X + W)])
    half = dataclasses.replace(BIGGER, dtype="float16")
    assert asked(path, BIGGER) == (BX + BW, "bounded")
    assert asked(path, half) == ((BX + BW) // 2, "bounded")


def test_the_fallback_list_has_a_table_a_channel_or_nothing(tmp_path: Path) -> None:
    path = table(tmp_path, [(DENSE, 2, 2, 0, 0, 4 * 8 * 9), (OTHER, 2, 2, 0, 0, 0)])
    assert asked(path, BIGGER, "DEFAULT") == (4 * 10 * 9, "bounded")
    large = FrontendConvolution(False, (2, 30, 30, 30), (30, 30, 3, 3), (2, 30, 30, 30), *ONE, 1)
    assert asked(path, large, "DEFAULT") == (0, "bounded")


def test_nothing_of_its_kind_is_bounded_by_a_copy_of_everything(tmp_path: Path) -> None:
    path = table(tmp_path, [(DENSE, 2, 0, 0, 0, 0)])
    wide = dataclasses.replace(DENSE, w=(16, 8, 1, 1), pad=(0, 0))
    assert asked(path, wide) == (X + 4 * 16 * 8 + Y, "bounded")
    # Sizes beyond what the table can write.
    huge = dataclasses.replace(DENSE, x=(2, 8, 2**31, 1))
    assert asked(path, huge) == (4 * 2 * 8 * 2**31 + W + Y, "bounded")


def test_a_device_without_a_table_takes_the_h200s_as_a_bound() -> None:
    bare = dataclasses.replace(H200, data={})
    nbytes, basis = workspace(DENSE, "EXHAUSTIVE", H200)
    assert workspace(DENSE, "EXHAUSTIVE", bare) == (nbytes, "bounded")
    assert basis in ("measured", "bounded")


def test_kinds() -> None:
    """Rank, transposed, depthwise, grouped, pointwise, pointwise with strides: each is a kind of its own."""
    point = dataclasses.replace(DENSE, w=(16, 8, 1, 1), pad=(0, 0))
    kinds = [
        DENSE,
        dataclasses.replace(DENSE, w=(16, 4, 3, 3), groups=2),
        dataclasses.replace(DENSE, w=(16, 1, 3, 3), groups=8),
        dataclasses.replace(DENSE, transposed=True),
        dataclasses.replace(DENSE, transposed=True, w=(8, 1, 3, 3), groups=8),
        dataclasses.replace(DENSE, transposed=True, w=(8, 1, 3, 3), groups=4),
        point,
        dataclasses.replace(point, stride=(2, 1)),
        FrontendConvolution(
            False, (2, 8, 4, 4, 4), (8, 8, 3, 3, 3), (2, 8, 4, 4, 4), (1,) * 3, (1,) * 3, (1,) * 3, 1
        ),
    ]
    numbers = _kind(np.array([convolution.row for convolution in kinds])).tolist()
    assert len(set(numbers)) == len(kinds)
    padded = dataclasses.replace(point, pad=(1, 0))
    strided = dataclasses.replace(DENSE, stride=(2, 2))
    same = _kind(np.array([DENSE.row, padded.row, strided.row])).tolist()
    assert len(set(same)) == 1


def test_places_are_logarithms() -> None:
    """Batch, channels a group in and out, positions, filter, strides, dilations."""
    call = FrontendConvolution(False, (8, 32, 4, 8), (64, 8, 2, 4), (8, 64, 9, 9), (2, 4), (1, 1), (4, 8), 4)
    assert _place(np.array([call.row]), np.array([8])).tolist() == [[3.0, 3.0, 4.0, 5.0, 3.0, 3.0, 5.0]]


@settings(max_examples=60, deadline=None)
@given(
    rank=st.sampled_from((1, 2, 3)),
    channels=st.sampled_from(((3, 64, 1), (64, 64, 1), (32, 32, 32), (16, 32, 4), (256, 1024, 1))),
    extent=st.sampled_from((1, 7, 28, 56, 500)),
    kernel=st.sampled_from((1, 3, 7)),
    search=st.sampled_from(("EXHAUSTIVE", "HEURISTIC", "DEFAULT")),
    dtype=st.sampled_from(("float32", "float16", "bfloat16")),
    nhwc=st.booleans(),
    batches=st.lists(st.integers(1, 2048), min_size=1, max_size=40),
)
def test_many_batches_at_once(
    rank: int,
    channels: tuple[int, int, int],
    extent: int,
    kernel: int,
    search: str,
    dtype: str,
    nhwc: bool,
    batches: list[int],
) -> None:
    """Each is what it is alone, asked or not, also where several measured shapes are as near as the nearest."""
    inner, outer, groups = channels
    space, ones = (extent,) * rank, (1,) * rank
    like = FrontendConvolution(
        False, (1, inner, *space), (outer, inner // groups, *(kernel,) * rank), (1, outer, *space),
        ones, (kernel // 2,) * rank, ones, groups, dtype, nhwc,
    )  # fmt: skip
    alone = [
        workspace(dataclasses.replace(like, x=(b, *like.x[1:]), y=(b, *like.y[1:])), search, H200)[0]
        for b in batches
    ]
    assert workspaces(like, batches, search, H200) == tuple(alone)


STEM = FrontendConvolution(
    False, (1, 3, 224, 224), (64, 3, 7, 7), (1, 64, 112, 112), (2, 2), (3, 3), (1, 1), 1
)
BODY = FrontendConvolution(False, (1, 64, 56, 56), (64, 64, 3, 3), (1, 64, 56, 56), *ONE, 1)


@pytest.mark.parametrize("call", [STEM, BODY])
@pytest.mark.parametrize("gpu", ["rtx3090", "t4", "a100-40gb", "rtx5090"])
def test_a_gpu_without_plans_takes_what_its_capability_was_asked(call: FrontendConvolution, gpu: str) -> None:
    """PyTorch's first plan, which is heuristics mode A's: known for HEURISTIC, a bound for EXHAUSTIVE, not asked for DEFAULT."""
    profile = load(gpu)
    known = measurements(table_of_device(profile))
    asked = Call("forward", "float32", False, call.x, call.w, call.pad, call.stride, call.dilation)
    row = known.family_row(asked)
    assert row is not None
    batches, sizes = known.batches(asked, row, "float32")
    first = int(sizes[batches.tolist().index(1)])
    assert workspace(call, "HEURISTIC", profile) == (first, "measured")
    assert workspace(call, "EXHAUSTIVE", profile) == (first, "bounded")
    assert workspace(call, "DEFAULT", profile)[1] == "bounded"
    assert workspaces(call, (1, 2), "HEURISTIC", profile)[0] == first


def test_heuristic_plans_are_pytorchs_first_ones_on_the_h200() -> None:
    """Where both are known they are equal: what a GPU without plans rests on."""
    stripped = dataclasses.replace(H200, data={})
    for call in (STEM, BODY):
        assert workspace(call, "HEURISTIC", stripped) == workspace(call, "HEURISTIC", H200)


def test_how_far_a_plan_may_be_off() -> None:
    """Half, or a MiB; what is known, and what the H200 was asked, is not in doubt."""
    gpu = load("t4")
    assert doubt(10 << 20, "bounded", gpu) == 5 << 20
    assert doubt(512, "bounded", gpu) == 1 << 20
    assert doubt(10 << 20, "measured", gpu) == 0
    assert doubt(10 << 20, "bounded", H200) == 0
