"""`torch.distributed.pipelining`: stages that exchange shapes by value, their receive buffers, what a schedule keeps.

Sizes are computed by hand; exactness against two real H200 is `tests/extensions/programs/test_ranks.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from analyzer.analysis import Analysis
from analyzer.options import Options
from analyzer.runtimes.events import Free, Malloc
from analyzer_programs.program import follow

pytestmark = pytest.mark.usefixtures("forked_ranks")

KIB = 2**10
# A microbatch is 4 rows of 512 numbers: 8 KiB go from stage to stage.
BOUNDARY = 8 * KIB
PROGRAM = """
import os, sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
rank, micro = int(os.environ["LOCAL_RANK"]), 4
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
make = getattr(pipelining, sys.argv[1])
stages = [
    pipelining.PipelineStage(
        nn.Sequential(nn.Linear(512, 512, bias=False), nn.ReLU()).cuda(), index, int(sys.argv[2]), torch.device("cuda", rank)
    )
    for index in range(rank, int(sys.argv[2]), 2)
]
schedule = make(stages[0] if len(stages) == 1 else stages, micro, loss_fn=nn.functional.mse_loss)
for _ in range(2):
    x = torch.randn(4 * micro, 512, device="cuda")
    losses = []
    schedule.step(*((x,) if rank == 0 else ()), **({"target": x, "losses": losses} if rank == 1 else {}))
    for stage in stages:
        stage.submod.zero_grad()
"""


def stage(folder: Path, schedule: str, rank: int, stages: int = 2) -> Analysis:
    """The analysis of one rank of two."""
    script = folder / "stages.py"
    script.write_text(PROGRAM)
    found, error = follow(script, [schedule, str(stages)], Options(device="h200"), {}, "end", 2, rank)
    assert error is None
    return found


def alive(found: Analysis, operator: str) -> list[int]:
    """How many tensors of a boundary's size, made by this operator, live when each of the program's tensors is made."""
    living: set[int] = set()
    counts = []
    for event in found.events:
        if isinstance(event, Malloc):
            if event.nbytes == BOUNDARY and operator in event.label:
                living.add(event.key)
            counts.append(len(living))
        elif isinstance(event, Free):
            living.discard(event.key)
    return counts


@pytest.fixture(scope="module")
def followed(
    tmp_path_factory: pytest.TempPathFactory,
    forked_ranks: None,  # noqa: ARG001
) -> dict[tuple[str, int], Analysis]:
    return {
        (schedule, rank): stage(tmp_path_factory.mktemp(schedule), schedule, rank)
        for schedule, rank in (("ScheduleGPipe", 0), ("ScheduleGPipe", 1), ("Schedule1F1B", 0))
    }


def test_a_stage_has_a_receive_buffer_for_every_microbatch(
    followed: dict[tuple[str, int], Analysis],
) -> None:
    # Gradients of what the first stage sends, inputs of the last: four each.
    assert {key: alive(found, "empty")[-1] for key, found in followed.items()} == dict.fromkeys(followed, 4)


def test_1f1b_keeps_fewer_microbatches_than_gpipe(followed: dict[tuple[str, int], Analysis]) -> None:
    # ReLU keeps its result for the backward pass. The first of two stages has two microbatches in flight instead of four.
    assert max(alive(followed["ScheduleGPipe", 0], "relu")) == 4
    assert max(alive(followed["Schedule1F1B", 0], "relu")) == 2


def test_interleaved_stages_of_a_rank_are_followed(tmp_path: Path) -> None:
    found = stage(tmp_path, "ScheduleInterleaved1F1B", 0, stages=4)
    # Stage 0 receives gradients, stage 2 inputs and gradients.
    assert alive(found, "empty")[-1] == 3 * 4


def test_a_pipeline_split_by_tracing_needs_no_shapes_of_others(tmp_path: Path) -> None:
    script = tmp_path / "split.py"
    script.write_text(
        """
import os, torch, torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import ScheduleGPipe, SplitPoint, pipeline
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
model = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(2)))
x = torch.randn(4, 512)
pipe = pipeline(model, mb_args=(x,), split_spec={"1": SplitPoint.BEGINNING})
stage = pipe.build_stage(rank, torch.device("cuda", rank))
schedule = ScheduleGPipe(stage, 4, loss_fn=nn.functional.mse_loss)
x = torch.randn(16, 512, device="cuda")
schedule.step(x) if rank == 0 else schedule.step(target=x)
"""
    )
    found, _ = follow(script, [], Options(device="h200"), {}, "end", 2, 1)
    assert alive(found, "empty")[-1] == 4


def test_the_memory_of_what_is_sent_is_said_to_be_free_at_once(
    followed: dict[tuple[str, int], Analysis],
) -> None:
    assert any(
        note.startswith("what is sent to another rank")
        for note in followed["ScheduleGPipe", 1].estimate.notes
    )
