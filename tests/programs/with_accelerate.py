"""A vision transformer of timm trained by accelerate: bf16, gradient accumulation, clipping, a warm-up, metrics gathered."""

import argparse

import timm
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from transformers import get_cosine_schedule_with_warmup


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="vit_small_patch16_224")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--accumulation", type=int, default=2)
    parser.add_argument("--precision", default="bf16", choices=["no", "fp16", "bf16"])
    args = parser.parse_args()
    accelerator = Accelerator(mixed_precision=args.precision, gradient_accumulation_steps=args.accumulation)
    torch.manual_seed(0)
    model = timm.create_model(args.model, num_classes=10)
    count = args.batch * args.batches
    pictures = torch.randn(args.batch, 3, args.size, args.size).repeat(args.batches, 1, 1, 1)
    data = TensorDataset(pictures, torch.randint(0, 10, (count,)))
    training, held_out = DataLoader(data, args.batch, shuffle=True), DataLoader(data, 2 * args.batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05)
    scheduler = get_cosine_schedule_with_warmup(optimizer, 2, args.batches)
    model, optimizer, training, held_out, scheduler = accelerator.prepare(
        model, optimizer, training, held_out, scheduler
    )
    model.train()
    for x, y in training:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        accelerator.print("loss", loss.item())
    model.eval()
    right = seen = 0
    for x, y in held_out:
        with torch.no_grad():
            guess = model(x).argmax(-1)
        guess, truth = accelerator.gather_for_metrics((guess, y))
        right += (guess == truth).sum().item()
        seen += truth.shape[0]
    accelerator.print("accuracy", right / seen)


if __name__ == "__main__":
    main()
