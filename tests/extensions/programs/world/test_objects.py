"""Python objects ranks exchange, and what of PyTorch's is made of them: checkpoints, and optimizers' states in shares."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.extensions.programs.world.ranks import followed

pytestmark = pytest.mark.usefixtures("forked_ranks")


def test_what_ranks_gather_is_their_own(tmp_path: Path) -> None:
    """Of a program that gathers results the other ranks need not be followed."""
    found = followed(
        tmp_path,
        """
everyone, here = [None] * 2, [None] * 2
dist.all_gather_object(everyone, {"rank": rank})
dist.gather_object({"rank": rank}, here, dst=0)
assert everyone == here == [{"rank": 0}] * 2
part = [None]
dist.scatter_object_list(scatter_object_output_list=part, scatter_object_input_list=["a", "b"], src=0)
assert part == ["a"]
assert torch.equal(torch.cuda.get_rng_state(), torch.cuda.get_rng_state())
""",
    )
    assert not any("assumed" in note for note in found.estimate.notes)


SHARES = """
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, get_state_dict, set_model_state_dict, set_state_dict
)
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer


def trained(model, optimizer):
    for _ in range(2):
        model(torch.randn(8, 64, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def parts():
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 31)).cuda()


model = fully_shard(parts())
optimizer = torch.optim.AdamW(model.parameters())
trained(model, optimizer)
states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
dcp.save(states, checkpoint_id="FOLDER")
dcp.load(states, checkpoint_id="FOLDER")
set_state_dict(model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"])
whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
assert {name: tuple(t.shape) for name, t in whole.items()} == ({} if rank else {
    "0.weight": (32, 64), "0.bias": (32,), "1.weight": (31, 32), "1.bias": (31,)
})
set_model_state_dict(model, whole, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))

model = FullyShardedDataParallel(parts(), device_id=rank, use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters())
trained(model, optimizer)
with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
    assert len(FullyShardedDataParallel.optim_state_dict(model, optimizer)["state"]) == 4

model = torch.nn.parallel.DistributedDataParallel(parts(), device_ids=[rank])
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)
trained(model, optimizer)
optimizer.consolidate_state_dict(to=0)
if rank == 0:
    assert sorted(optimizer.state_dict()["state"]) == [0, 1, 2, 3]
"""


def test_what_ranks_hold_in_shares_is_asked_of_them(tmp_path: Path) -> None:
    """A checkpoint is written by both ranks, FSDP knows of parameters of which this one has nothing, and the first rank puts
    the optimizer's state together."""
    found = followed(tmp_path, SHARES.replace("FOLDER", str(tmp_path / "saved")), rank=1)
    assert found.estimate.notes[0] == "followed through 6 optimizer steps"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_second_rank_in_one_process_lies_elsewhere_on_the_mesh(tmp_path: Path, rank: int) -> None:
    followed(
        tmp_path,
        """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
x = distribute_tensor(torch.zeros(64, 64, device="cuda"), init_device_mesh("cuda", (2,)), [Shard(0)])
assert (x * 2).device_mesh.get_local_rank() == rank
""",
        rank=rank,
    )
