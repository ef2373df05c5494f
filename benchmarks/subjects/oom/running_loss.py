# PyTorch's FAQ, "Don't accumulate history across your training loop": here each step's output is kept
import torch, torch.nn as nn

net = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.Tanh()) for _ in range(4)]).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
total, kept = 0.0, []
for step in range(60):
    out = net(torch.randn(16384, 256, device="cuda"))
    loss = out.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    kept.append(out)
print(len(kept))
