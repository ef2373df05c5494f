"""Two steps of a small network; what the allocator counts is printed at the end, and what a child sees of the environment."""

import json
import os
import subprocess
import sys

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(512, 2048)
        self.second = nn.Linear(2048, 100)

    def forward(self, x):
        return self.second(self.first(x).relu())


net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(2):
    x = torch.randn(32, 512).cuda()
    y = torch.randint(0, 100, (32,)).cuda()
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
chosen = y[y < 50]
right = torch.tensor([3, 1, 2], device="cuda").argsort().tolist() == [1, 2, 0]
child = "import os; print(os.environ.get('LD_PRELOAD'), os.environ.get('LD_LIBRARY_PATH'))"
print(
    json.dumps(
        {
            "allocated": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.max_memory_reserved(),
            "loss": loss.item(),
            "chosen": chosen.numel() == int((y.cpu() < 50).sum()),
            "right": right,
            "child": subprocess.run(
                [sys.executable, "-c", child], capture_output=True, text=True, check=True
            ).stdout.strip(),
            "own": os.environ.get("LD_PRELOAD"),
        }
    ),
    file=sys.stderr,
)
