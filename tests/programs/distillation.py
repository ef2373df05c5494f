"""Distillation of one timm network into another, with an exponential moving average of the student, and an evaluation."""

import argparse

import timm
import torch
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--teacher", default="resnet34")
    parser.add_argument("--student", default="resnet18")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    teacher = timm.create_model(args.teacher, num_classes=100).to(device).eval().requires_grad_(False)
    student = timm.create_model(args.student, num_classes=100).to(device)
    average = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(0.999), use_buffers=True)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    for step in range(args.steps):
        x = torch.randn(args.batch, 3, args.size, args.size).to(device)
        y = torch.randint(0, 100, (args.batch,)).to(device)
        with torch.no_grad():
            soft = F.softmax(teacher(x) / 4, dim=1)
        scores = student(x)
        distance = F.kl_div(F.log_softmax(scores / 4, dim=1), soft, reduction="batchmean") * 16
        loss = 0.3 * F.cross_entropy(scores, y, label_smoothing=0.1) + 0.7 * distance
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        average.update_parameters(student)
        print(step, loss.item())
    average.eval()
    right = 0
    with torch.inference_mode():
        for _ in range(2):
            x = torch.randn(2 * args.batch, 3, args.size, args.size, device=device)
            y = torch.randint(0, 100, (2 * args.batch,), device=device)
            right += (average(x).argmax(1) == y).sum().item()
    print("right", right)


if __name__ == "__main__":
    main()
