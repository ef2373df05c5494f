"""Threads of one process that share a GPU: two train a network each, one prepares batches on a stream of its own."""

import argparse
import queue
import threading

import torch
import torch.nn.functional as F
from torch import nn


def network(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(256, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 10)
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--replicas", type=int, default=2)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    models = [network(args.width).to(device) for _ in range(args.replicas)]
    optimizers = [torch.optim.AdamW(model.parameters()) for model in models]
    batches: queue.Queue = queue.Queue(maxsize=1)
    wanted: queue.Queue = queue.Queue()  # so that what is asked for when is the same in every run

    def prepare() -> None:
        while wanted.get():
            x = torch.randn(args.replicas * args.batch, 256).to(device)
            y = torch.randint(0, 10, (args.replicas * args.batch,)).to(device)
            batches.put((x, y))

    def gradients(model: nn.Module, x: torch.Tensor, y: torch.Tensor, losses: list, place: int) -> None:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        losses[place] = loss.detach()

    feeder = threading.Thread(target=prepare)
    feeder.start()
    for step in range(args.steps):
        wanted.put(True)
        x, y = batches.get()
        losses: list = [None] * args.replicas
        workers = [
            threading.Thread(target=gradients, args=(model, *part, losses, place))
            for place, (model, part) in enumerate(
                zip(models, zip(x.chunk(args.replicas), y.chunk(args.replicas), strict=True), strict=True)
            )
        ]
        for worker in workers:
            worker.start()
            worker.join()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        print(step, sum(loss.item() for loss in losses))
    wanted.put(False)
    feeder.join()


if __name__ == "__main__":
    main()
