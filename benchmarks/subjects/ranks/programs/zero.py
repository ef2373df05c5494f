"""DistributedDataParallel whose optimizer's state is sharded (ZeroRedundancyOptimizer)."""

import argparse

import torch
import torch.distributed as dist
from parts import Language, ids, join, loss_of
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

p = argparse.ArgumentParser()
p.add_argument("--bucket-view", action="store_true")
args = p.parse_args()
rank = join()
torch.manual_seed(0)
model = DistributedDataParallel(
    Language(width=1024, heads=16).cuda(), device_ids=[rank], gradient_as_bucket_view=True
)
optimizer = ZeroRedundancyOptimizer(
    model.parameters(), torch.optim.AdamW, parameters_as_bucket_view=args.bucket_view, lr=1e-4
)
for _ in range(3):
    tokens = ids(8, 512)
    loss = loss_of(model(tokens), tokens)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
dist.destroy_process_group()
