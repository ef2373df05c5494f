"""A generator and a discriminator, each with its own Adam: DCGAN on random pictures of 64 by 64."""

import argparse
import itertools

import torch
import torch.nn.functional as F
from torch import nn


def generator(latent: int, width: int) -> nn.Module:
    layers: list[nn.Module] = []
    channels = (latent, 8 * width, 4 * width, 2 * width, width)
    for i, (before, after) in enumerate(itertools.pairwise(channels)):
        layers += [
            nn.ConvTranspose2d(before, after, 4, 1 if i == 0 else 2, 0 if i == 0 else 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(True),
        ]
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())


def discriminator(width: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True)]
    for factor in (1, 2, 4):
        layers += [
            nn.Conv2d(factor * width, 2 * factor * width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(2 * factor * width),
            nn.LeakyReLU(0.2, True),
        ]
    return nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4, 1, 0, bias=False), nn.Flatten(0))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    make, judge = generator(100, args.width).to(device), discriminator(args.width).to(device)
    of_make = torch.optim.Adam(make.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_judge = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
    fixed = torch.randn(64, 100, 1, 1, device=device)
    real_label, fake_label = torch.ones(args.batch, device=device), torch.zeros(args.batch, device=device)
    for step in range(args.steps):
        real = torch.rand(args.batch, 3, 64, 64).to(device)
        judge.zero_grad()
        loss_real = F.binary_cross_entropy_with_logits(judge(real), real_label)
        loss_real.backward()
        fake = make(torch.randn(args.batch, 100, 1, 1, device=device))
        loss_fake = F.binary_cross_entropy_with_logits(judge(fake.detach()), fake_label)
        loss_fake.backward()
        of_judge.step()
        make.zero_grad()
        loss = F.binary_cross_entropy_with_logits(judge(fake), real_label)
        loss.backward()
        of_make.step()
        print(step, (loss_real + loss_fake).item(), loss.item())
    make.eval()
    with torch.no_grad():
        print("samples", tuple(make(fixed).cpu().shape))


if __name__ == "__main__":
    main()
