"""Tensor and sequence parallel training of a small transformer."""

import torch
import torch.distributed as dist
from parts import Language, ids, join, loss_of
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

join()
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
torch.manual_seed(0)
model = Language(width=1024, heads=16).cuda()
plan = {
    "norm1": SequenceParallel(),
    "norm2": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1)),
    "qkv": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    "out": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
}
for block in model.blocks:
    parallelize_module(block, mesh, plan)
parallelize_module(
    model,
    mesh,
    {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    },
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(3):
    torch.manual_seed(step)
    tokens = ids(4, 256)
    loss_of(model(tokens), tokens).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
