"""A network that solves a differential equation: second derivatives by autograd, L-BFGS with a closure, after Adam."""

import argparse

import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--line-search", action="store_true")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(2, args.width), nn.Tanh()]
    for _ in range(3):
        layers += [nn.Linear(args.width, args.width), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(args.width, 1)).to(device)
    inside = torch.rand(args.points, 2, device=device, requires_grad=True)
    edge = torch.rand(args.points // 10, 2, device=device)
    edge[:, 0] = 0

    def loss_now() -> torch.Tensor:
        u = model(inside)
        (du,) = torch.autograd.grad(u, inside, torch.ones_like(u), create_graph=True)
        ut, ux = du[:, :1], du[:, 1:]
        (d2u,) = torch.autograd.grad(ux, inside, torch.ones_like(ux), create_graph=True)
        residual = ut + u * ux - 0.01 * d2u[:, 1:]
        return residual.square().mean() + (model(edge) + torch.sin(torch.pi * edge[:, 1:])).square().mean()

    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(args.steps):
        adam.zero_grad()
        loss_now().backward()
        adam.step()
    lbfgs = torch.optim.LBFGS(
        model.parameters(), max_iter=5, history_size=10, line_search_fn="strong_wolfe" if args.line_search else None
    )  # fmt: skip

    def closure() -> torch.Tensor:
        lbfgs.zero_grad()
        loss = loss_now()
        loss.backward()
        return loss

    for step in range(args.steps):
        print(step, float(lbfgs.step(closure)))


if __name__ == "__main__":
    main()
