# discuss.pytorch.org: out of memory in the second iteration, once the optimizer has its states
import torch, torch.nn as nn

net = nn.Sequential(
    *[nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(8)]
)
net = net.cuda()
opt = torch.optim.Adam(net.parameters())
for step in range(3):
    loss = net(torch.randn(4096, 1024, device="cuda")).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
