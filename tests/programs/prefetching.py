"""A loader that copies the next batch on a stream of its own while the network works: `record_stream`, events, pinned memory."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Prefetcher:
    """The next batch is on its way to the device while the present one is in use."""

    def __init__(self, batches) -> None:
        self.batches, self.stream = iter(batches), torch.cuda.Stream()
        self.load()

    def load(self) -> None:
        try:
            x, y = next(self.batches)
        except StopIteration:
            self.x = self.y = None
            return
        with torch.cuda.stream(self.stream):
            self.x = x.cuda(non_blocking=True).float().div_(255).sub_(0.5)
            self.y = y.cuda(non_blocking=True)

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        x, y = self.x, self.y
        if x is not None:
            x.record_stream(torch.cuda.current_stream())
            y.record_stream(torch.cuda.current_stream())
            self.load()
        return x, y


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(0)
    w = args.width
    model = nn.Sequential(
        nn.Conv2d(3, w, 7, 2, 3), nn.BatchNorm2d(w), nn.ReLU(), nn.Conv2d(w, 2 * w, 3, 2, 1), nn.BatchNorm2d(2 * w),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * w, 10),
    ).cuda()  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    side = torch.cuda.Stream()
    kept = torch.zeros(1 << 20, device="cuda")
    started, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    loader = Prefetcher(
        (
            torch.randint(0, 256, (args.batch, 3, args.size, args.size), dtype=torch.uint8).pin_memory(),
            torch.randint(0, 10, (args.batch,)).pin_memory(),
        )
        for _ in range(args.steps)
    )
    x, y = loader.next()
    started.record()
    while x is not None:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # statistics beside the training
            kept.mul_(0.9).add_(torch.randn(1 << 20, device="cuda"))
            norm = torch.stack([p.detach().norm() for p in model.parameters()]).sum()
        torch.cuda.current_stream().wait_stream(side)
        print("loss", loss.item(), norm.item())
        x, y = loader.next()
    ended.record()
    torch.cuda.synchronize()
    print("took", started.elapsed_time(ended) >= 0)


if __name__ == "__main__":
    main()
