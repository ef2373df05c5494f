"""Programs that set PyTorch's and cuBLAS's variables themselves, which are read when memory is first asked for and a handle is made."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

MIB = 2**20
PROGRAM = """
import os
{set}
import torch
a = torch.zeros(1024, 1024, device="cuda")
b = a @ a
rows = [torch.empty(5 << 18, device="cuda") for _ in range(5)]
"""


def figures(estimate: Any) -> tuple[int, int, int]:
    return estimate.peak_allocated, estimate.peak_reserved, estimate.device_used


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        ("PYTORCH_ALLOC_CONF", "roundup_power2_divisions:2"),
        ("CUBLAS_WORKSPACE_CONFIG", ":4096:2"),
        ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
    ],
)
def test_what_the_program_sets_counts_as_what_it_is_started_with(
    run: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.delenv(name, raising=False)  # another test's MONAI sets one
    plain = run(PROGRAM.format(set=""))
    outside = run(PROGRAM.format(set=""), environment={name: value})
    inside = run(PROGRAM.format(set=f"os.environ[{name!r}] = {value!r}"))
    assert figures(inside) == figures(outside) != figures(plain)


def test_what_is_set_after_the_first_use_is_not_read(run: Any) -> None:
    late = PROGRAM.format(set="") + 'os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":0:0"\nc = a @ b\n'
    early = PROGRAM.format(set="") + "c = a @ b\n"
    assert figures(run(late)) == figures(run(early))


def test_triangular_systems_are_solved_by_cublas(run: Any) -> None:
    solve = """
import torch
a = torch.eye(64, device="cuda")
torch.linalg.solve_triangular(a, a, upper=False)
"""
    product = solve.replace("torch.linalg.solve_triangular(a, a, upper=False)", "a @ a")
    outside = [estimate.device_used - estimate.peak_reserved for estimate in map(run, (solve, product))]
    assert outside[0] == outside[1]
