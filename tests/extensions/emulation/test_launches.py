"""What a step gives the device, as the emulated process writes it down: steps, kernels' accesses, graphs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import analyzer_emulation

KERNEL = """
    tmp0 = tl.load(in_ptr0 + (x2), xmask)
    tmp1 = tl.load(in_ptr0 + (3 + x2), xmask, other=0.0)
    tmp5 = tl.load(in_ptr1 + (r0_1 + 768*tmp4), r0_mask)
    tmp9 = tl.load(in_ptr1 + (r0_1 + 768*tmp8), r0_mask)
    tmp7 = tl.load(in_out_ptr0 + (x2), xmask)
    tl.store(in_out_ptr0 + (x2), tmp6, xmask)
    tl.atomic_add(out_ptr1 + (x0), tmp7, xmask)
"""


def loaded() -> Any:
    """The file as a module: it runs in the user's Python, apart from this package."""
    path = Path(analyzer_emulation.__file__).parent / "inside" / "launches.py"
    spec = importlib.util.spec_from_file_location("launches", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Captured:
    """A CUDA graph, which a CPU build of torch cannot make."""

    def capture_begin(self) -> None: ...

    def capture_end(self) -> None: ...

    def replay(self) -> None: ...


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", type("CUDAGraph", (Captured,), {}))
    return loaded().StepLaunches(lambda: ("net.py:1", "layer", "forward"))


def test_loads_and_stores_name_their_arguments() -> None:
    """What a second loop reads again is one place, of whatever value its index is."""
    assert loaded()._accesses(KERNEL) == {
        "in_ptr0": [2, 0], "in_ptr1": [1, 0], "in_out_ptr0": [1, 1], "out_ptr1": [0, 1],
    }  # fmt: skip


def test_a_step_is_over_where_the_first_optimizer_steps(launches: Any) -> None:
    class Optimizer: ...

    first, second = Optimizer(), Optimizer()
    for number in range(3):
        launches._add({"kernel": number})
        launches.stepped(first)
        launches._add({"kernel": -number})
        launches.stepped(second)
    assert [entry["kernel"] for entry in launches.last] == [-1, 2]
    launches._add({"kernel": 7})  # after the last step nothing is whole
    launches._called()
    assert [entry["kernel"] for entry in launches.last] == [-1, 2]


def test_without_an_optimizer_a_step_is_a_call_of_a_compiled_module(launches: Any) -> None:
    for number in range(3):
        launches._called()
        launches._add({"kernel": number})
    assert [entry["kernel"] for entry in launches.last] == [1]


def test_steps_without_anything_compiled_are_not_kept(launches: Any) -> None:
    launches._add({"name": "aten::mm.default"})
    launches._called()
    assert launches.last == []


def test_a_replay_does_again_what_was_captured(launches: Any) -> None:
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    launches._add({"kernel": 1})
    launches._add({"call": 3})
    graph.capture_end()
    for _ in range(2):
        launches._called()
        graph.replay()
    launches._called()
    (replay,) = launches.last
    assert [entry["kernel"] for entry in replay["graph"]] == [1]


def test_a_kernel_is_written_down_with_its_sizes(launches: Any) -> None:
    autotuner = SimpleNamespace(
        fn=SimpleNamespace(arg_names=["in_ptr0", "in_out_ptr0", "xnumel", "r0_numel", "XBLOCK"], src=KERNEL, __name__="triton_"),
        triton_meta={"signature": {"in_ptr0": "*fp32", "in_out_ptr0": "*fp32", "xnumel": "i32", "r0_numel": "i32"}},
        inductor_meta={"kernel_name": "triton_red_fused_0"}, heuristic_type=SimpleNamespace(name="REDUCTION"),
    )  # fmt: skip
    launches._kernel(autotuner, (torch.empty(8, 4), torch.empty(8), 8, 4))
    (entry,) = launches._now
    assert (entry["kernel"], entry["kind"], entry["sizes"]) == (
        "triton_red_fused_0",
        "reduction",
        {"xnumel": 8, "r0_numel": 4},
    )
    assert [(places, tensor["shape"]) for places, tensor in entry["tensors"]] == [
        ([2, 0], [8, 4]),
        ([1, 1], [8]),
    ]
    assert entry["place"] == ("net.py:1", "layer", "forward")


def test_nothing_is_written_down_before_a_compiler_is_there(
    launches: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, loaded()._KERNELS, raising=False)
    launches.operator(torch.ops.aten.relu.default, (torch.empty(1),), {}, torch.empty(1))
    assert launches._now == []
