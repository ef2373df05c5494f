"""What github.com/WSShiro/vramexp trains, one model after the other in one process: `vramexp.py cnn|vgg16_bn|resnet50|vit_b_16|unetr`.

The models before the named one are trained too, and their leftovers stay, as in its notebook (vramexp1.ipynb): 128 random images of
224 x 224 (UNETR: 8 of 64 x 64 x 64), four batches an epoch, cross entropy against random scores, SGD without momentum. torchinfo has
run each model once: before its training, the first one's after it.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

ORDER = ("cnn", "vgg16_bn", "resnet50", "vit_b_16", "unetr")


class CNN(nn.Module):
    """Its smallest network."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool = nn.Conv2d(3, 8, 3), nn.AvgPool2d(2, 2)
        self.fc = nn.Linear(8 * 111 * 111, 10)

    def forward(self, x):
        x = self.conv(x)
        x = self.pool(x)
        x = x.view(x.size(0), -1)
        return self.fc(x)


def made(name):
    """The model, on the CPU."""
    if name == "cnn":
        return CNN()
    if name == "unetr":
        from monai.networks.nets.unetr import UNETR

        return UNETR(1, 2, (64, 64, 64), feature_size=16, hidden_size=768, mlp_dim=3072, num_heads=12,
                     proj_type="perceptron", norm_name="instance", res_block=True)  # fmt: skip
    from torchvision import models

    model = getattr(models, name)(weights=None)
    if name == "vgg16_bn":
        model.classifier[6] = nn.Linear(model.classifier[6].in_features, 10)
    elif name == "vit_b_16":
        model.heads[0] = nn.Linear(model.heads[0].in_features, 10)
    else:
        model.fc = nn.Linear(model.fc.in_features, 10)
    return model


def summary(model, batch, inputs):
    """A forward pass on the GPU, in evaluation's memory."""
    model.to("cuda")
    with torch.no_grad():
        model(torch.rand(batch, *inputs).to("cuda"))


def train(model, batch, inputs, outputs):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model.to("cuda")
    data = [[torch.randn(batch, *inputs), torch.randn(batch, *outputs)] for _ in range(4)]
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


kept = []
for name in ORDER[: ORDER.index(sys.argv[1]) + 1]:
    kept.append(made(name))
    small = name == "unetr"
    batch, inputs = (8, (1, 64, 64, 64)) if small else (128, (3, 224, 224))
    if name != "cnn":
        summary(kept[-1], batch, inputs)
    train(kept[-1], batch, inputs, (2, 64, 64, 64) if small else (10,))
    # As it prints them: the most allocated, and what is reserved after the last step.
    peaks = f"PEAKS {torch.cuda.max_memory_allocated()} {torch.cuda.memory_reserved()}"
    if name == "cnn":
        summary(kept[-1], batch, inputs)
print(peaks)
