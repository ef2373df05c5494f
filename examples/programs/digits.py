"""A classifier trained the usual way: loader, augmentation on the device, mixed precision, clipping,
schedule, evaluation."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def block(channels: int, wide: int) -> nn.Sequential:
    """Convolution, normalization, activation."""
    return nn.Sequential(
        nn.Conv2d(channels, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide), nn.ReLU(inplace=True)
    )


def main() -> None:
    """Train, and evaluate after every epoch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--half", action="store_true", help="float16 with a gradient scaler")
    given = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    count = given.batch_size * given.batches + given.batch_size // 2
    data = TensorDataset(torch.randn(count, 1, 28, 28), torch.randint(0, 10, (count,)))
    loader = DataLoader(data, given.batch_size, shuffle=True, pin_memory=True)
    model = nn.Sequential(
        block(1, 32), block(32, 64), nn.MaxPool2d(2), block(64, 128), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128 * 49, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=given.epochs * len(loader))
    scaler = torch.amp.GradScaler(device.type, enabled=given.half)
    loss_of = nn.CrossEntropyLoss()
    for epoch in range(given.epochs):
        model.train()
        for batch in loader:
            images, labels = (part.to(device, non_blocking=True) for part in batch)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, torch.float16, enabled=given.half):
                loss = loss_of(model(images + 0.1 * torch.randn_like(images)), labels)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
        model.eval()
        right = 0
        with torch.no_grad():
            for images, labels in loader:
                right += int((model(images.to(device)).argmax(1) == labels.to(device)).sum())
        print(f"epoch {epoch}: loss {loss.item():.3f}, right {right} of {count}")


if __name__ == "__main__":
    main()
