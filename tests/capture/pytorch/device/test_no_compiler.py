"""PyTorch's compiler is not imported for a program that compiles nothing, and works as ever for one that does."""

from __future__ import annotations

import pytest

from tests.forked import ran

torch = pytest.importorskip("torch")

BEGIN = """
import sys, torch
from analyzer.capture.pytorch.device.no_compiler import without_compiler
def loaded(): return "torch._dynamo.convert_frame" in sys.modules
assert not loaded()
"""


def fresh(script: str) -> str:
    """What a new process prints that runs the script."""
    done = ran("-c", BEGIN + script)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_training_step_does_without() -> None:
    script = """
import analyzer
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
options = dict(mode="train", loss="sum", optimizer="adamw", checkpoint="0", device="h200")
estimate = analyzer.analyze(model, torch.zeros(4, 8), **options)
print(estimate.peak_allocated > 0, loaded(), "torch._dynamo" in sys.modules, "_dynamo" in vars(torch))
"""
    assert fresh(script) == "True False False False"


def test_what_was_remembered_is_forgotten() -> None:
    script = """
with without_compiler():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    optimizer.zero_grad()
    assert not loaded()
inner = torch.optim.Optimizer.zero_grad.__wrapped__
print(hasattr(inner, "__dynamo_disable"))
import torch._dynamo
print(loaded(), torch._dynamo.disable(print) is not print)
"""
    assert fresh(script).split("\n") == ["False", "True True"]


def test_whoever_asks_for_more_gets_the_compiler_itself() -> None:
    script = """
with without_compiler():
    assert torch._dynamo.disable(print) is print
    early = torch._dynamo.disable
    import torch._dynamo.config
    assert loaded() and torch._dynamo.is_compiling() is False
    assert early(print) is not print
    function = torch.compile(lambda x: x + 1, backend="eager")
    print(function(torch.ones(1)).item())
"""
    assert fresh(script) == "2.0"


def test_it_is_left_alone_where_it_is_loaded_already() -> None:
    script = """
import torch._dynamo
before = torch._dynamo
with without_compiler():
    assert torch._dynamo is before
print(torch._dynamo is before and loaded())
"""
    assert fresh(script) == "True"


def test_a_rank_of_a_job_does_without_until_it_compiles() -> None:
    """`init_process_group` has the compiler forget; distributed tensors read one of its settings."""
    script = """
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, init_device_mesh
with without_compiler():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    tensor = DTensor.from_local(torch.ones(2, 2), init_device_mesh("cpu", (1,)), [Replicate()])
    print((tensor @ tensor).sum().item(), loaded())
    function = torch.compile(lambda x: x + 1, backend="eager")
    print(function(torch.ones(1)).item(), loaded())
    torch._dynamo.trace_rules.clear_lru_cache()
    assert torch._dynamo.config is sys.modules["torch._dynamo.config"]
"""
    assert fresh(script).split("\n") == ["8.0 False", "2.0 True"]
