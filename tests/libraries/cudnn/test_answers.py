"""What is told of a list of plans, and that no more plans are built than it takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from analyzer.libraries.cudnn.answers import CudnnPlan, figures
from analyzer.libraries.cudnn.table import FIGURES

# In PyTorch's order: the heuristics' on tensor cores, one that is not deterministic, then plain ones.
PLANS = [
    CudnnPlan(67, 300, tensor_core=True),
    CudnnPlan(67, 900, tensor_core=True),
    CudnnPlan(25, 250, deterministic=False),
    CudnnPlan(1, 310),
    CudnnPlan(28, 20),
    CudnnPlan(0, 0),
]


def told(plans: list[CudnnPlan], dtype: str = "float32") -> dict[str, int]:
    return dict(zip(FIGURES, figures(plans, dtype), strict=True))


def test_each_setting_has_its_first_plan_and_its_trials() -> None:
    found = told(PLANS[1:])
    assert (found["first"], found["trial"]) == (900, -3)
    assert (found["deterministic"], found["deterministic_trial"]) == (-3, -3)
    assert (found["strict"], found["strict_trial"]) == (250, 310)
    assert told(PLANS[2:])["deterministic"] == 310


def test_only_float32_knows_tensor_cores_apart() -> None:
    assert told(PLANS, "float16")["strict"] == told(PLANS, "bfloat16")["strict"] == -3


def test_what_follows_is_smaller_than_all_before_it() -> None:
    assert [told(PLANS)[f"after{number}"] for number in (1, 2, 3)] == [250, 20, 0]
    assert [told(PLANS[4:])[f"after{number}"] for number in (1, 2, 3)] == [0, -1, -1]
    many = [CudnnPlan(1, nbytes) for nbytes in (9, 8, 7, 6, 7, 5)]
    assert [told(many)[f"after{number}"] for number in (1, 2, 3)] == [8, 7, 5]


def test_ten_plans_are_timed_and_all_are_tried() -> None:
    many = [CudnnPlan(1, nbytes) for nbytes in range(1, 13)]
    assert (told(many)["timed"], told(many)["trial"]) == (10, 12)


def test_no_plan_is_said() -> None:
    assert set(figures([], "float32")[:-1]) == {-1, -3}
    assert told([CudnnPlan(1, 5, tensor_core=True)])["strict"] == -1
    assert told([CudnnPlan(1, 5, deterministic=False)])["deterministic"] == -1


@pytest.mark.parametrize(("dtype", "built"), [("float32", 3), ("float16", 1)])
def test_no_more_plans_are_built_than_the_first_ones_take(dtype: str, built: int) -> None:
    asked: list[CudnnPlan] = []

    def plans() -> Iterator[CudnnPlan]:
        for plan in PLANS:
            asked.append(plan)
            yield plan

    found = dict(zip(FIGURES, figures(plans(), dtype, whole=False), strict=True))
    assert len(asked) == built
    assert found["first"] == 300 and found["strict"] == (250 if dtype == "float32" else -3)
    assert found["trial"] == found["after1"] == found["timed"] == -2
