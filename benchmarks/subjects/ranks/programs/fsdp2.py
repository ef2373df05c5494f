"""FSDP2 (fully_shard) training of a Llama-shaped model; one process a GPU."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from llama import Llama
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--length", type=int, default=512)
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--mixed", action="store_true")
    p.add_argument("--no-reshard", action="store_true")
    p.add_argument("--checkpoint", action="store_true")
    p.add_argument("--offload", action="store_true")
    p.add_argument("--root-only", action="store_true")
    p.add_argument("--meta-init", action="store_true")
    p.add_argument("--clip", action="store_true")
    p.add_argument("--steps", type=int, default=3)
    args = p.parse_args()
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device("cuda", rank))
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    torch.manual_seed(0)
    with torch.device("meta" if args.meta_init else "cpu"):
        model = Llama(layers=args.layers)
    if args.checkpoint:
        for i, block in enumerate(model.blocks):
            model.blocks[i] = checkpoint_wrapper(block)
    policy = (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if args.mixed
        else MixedPrecisionPolicy()
    )
    kw = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": not args.no_reshard}
    if args.offload:
        kw["offload_policy"] = CPUOffloadPolicy()
    if not args.root_only:
        for block in model.blocks:
            fully_shard(block, **kw)
    fully_shard(model, **kw)
    if args.meta_init:
        model.to_empty(device="cpu" if args.offload else "cuda")
        with torch.no_grad():
            for q in model.parameters():
                torch.nn.init.normal_(q, std=0.02)
            head = 64
            f = 1.0 / 10000 ** (torch.arange(0, head, 2).float() / head)
            t = torch.outer(torch.arange(1024).float(), f)
            model.cos = torch.cat((t.cos(), t.cos()), -1).cuda()
            model.sin = torch.cat((t.sin(), t.sin()), -1).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(args.steps):
        ids = torch.randint(0, 32000, (args.batch, args.length), device="cuda")
        logits = model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())
        loss.backward()
        if args.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
