"""Two training steps of a network of the third held-out set: NETWORK fp32|bf16|fp16, the halves under autocast."""

import sys

import torch

from benchmarks.subjects.networks.held_out_3 import M

BATCH, STEPS = 4, 2
name, kind = sys.argv[1:]
make, make_batch, loss_of = M[name]
model = make().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cuda", enabled=kind == "fp16")
half = torch.float16 if kind == "fp16" else torch.bfloat16
for _ in range(STEPS):
    inputs, target = make_batch(BATCH)
    with torch.autocast("cuda", half, enabled=kind != "fp32"):
        loss = loss_of(model(*(part.cuda() for part in inputs)), target.cuda())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
