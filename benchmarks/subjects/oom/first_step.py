# FireRedTTS2#42: forward and backward run, the first optimizer.step() is out of memory
import torch, torch.nn as nn


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b, self.n = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.LayerNorm(d)

    def forward(self, x):
        return x + self.b(nn.functional.gelu(self.a(self.n(x))))


net = nn.Sequential(*[Block(1024) for _ in range(16)]).cuda()
opt = torch.optim.AdamW(net.parameters(), lr=3e-6)
for step in range(4):
    loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
