"""Two GPUs in one process: replicas, a copy to and fro with its gradient, a stream, and a step on both."""

import torch
from torch import nn

replicas = nn.DataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda())
last = nn.Linear(256, 64).to("cuda:1")
optimizer = torch.optim.SGD([*replicas.parameters(), *last.parameters()], lr=0.1, momentum=0.9)
for _ in range(3):
    optimizer.zero_grad()
    last(replicas(torch.zeros(1001, 256)).to("cuda:1")).square().mean().backward()
    optimizer.step()
with torch.cuda.stream(torch.cuda.Stream("cuda:1")):
    other = torch.zeros(3000, 256, device="cuda:1")
    back = other.t().to("cuda:0", torch.float64)
assert [torch.cuda.mem_get_info(i)[1] > 0 for i in range(torch.cuda.device_count())] == [True] * 2
