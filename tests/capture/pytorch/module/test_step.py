"""What a step does in which order, and what stays alive between its parts (`step.py`; the recorded measurements' program)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from analyzer import analyze
from analyzer.graph import Category, Graph, Mark, Run
from tests.capture.pytorch.captures import (
    Model,
    inference,
    live_bytes,
    names,
    operators,
    step,
    storage,
)


def marks(graph: Graph) -> list[str]:
    return [m.name for m in graph.program if isinstance(m, Mark)]


def identity(output: Any, *_: Any) -> Any:
    return output.sum()


class Exported(nn.Linear):
    """A program that `torch.export` made changes no mode (`torch/export/exported_program.py`, `_train`)."""

    def train(self, mode: bool = True) -> Any:
        raise NotImplementedError("Calling train() is not supported yet.")


class TestMarks:
    def test_a_model_that_changes_no_mode(self) -> None:
        assert marks(inference(Exported(2, 2), torch.empty(1, 2)))[-1] == "0.forward"

    def test_inference(self) -> None:
        graph = inference(nn.Linear(2, 2), torch.empty(1, 2), steps=2)
        assert marks(graph) == ["start", "model", "0.input", "0.forward", "1.input", "1.forward"]

    def test_training(self) -> None:
        assert marks(step(nn.Linear(2, 2), torch.empty(1, 2))) == [
            "start", "model", "0.input", "0.zero_grad", "0.forward", "0.loss", "0.backward", "0.step",
        ]  # fmt: skip

    def test_accumulation_zeroes_before_the_first_and_steps_after_the_last_micro_batch(self) -> None:
        graph = step(nn.Linear(2, 2), torch.empty(1, 2), grad_accumulation=3, steps=2)
        micro = ["input", "zero_grad", "forward", "loss", "backward"]
        for iteration in range(2):
            mine = [m.partition(".")[2] for m in marks(graph) if m.startswith(f"{iteration}.")]
            assert mine == [*micro, *micro, *micro, "step"]

    def test_no_optimizer(self) -> None:
        graph = step(nn.Linear(2, 2), torch.empty(1, 2), optimizer=None)
        assert marks(graph)[-1] == "0.backward" and not operators(graph, "optimizer")

    @pytest.mark.parametrize("amp", ["bf16", "fp16"])
    def test_amp_has_the_same_marks(self, amp: str) -> None:
        plain, mixed = (step(nn.Linear(2, 2), torch.empty(1, 2), amp=a) for a in (None, amp))
        assert marks(plain) == marks(mixed)


class TestAccumulation:
    def test_gradients_of_the_second_micro_batch_are_added_to_the_first(self) -> None:
        graph = step(nn.Linear(4, 4), torch.empty(2, 4), grad_accumulation=2)
        first, second = [], []
        backward = 0
        for moment in graph.program:
            if isinstance(moment, Mark) and moment.name.endswith("backward"):
                backward += 1
            if isinstance(moment, Run) and graph.operators[moment.operator].name.startswith("aten::add_"):
                (second if backward == 1 else first).append(graph.operators[moment.operator])
        assert first == [] and len(second) == 2
        live = live_bytes(graph)
        gradients = 4 * (16 + 4)
        # weights, gradients, the batch, the output and the loss
        assert live["0.backward"] == 2 * gradients + 32 + 32 + 4


class TestVariables:
    """Locals keep tensors until they are reassigned: batch 2x4 (32 bytes), output 2x8 (64), loss 4."""

    WEIGHTS = 4 * 32

    def test_inference_keeps_the_old_output_while_the_new_is_computed(self) -> None:
        graph = inference(nn.Linear(4, 8, bias=False), torch.empty(2, 4), steps=2)
        live = live_bytes(graph)
        assert live["0.input"] == self.WEIGHTS + 32
        assert live["0.forward"] == live["1.input"] == live["1.forward"] == self.WEIGHTS + 32 + 64

    def test_peak_has_both_outputs(self) -> None:
        """The second iteration's output is born before the first one's goes."""
        once, twice = (
            analyze(nn.Linear(4, 8, bias=False), [torch.empty(2, 4)], steps=n, device="h200").peak_requested
            for n in (1, 2)
        )
        assert twice - once == 64

    def test_both_batches_while_the_new_one_travels(self) -> None:
        graph = inference(nn.Linear(4, 8, bias=False), torch.empty(2, 4), steps=2)
        alive, most = 0, 0
        born = {s.index for s in graph.storages if s.name == "input 0" and s.on_device}
        for moment in graph.program:
            if isinstance(moment, Run):
                made = [o.storage for o in graph.operators[moment.operator].outputs if o is not None]
                if graph.operators[moment.operator].phase.value == "input":
                    alive += sum(1 for s in made if s in born)
            elif not isinstance(moment, Mark) and moment.storage in born:
                alive -= 1
            most = max(most, alive)
        assert most == 2

    def test_only_the_first_of_a_tuple_is_kept(self) -> None:
        def pair(model: Any, x: Any) -> Any:
            y = model.part(x)
            return y, y.exp()

        graph = step(Model(pair, part=nn.Linear(4, 8)), torch.empty(2, 4))
        # weights 160, batch 32, output 64; exp's result went with the tuple, autograd does not need it
        assert live_bytes(graph)["0.forward"] == 160 + 32 + 64


class TestBatch:
    def test_targets_travel_after_inputs(self) -> None:
        graph = step(
            Model(lambda m, x, y: m.part(x) + y, part=nn.Linear(2, 2)), torch.empty(3, 2), torch.empty(3, 2),
            targets=[torch.empty(3, dtype=torch.int64)], loss=identity,
        )  # fmt: skip
        born = [graph.storages[o.outputs[0].storage] for o in operators(graph, "input") if o.outputs[0]]
        assert [(s.name, s.nbytes, s.category) for s in born] == [
            ("input 0", 24, Category.INPUT), ("input 1", 24, Category.INPUT), ("target 0", 24, Category.INPUT),
        ]  # fmt: skip

    def test_no_targets_in_inference_unless_given(self) -> None:
        module, x, y = nn.Linear(2, 2), torch.empty(3, 2), torch.empty(3, 2)
        without = analyze(module, [x], device="h200", steps=1)
        given = analyze(module, [x], targets=[y], device="h200", steps=1)
        assert given.breakdown["inputs"] - without.breakdown["inputs"] == 512

    def test_targets_of_the_file_stay_on_the_host_in_inference(self, tmp_path: Any) -> None:
        file = tmp_path / "model.py"
        file.write_text(
            "import torch\n"
            "def make_model():\n    return torch.nn.Linear(2, 2)\n"
            "def make_batch(batch):\n    return (torch.empty(batch, 2),), (torch.empty(batch, 2),)\n"
            "def loss(out, y):\n    return (out - y).pow(2).sum()\n"
        )
        estimate = analyze(str(file), batch=3, device="h200", steps=1)
        assert estimate.breakdown["inputs"] == 512 and estimate.batch == 3
        trained = analyze(str(file), batch=3, mode="train", device="h200", steps=1)
        assert trained.marks[2].by_category["inputs"] == 1024

    def test_channels_last_is_made_on_the_device(self) -> None:
        x = torch.empty(2, 3, 4, 4).to(memory_format=torch.channels_last)
        graph = inference(nn.Conv2d(3, 4, 3), x)
        moved, turned = operators(graph, "input")
        assert moved.name == "aten::_to_copy.default" and turned.name == "aten::clone.default"
        assert moved.outputs[0] and moved.outputs[0].stride == (48, 16, 4, 1)
        assert turned.outputs[0] and turned.outputs[0].stride == (48, 1, 12, 3)
        assert live_bytes(graph)["0.input"] == 4 * (4 * 27 + 4) + 384  # the contiguous copy is gone again

    def test_one_channel_is_channels_last_and_contiguous_alike(self) -> None:
        graph = inference(nn.Conv2d(1, 4, 3), torch.empty(2, 1, 4, 4))
        assert names(graph, "input") == ["_to_copy"]

    def test_batch_size_is_the_first_dimension(self) -> None:
        assert inference(nn.Linear(2, 2), torch.empty(7, 2)).batch == 7
        assert inference(Model(lambda m, x: x + 1), torch.empty(())).batch is None


class TestModel:
    def test_buffers_and_parameters_move_one_by_one(self) -> None:
        graph = inference(nn.BatchNorm1d(3), torch.empty(2, 3))
        assert names(graph, "setup") == ["_to_copy"] * 5
        assert live_bytes(graph)["model"] == 4 * 12 + 8
        assert storage(graph, "num_batches_tracked").nbytes == 8

    def test_model_in_evaluation_in_inference(self) -> None:
        graph = inference(nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3)), torch.empty(2, 3))
        assert "native_dropout" not in names(graph) and "add_.Tensor" not in names(graph)

    def test_inference_runs_without_autograd(self) -> None:
        seen = []

        def look(model: Any, x: Any) -> Any:
            seen.append((torch.is_grad_enabled(), model.training))
            return model.part(x)

        inference(Model(look, part=nn.Linear(2, 2)), torch.empty(1, 2))
        step(Model(look, part=nn.Linear(2, 2)), torch.empty(1, 2))
        assert seen == [(False, False), (True, True)]

    def test_progress_names_modules(self) -> None:
        told: list[str] = []
        inference(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.empty(1, 2), progress=told.append)
        assert told == ["", "0", "1"]


class TestZeroGrad:
    def test_gradients_go_to_none(self) -> None:
        graph = step(nn.Linear(4, 4), torch.empty(2, 4), steps=2)
        live = live_bytes(graph)
        assert live["1.input"] - live["1.zero_grad"] == 4 * 20
        assert names(graph, "zero_grad") == []
