"""Pipeline stages, one or two a rank, with a schedule."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from parts import Block, join
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

p = argparse.ArgumentParser()
p.add_argument("--gpipe", action="store_true")
p.add_argument("--interleaved", action="store_true")
p.add_argument("--micro", type=int, default=4)
args = p.parse_args()
rank = join()
torch.manual_seed(0)
world, local = dist.get_world_size(), 2 if args.interleaved else 1
modules = [nn.Sequential(*(Block(1024, 16) for _ in range(4 // local))).cuda() for _ in range(local)]
stages = [
    PipelineStage(module, rank + index * world, world * local, torch.device("cuda", rank))
    for index, module in enumerate(modules)
]
if args.interleaved:
    schedule = ScheduleInterleaved1F1B(stages, args.micro, loss_fn=F.mse_loss)
else:
    schedule = (ScheduleGPipe if args.gpipe else Schedule1F1B)(stages[0], args.micro, loss_fn=F.mse_loss)
optimizer = torch.optim.AdamW((p for module in modules for p in module.parameters()), lr=1e-4)
for _ in range(3):
    x = torch.randn(8, 256, 1024, device="cuda")
    if rank == 0:
        schedule.step(x)
    else:
        losses: list[torch.Tensor] = []
        schedule.step(target=x, losses=losses)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
