"""A small network spread over ranks: `fsdp1`, `pipeline`, or a mesh of data and tensor parallel ranks (`mesh`)."""

import functools
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def main() -> None:
    rank, how = int(os.environ["LOCAL_RANK"]), sys.argv[1]
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", device_id=device)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(3))).to(device)
    x = torch.randn(64, 256, device=device)
    if how == "pipeline":
        schedule = Schedule1F1B(
            PipelineStage(model, rank, dist.get_world_size(), device), 4, loss_fn=nn.functional.mse_loss
        )
        schedule.step(*((x,) if rank == 0 else ()), **({} if rank == 0 else {"target": x}))
    else:
        if how == "fsdp1":
            policy = functools.partial(size_based_auto_wrap_policy, min_num_params=1000)
            model = FullyShardedDataParallel(model, auto_wrap_policy=policy, sync_module_states=True)
        else:
            mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("shard", "replicate"))
            fully_shard(model, mesh=mesh)
            members = [None, None]
            dist.all_gather_object(members, rank, group=mesh["replicate"].get_group())
            assert members == [rank // 2 * 2, rank // 2 * 2 + 1], members
        model(x).sum().backward()
    torch.optim.AdamW(model.parameters()).step()
    figures = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    print(json.dumps({"rank": rank, "figures": figures}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
