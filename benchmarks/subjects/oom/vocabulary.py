# a large vocabulary: the loss takes more than the model
import torch, torch.nn as nn

body = nn.Sequential(nn.Embedding(16000, 512), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 16000))
net = body.cuda()
opt = torch.optim.AdamW(net.parameters(), fused=True)
for step in range(3):
    ids = torch.randint(0, 16000, (16, 512), device="cuda")
    loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    opt.step()
    opt.zero_grad()
