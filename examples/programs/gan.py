"""Two networks and two optimizers: a generator of images and a critic that is trained twice as often."""

import argparse

import torch
from torch import nn


def main() -> None:
    """Train both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    given = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = nn.Sequential(
        nn.ConvTranspose2d(100, 128, 4), nn.BatchNorm2d(128), nn.ReLU(),
        nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh(),
    ).to(device)  # fmt: skip
    critic = nn.Sequential(
        nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Flatten(), nn.Linear(128 * 16, 1),
    ).to(device)  # fmt: skip
    making = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judging = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
    for step in range(given.steps):
        for _ in range(2):
            real = torch.randn(given.batch_size, 3, 16, 16, device=device)
            with torch.no_grad():
                fake = generator(torch.randn(given.batch_size, 100, 1, 1, device=device))
            judging.zero_grad()
            (critic(fake).mean() - critic(real).mean()).backward()
            judging.step()
        making.zero_grad()
        loss = -critic(generator(torch.randn(given.batch_size, 100, 1, 1, device=device))).mean()
        loss.backward()
        making.step()
        print(f"step {step}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
