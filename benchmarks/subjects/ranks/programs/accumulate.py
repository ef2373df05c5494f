"""FSDP2 that accumulates gradients without synchronisation, in bfloat16."""

import torch
import torch.distributed as dist
from parts import Language, ids, join, loss_of
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

join()
torch.manual_seed(0)
model = Language(layers=8, width=1024, heads=16).cuda()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for block in model.blocks:
    fully_shard(block, mp_policy=policy)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(2):
    for part in range(3):
        model.set_requires_gradient_sync(part == 2)
        tokens = ids(4, 384)
        loss_of(model(tokens).float(), tokens).div(3).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
dist.destroy_process_group()
