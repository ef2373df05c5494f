# discuss.pytorch.org: training runs, the validation's larger batch is out of memory
import torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Embedding(16000, 256), nn.Linear(256, 512), nn.ReLU())
        self.head = nn.Linear(512, 16000)

    def forward(self, ids):
        return self.head(self.body(ids))


def main():
    ids = torch.randint(0, 16000, (64, 256))
    training = DataLoader(TensorDataset(ids), batch_size=8)
    validation = DataLoader(TensorDataset(ids), batch_size=64)
    net = Net().cuda()
    opt = torch.optim.Adam(net.parameters())
    for epoch in range(2):
        net.train()
        for (x,) in training:
            x = x.cuda()
            loss = nn.functional.cross_entropy(net(x).flatten(0, 1), x.flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            for (x,) in validation:
                x = x.cuda()
                print(float(nn.functional.cross_entropy(net(x).flatten(0, 1), x.flatten())))


main()
