# PyTorch's FAQ, "My out of memory exception handler can't allocate memory": a smaller batch is tried in the handler
import torch, torch.nn as nn

net = nn.Sequential(
    *[nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(8)]
).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def train(batch):
    loss = net(torch.randn(batch, 1024, device="cuda")).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()


for step in range(3):
    try:
        train(8192)
    except torch.OutOfMemoryError:
        train(4096)
