# huggingface/transformers#7232: an evaluation keeps every batch's logits on the GPU
import torch, torch.nn as nn

net = nn.Sequential(nn.Embedding(8000, 256), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8000)).cuda()
collected = []
with torch.no_grad():
    for _ in range(24):
        collected.append(net(torch.randint(0, 8000, (8, 256), device="cuda")))
print(torch.cat([part.cpu() for part in collected]).shape)
