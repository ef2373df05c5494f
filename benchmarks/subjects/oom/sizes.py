# fragmentation by images of many sizes
import torch, torch.nn as nn

net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
net = net.cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for side in [300, 340, 380, 420, 460, 500, 540, 580, 620, 660, 700, 740]:
    loss = net(torch.randn(4, 3, side, side, device="cuda")).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
