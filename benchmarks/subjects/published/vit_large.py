"""What rasbt/pytorch-memory-optim trains: `vit_large.py float32|mixed|bfloat16 BATCH [accumulate] [sgd]`, or `vit_large.py load late|half`.

ViT-L/16 of torchvision with ten classes, pictures of 224 x 224. mixed: Fabric's "16-mixed" (autocast and a scaler); bfloat16: its
"bf16-true" (the model and what goes in, results are float32 again). accumulate: an optimizer step and zero_grad every fourth batch.
Adam is written out as torch had it in June 2023, with two lists of intermediates (torch/optim/adam.py of torch 2.0).
load: what 07_01 (made in float32, moved, then halved) and 07_03 (made on the GPU in half precision) hold.
"""

import sys

import torch
import torch.nn.functional as F
from torchvision.models import vit_l_16

precision, size, flags = sys.argv[1], sys.argv[2], sys.argv[3:]


class Adam(torch.optim.Adam):
    """`_multi_tensor_adam` of that time, for the defaults."""

    @torch.no_grad()
    def step(self, closure=None):  # noqa: ARG002
        (group,) = self.param_groups
        first, second = group["betas"]
        told = [one for one in group["params"] if one.grad is not None]
        for one in told:
            if not self.state[one]:
                self.state[one] = {
                    "step": torch.tensor(0.0), "exp_avg": torch.zeros_like(one), "exp_avg_sq": torch.zeros_like(one),
                }  # fmt: skip
        grads = [one.grad for one in told]
        means, squares, steps = (
            [self.state[one][name] for one in told] for name in ("exp_avg", "exp_avg_sq", "step")
        )
        torch._foreach_add_(steps, 1)
        torch._foreach_mul_(means, first)
        torch._foreach_add_(means, grads, alpha=1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, grads, grads, 1 - second)
        corrections = [(1 - second ** float(step)) ** 0.5 for step in steps]
        sizes = [-group["lr"] / (1 - first ** float(step)) for step in steps]
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, corrections)
        divisors = torch._foreach_add(roots, group["eps"])
        torch._foreach_addcdiv_(told, means, divisors, sizes)


def peaks():
    print(f"PEAKS {torch.cuda.max_memory_allocated()} {torch.cuda.max_memory_reserved()}")


if precision == "load":
    if size == "late":
        model = vit_l_16().to("cuda").to(torch.float16)
    else:
        torch.set_default_dtype(torch.float16)
        with torch.device("cuda"):
            model = vit_l_16()
    peaks()
    sys.exit()

batch, accumulated = int(size), 4 if "accumulate" in flags else 1
mixed, brain = precision == "mixed", precision == "bfloat16"
if precision != "float32":
    torch.set_float32_matmul_precision("high")
model = vit_l_16()
model.heads.head = torch.nn.Linear(1024, 10)
model.to("cuda")
if brain:
    model.to(torch.bfloat16)
optimizer = (
    torch.optim.SGD(model.parameters(), lr=0.01) if "sgd" in flags else Adam(model.parameters(), lr=5e-5)
)
scaler = torch.amp.GradScaler("cuda", enabled=mixed)


def run(features):
    with torch.autocast("cuda", torch.float16, enabled=mixed):
        return model(features.to(torch.bfloat16) if brain else features).float()


for step in range(9 if accumulated > 1 else 4):
    model.train()
    features, targets = torch.randn(batch, 3, 224, 224).to("cuda"), torch.randint(0, 10, (batch,)).to("cuda")
    logits = run(features)
    loss = F.cross_entropy(logits, targets) / accumulated
    if accumulated == 1:
        optimizer.zero_grad()
    scaler.scale(loss).backward()
    if step % accumulated == 0:
        scaler.step(optimizer)
        scaler.update()
        if accumulated > 1:
            optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        torch.argmax(logits, 1)
model.eval()
with torch.no_grad():
    for count in (batch, batch, min(8, batch)):  # 5,000 pictures are left, the last batch of 64 has eight
        features = torch.randn(count, 3, 224, 224).to("cuda")
        predicted = torch.argmax(run(features), 1)
peaks()
