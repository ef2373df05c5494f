"""Two ranks: objects and numbers that steer them come from each other."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    rank, size = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    if "--fails" in sys.argv and rank == 1:
        raise ValueError("this rank has no data")
    if "--waits" in sys.argv:
        print("waits", flush=True)
        while True:
            dist.barrier()
    names = [None] * size
    dist.all_gather_object(names, f"rank {rank}" * (rank + 1))
    assert names == ["rank 0", "rank 1rank 1"], names
    plan = [{"width": 128} if rank == 0 else None]
    dist.broadcast_object_list(plan, src=0)
    width = plan[0]["width"]
    rows = torch.tensor([3 + rank], device="cuda")
    dist.all_reduce(rows, op=dist.ReduceOp.MAX)
    dist.barrier()
    if rank == 0:
        dist.send(torch.tensor([rows.item() * 100], device="cuda"), 1)
        batch = 400
    else:
        received = torch.zeros(1, dtype=torch.int64, device="cuda")
        dist.recv(received, 0)
        batch = int(received.item())
    model = DistributedDataParallel(torch.nn.Linear(width, width).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(batch, width, device="cuda")).sum().backward()
    optimizer.step()
    figures = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    print(json.dumps({"rank": rank, "figures": figures}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
