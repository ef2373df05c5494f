"""A Wasserstein GAN: the critic's gradient at mixed pictures is penalised, so a backward pass is differentiated."""

import argparse

import torch
from torch import nn


def critic(width: int, size: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(3 * size * size, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2),
        nn.Linear(width, 1),
    )  # fmt: skip


def generator(width: int, size: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(128, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 3 * size * size), nn.Tanh(),
        nn.Unflatten(1, (3, size, size)),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    judge, make = critic(args.width, args.size).to(device), generator(args.width, args.size).to(device)
    of_judge = torch.optim.Adam(judge.parameters(), 1e-4, (0.0, 0.9))
    of_make = torch.optim.RMSprop(make.parameters(), 5e-5)
    for step in range(args.steps):
        for _ in range(args.rounds):
            real = torch.rand(args.batch, 3, args.size, args.size).to(device)
            with torch.no_grad():
                fake = make(torch.randn(args.batch, 128, device=device))
            share = torch.rand(args.batch, 1, 1, 1, device=device)
            mixed = (share * real + (1 - share) * fake).requires_grad_()
            scores = judge(mixed)
            (slope,) = torch.autograd.grad(scores.sum(), mixed, create_graph=True)
            penalty = (slope.flatten(1).norm(2, dim=1) - 1).square().mean()
            loss = judge(fake).mean() - judge(real).mean() + 10 * penalty
            of_judge.zero_grad()
            loss.backward()
            of_judge.step()
        of_make.zero_grad()
        (-judge(make(torch.randn(args.batch, 128, device=device))).mean()).backward()
        of_make.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
