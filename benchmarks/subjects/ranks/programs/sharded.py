"""fully_shard (FSDP2) of a small transformer on one- and two-dimensional meshes, with its options."""

import argparse

import torch
import torch.distributed as dist
from parts import Language, ids, join, loss_of
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

p = argparse.ArgumentParser()
p.add_argument(
    "--mesh", default="", help="outer size of a mesh of two dimensions; the inner one has the other ranks"
)
p.add_argument(
    "--tensor", action="store_true", help="the inner dimension is tensor parallel, the outer one sharded"
)
p.add_argument("--offload", action="store_true")
p.add_argument("--keep", action="store_true", help="parameters stay gathered from forward to backward")
p.add_argument("--meta", action="store_true")
p.add_argument("--low-rank", type=int, default=0, help="train low-rank additions to the linear layers only")
p.add_argument("--half", action="store_true")
args = p.parse_args()


class LowRank(nn.Module):
    """A frozen linear layer with a trained addition of low rank."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down, self.up = (
            nn.Linear(base.in_features, rank, bias=False),
            nn.Linear(rank, base.out_features, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


join("cpu:gloo,cuda:nccl" if args.offload else "nccl")  # norms of gradients on the host are summed there
world = dist.get_world_size()
torch.manual_seed(0)
with torch.device("meta" if args.meta else "cpu"):
    model = Language()
    if args.low_rank:
        model.requires_grad_(False)
        for block in model.blocks:
            block.up, block.down = LowRank(block.up, args.low_rank), LowRank(block.down, args.low_rank)
if not args.meta and not args.offload:
    model.cuda()
outer = int(args.mesh or world)
names = ("shard", "tensor") if args.tensor else ("replicate", "shard")
mesh = init_device_mesh("cuda", (outer, world // outer), mesh_dim_names=names) if args.mesh else None
if args.tensor:
    for block in model.blocks:
        parallelize_module(block, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
options = {
    "mesh": mesh["shard"] if args.tensor else mesh,
    "reshard_after_forward": not args.keep,
    "offload_policy": CPUOffloadPolicy() if args.offload else OffloadPolicy(),
    "mp_policy": MixedPrecisionPolicy(torch.bfloat16 if args.half else None, torch.float32),
}
for block in model.blocks:
    fully_shard(block, **options)
fully_shard(model, **options)
if args.meta:
    model.to_empty(device="cuda")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-4)
for _ in range(3):
    tokens = ids(4, 256)
    loss_of(model(tokens).float(), tokens).backward()
    if not args.tensor:  # whose gradients lie on two meshes
        nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
