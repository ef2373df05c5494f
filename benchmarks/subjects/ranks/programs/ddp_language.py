"""DistributedDataParallel of a small transformer, with its options."""

import argparse
import contextlib

import torch
import torch.distributed as dist
from parts import Language, ids, join, loss_of
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

p = argparse.ArgumentParser()
p.add_argument("--unused", action="store_true")
p.add_argument("--hook", action="store_true")
p.add_argument("--accumulate", type=int, default=1)
p.add_argument("--cap", type=int, default=25)
p.add_argument("--sgd", action="store_true")
args = p.parse_args()
rank = join()
torch.manual_seed(0)
model = DistributedDataParallel(
    Language().cuda(), device_ids=[rank], bucket_cap_mb=args.cap, find_unused_parameters=args.unused
)
if args.hook:
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
parameters = model.parameters()
optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9) if args.sgd else torch.optim.AdamW(parameters)
for _ in range(4):
    for part in range(args.accumulate):
        with model.no_sync() if part + 1 < args.accumulate else contextlib.nullcontext():
            tokens = ids(6, 256)
            loss_of(model(tokens), tokens).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
