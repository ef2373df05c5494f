# pytorch/pytorch#29554: a training step that is out of memory in its forward pass
import torch, torch.nn as nn

net = nn.Sequential(
    *[nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(8)]
)
net = net.cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    loss = net(torch.randn(8192, 1024, device="cuda")).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
