# MONAI#8042: volumes that are too large for the activations of a U-shaped network
import torch, torch.nn as nn


def block(a, b):
    return nn.Sequential(nn.Conv3d(a, b, 3, padding=1), nn.InstanceNorm3d(b), nn.LeakyReLU())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([block(1, 16), block(16, 32), block(32, 64)])
        self.up = nn.ModuleList([block(96, 32), block(48, 16)])
        self.head = nn.Conv3d(16, 2, 1)

    def forward(self, x):
        kept = []
        for part in self.down:
            x = part(x)
            kept.append(x)
            x = nn.functional.max_pool3d(x, 2)
        x = kept.pop()
        for part in self.up:
            x = part(torch.cat([nn.functional.interpolate(x, scale_factor=2), kept.pop()], 1))
        return self.head(x)


net = Net().cuda()
opt = torch.optim.Adam(net.parameters())
for step in range(3):
    out = net(torch.randn(4, 1, 96, 96, 96, device="cuda"))
    loss = nn.functional.cross_entropy(out, torch.randint(0, 2, (4, 96, 96, 96), device="cuda"))
    loss.backward()
    opt.step()
    opt.zero_grad()
