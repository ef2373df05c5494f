"""Document 001: the allocator step by step, and every event of four optimizer steps."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from analyzer.capture.pytorch.recording.recorder import Recorder
from analyzer.graph import Category, Phase
from benchmarks.subjects import experiments as scripts
from tests.documents.as_written import allocated, simulation

WORKSPACE = 8_519_680


def test_a_tensor_of_1024_floats_reserves_a_segment_and_keeps_it() -> None:
    def script(recorder: Recorder) -> None:
        x = torch.randn(1024, device="cuda")
        recorder.mark("made")
        del x
        recorder.mark("deleted")

    marks = {m.event: (m.allocated, m.reserved) for m in simulation(script, WORKSPACE).marks}
    assert marks == {"made": (4096, 2_097_152), "deleted": (0, 2_097_152)}


@pytest.mark.parametrize(
    ("dtype", "bytes_each"),
    [
        (torch.float32, 4),
        (torch.float64, 8),
        (torch.float16, 2),
        (torch.bfloat16, 2),
        (torch.int8, 1),
        (torch.int64, 8),
        (torch.bool, 1),
    ],
)
def test_allocation_grows_in_steps_of_512_bytes(dtype: torch.dtype, bytes_each: int) -> None:
    def script(recorder: Recorder) -> None:
        for count in (1, 100, 512, 513, 800):
            x = torch.empty(count, dtype=dtype, device="cuda")
            recorder.mark(str(count))
            del x

    for count, nbytes in allocated(script).items():
        assert nbytes == -(-int(count) * bytes_each // 512) * 512


def test_linear_forward_takes_one_workspace_and_backward_a_second() -> None:
    assert allocated(scripts.linear, WORKSPACE) == {
        "model": 257_024,
        "input": 258_048,
        "forward": 8_778_752,
        "backward": 17_555_456,
    }


def chunk(count: int) -> int:
    return -(-count * 4 // 512) * 512


def test_a_block_of_two_linear_layers_keeps_its_inputs_in_training_only() -> None:
    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, 200), nn.Sigmoid()).to("cuda")

    def script(recorder: Recorder, inference: bool) -> None:
        model = block()
        x = torch.randn((5, 200), device="cuda")
        recorder.phase = Phase.FORWARD
        with torch.inference_mode(inference):
            y = model(x)
        recorder.mark("forward")
        if not inference:
            recorder.phase = Phase.BACKWARD
            y.sum().backward()
            recorder.mark("backward")

    weights = chunk(200 * 100) + chunk(100) + chunk(100 * 200) + chunk(200)
    inputs = chunk(5 * 200) + chunk(5 * 100)
    output = chunk(5 * 200)
    training = allocated(lambda recorder: script(recorder, False), WORKSPACE)
    assert training["forward"] == weights + inputs + output + WORKSPACE
    # After backward: the block's input and output, weights and gradients, two workspaces.
    assert training["backward"] == 2 * weights + 2 * output + 2 * WORKSPACE
    assert (
        allocated(lambda recorder: script(recorder, True), WORKSPACE)["forward"]
        == weights + 2 * output + WORKSPACE
    )


def test_normalisation_written_out_keeps_one_intermediate() -> None:
    assert allocated(scripts.normalisation)["forward"] == 4 * 512


ADAM_STATES = {"sgd": 0, "adam": 2}


@pytest.mark.parametrize("name", sorted(ADAM_STATES))
def test_four_optimizer_steps_event_by_event(name: str) -> None:
    """The document's own timeline: each event split into its categories, predicted = real at every event."""
    optimizers = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}

    def script(recorder: Recorder) -> None:
        recorder.mark("baseline")
        model = nn.Linear(256, 250, device="cuda", dtype=torch.float32)
        recorder.mark("model_allocation")
        optimizer = optimizers[name](model.parameters(), lr=0.001)
        recorder.mark("optimizer_init")
        x = torch.randn((100, 256), dtype=torch.float32, device="cuda")
        recorder.label(x, "x", Category.INPUT)
        recorder.mark("input_allocation")
        for n in range(1, 5):
            recorder.phase = Phase.ZERO_GRAD
            optimizer.zero_grad()
            recorder.mark(f"optim_zero_grad_{n}")
            recorder.phase = Phase.FORWARD
            y = model(x)
            recorder.mark(f"forward_{n}")
            recorder.phase = Phase.BACKWARD
            y.sum().backward()
            recorder.mark(f"backward_{n}")
            recorder.phase = Phase.OPTIMIZER
            optimizer.step()
            del y
            recorder.mark(f"optim_step_{n}")

    model = chunk(256 * 250) + chunk(250)
    x, y = chunk(100 * 256), chunk(100 * 250)
    state = ADAM_STATES[name] * model
    expected = {
        "baseline": 0,
        "model_allocation": model,
        "optimizer_init": model,
        "input_allocation": model + x,
    }
    for n in range(1, 5):
        kept = model + x + (state if n > 1 else 0)
        expected[f"optim_zero_grad_{n}"] = kept
        expected[f"forward_{n}"] = kept + y
        expected[f"backward_{n}"] = kept + y + model
        expected[f"optim_step_{n}"] = model + x + model + state
    assert allocated(script) == expected


def test_the_optimizer_step_takes_a_transient() -> None:
    def script(recorder: Recorder) -> None:
        model = nn.Linear(256, 250, device="cuda")
        optimizer = torch.optim.Adam(model.parameters())
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        recorder.phase = Phase.OPTIMIZER
        optimizer.step()
        recorder.mark("step")

    result = simulation(script, 0)
    model = chunk(256 * 250) + chunk(250)
    assert result.marks[-1].allocated == 4 * model
    assert result.peak_allocated == 5 * model
