"""What github.com/WSShiro/vramexp asks of layers: `vramexp_layers.py conv|conv2|relu|norm|dropout|softmax|attention`.

A convolution and the named layer after it (vramexp_layer.ipynb), on 1,000 random images of 224 x 224 (attention: one of 112 x 112, all of a
channel a word), two batches an epoch, cross entropy against random shares, SGD without momentum. torchinfo has run the network once.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

KIND = sys.argv[1]
BATCH, SIDE = (1, 112) if KIND == "attention" else (1000, 224)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(2))
        self.relu, self.norm = nn.ReLU(inplace=True), nn.BatchNorm2d(3)
        self.dropout, self.softmax = nn.Dropout(), nn.Softmax2d()
        if KIND == "attention":
            self.attention = nn.MultiheadAttention(SIDE * SIDE, 1, batch_first=True)

    def forward(self, x):
        x = self.conv1(x)
        if KIND == "attention":
            x = x.view(BATCH, 3, SIDE * SIDE)
            x, _ = self.attention(x, x, x)
            return x.view(BATCH, 3, SIDE, SIDE)
        if KIND != "conv":
            x = getattr(self, KIND)(x)
        return x


model = Net().to("cuda")
model.eval()
with torch.no_grad():
    model(torch.rand(BATCH, 3, SIDE, SIDE).to("cuda"))
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
data = [[torch.randn(BATCH, 3, SIDE, SIDE), torch.randn(BATCH, 3, SIDE, SIDE)] for _ in range(2)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    model.train()
    for x, y in data:
        x = x.to("cuda")  # noqa: PLW2901 - the last batch goes before this one comes, as in the notebook
        y = y.to("cuda")  # noqa: PLW2901
        optimizer.zero_grad()
        predicted = model(x)
        loss = F.cross_entropy(predicted, y)
        loss.backward()
        optimizer.step()
print(f"PEAKS {torch.cuda.max_memory_allocated()} {torch.cuda.memory_reserved()}")
