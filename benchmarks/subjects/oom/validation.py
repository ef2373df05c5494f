# discuss.pytorch.org: the validation loss is summed with its graphs
import torch, torch.nn as nn

net = nn.Sequential(
    *[nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(8)], nn.Linear(1024, 10)
).cuda()
opt = torch.optim.Adam(net.parameters())
crit = nn.CrossEntropyLoss()


def train():
    for _ in range(3):
        opt.zero_grad()
        loss = crit(net(torch.randn(512, 1024).cuda()), torch.randint(0, 10, (512,)).cuda())
        loss.backward()
        opt.step()


def validate():
    total = 0.0
    for _ in range(40):
        out = net(torch.randn(512, 1024).cuda())
        total += crit(out, torch.randint(0, 10, (512,)).cuda())
    return total / 40


for epoch in range(2):
    train()
    print(epoch, float(validate()))
