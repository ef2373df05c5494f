"""One training step of ResNet-50, nothing besides."""

import torch
import torchvision

model = torchvision.models.resnet50(weights=None).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
images = torch.randn(32, 3, 224, 224, device="cuda")
labels = torch.randint(0, 1000, (32,), device="cuda")
torch.nn.functional.cross_entropy(model(images), labels).backward()
optimizer.step()
