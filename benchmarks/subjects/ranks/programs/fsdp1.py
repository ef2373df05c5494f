"""FullyShardedDataParallel (FSDP1) of a small transformer."""

import argparse
import functools

import torch
import torch.distributed as dist
from parts import Block, Language, ids, join, loss_of
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

p = argparse.ArgumentParser()
p.add_argument("--mixed", action="store_true")
p.add_argument("--grad-op", action="store_true")
p.add_argument("--original", action="store_true")
p.add_argument("--batch", type=int, default=8)
args = p.parse_args()
join()
torch.manual_seed(0)
half = torch.bfloat16
model = FullyShardedDataParallel(
    Language().cuda(),
    auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}),
    mixed_precision=MixedPrecision(half, half, half) if args.mixed else None,
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP if args.grad_op else ShardingStrategy.FULL_SHARD,
    device_id=torch.cuda.current_device(),
    use_orig_params=args.original,
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(3):
    tokens = ids(args.batch, 256)
    loss = loss_of(model(tokens), tokens)
    loss.backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
dist.destroy_process_group()
