"""A diffusion model: a small U-Net with attention, fp16 with a scaler, an average of the weights, and sampling."""

import argparse
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn


class Part(nn.Module):
    def __init__(self, inside: int, outside: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, inside), nn.SiLU(), nn.Conv2d(inside, outside, 3, 1, 1))
        self.time = nn.Linear(time, outside)
        self.second = nn.Sequential(nn.GroupNorm(8, outside), nn.SiLU(), nn.Conv2d(outside, outside, 3, 1, 1))
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x, t):
        return self.skip(x) + self.second(self.first(x) + self.time(F.silu(t))[:, :, None, None])


class Look(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = (
            nn.GroupNorm(8, channels),
            nn.Conv2d(channels, 3 * channels, 1),
            nn.Conv2d(channels, channels, 1),
        )

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, 3, 4, c // 4, h * w).transpose(3, 4).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(2, 3).reshape(b, c, h, w))


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        time = 4 * width
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(3, width, 3, 1, 1)
        self.down1, self.less1 = Part(width, width, time), nn.Conv2d(width, width, 3, 2, 1)
        self.down2, self.less2 = Part(width, 2 * width, time), nn.Conv2d(2 * width, 2 * width, 3, 2, 1)
        self.middle, self.look, self.after = (
            Part(2 * width, 2 * width, time),
            Look(2 * width),
            Part(2 * width, 2 * width, time),
        )
        self.up2, self.up1 = Part(4 * width, 2 * width, time), Part(3 * width, width, time)
        self.leave = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, 1, 1))

    def forward(self, x, t):
        half = self.width // 2
        wave = torch.exp(torch.arange(half, device=x.device) * (-math.log(10000) / (half - 1)))
        angle = t[:, None].float() * wave[None]
        t = self.time(torch.cat((angle.sin(), angle.cos()), 1))
        one = self.down1(self.enter(x), t)
        two = self.down2(self.less1(one), t)
        y = self.after(self.look(self.middle(self.less2(two), t)), t)
        y = self.up2(torch.cat((F.interpolate(y, scale_factor=2.0), two), 1), t)
        y = self.up1(torch.cat((F.interpolate(y, scale_factor=2.0), one), 1), t)
        return self.leave(y)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = UNet(args.width).to(device)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=device == "cuda")
    scaler = torch.amp.GradScaler(device, enabled=args.amp)
    beta = torch.linspace(1e-4, 0.02, 1000, device=device)
    alpha = torch.cumprod(1 - beta, 0)
    for step in range(args.steps):
        x = torch.randn(args.batch, 3, args.size, args.size).to(device)
        t = torch.randint(0, 1000, (args.batch,), device=device)
        noise = torch.randn_like(x)
        a = alpha[t][:, None, None, None]
        with torch.autocast(device, torch.float16, enabled=args.amp):
            loss = F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters(), strict=True):
                kept.lerp_(new, 0.001)
        print(step, loss.item())
    with torch.no_grad():
        x = torch.randn(16, 3, args.size, args.size, device=device)
        for t in reversed(range(0, 1000, 250)):
            noise = average(x, torch.full((16,), t, device=device))
            x = (x - beta[t] / (1 - alpha[t]).sqrt() * noise) / (1 - beta[t]).sqrt()
    print("samples", tuple(x.shape))


if __name__ == "__main__":
    main()
