"""Two pipeline stages, with a schedule."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from parts import Block, join
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

p = argparse.ArgumentParser()
p.add_argument("--gpipe", action="store_true")
p.add_argument("--micro", type=int, default=4)
args = p.parse_args()
rank = join()
torch.manual_seed(0)
stage_module = nn.Sequential(*(Block(1024, 16) for _ in range(4))).cuda()
stage = PipelineStage(stage_module, rank, dist.get_world_size(), torch.device("cuda", rank))
make = ScheduleGPipe if args.gpipe else Schedule1F1B
schedule = make(stage, args.micro, loss_fn=F.mse_loss)
optimizer = torch.optim.AdamW(stage_module.parameters(), lr=1e-4)
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
