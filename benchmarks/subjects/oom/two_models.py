# two models at once, as a generator and a discriminator with the same batch
import torch, torch.nn as nn


def tower(n):
    return nn.Sequential(
        *[nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(n)]
    )


make = tower(6).cuda()
judge = tower(6).cuda()
opt_m = torch.optim.Adam(make.parameters())
opt_j = torch.optim.Adam(judge.parameters())
for step in range(3):
    z = torch.randn(4096, 1024, device="cuda")
    loss = judge(make(z)).square().mean()
    loss.backward()
    opt_m.step()
    opt_j.step()
    opt_m.zero_grad()
    opt_j.zero_grad()
