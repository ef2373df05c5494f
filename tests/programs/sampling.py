"""Operators of sampling and of decoding, each on its own: what they take besides their results shows in the history."""

import argparse

import torch
from torch.distributions import Bernoulli, Beta, Categorical, Dirichlet, MultivariateNormal, Normal


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 16, 1000])
    parser.add_argument("--columns", type=int, nargs="*", default=[6, 1000, 32_000])
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float16):
        for columns in args.columns:
            for rows in args.rows:
                weight = torch.rand(rows, columns).to(device, dtype)
                for count, again in ((1, False), (1, True), (4, False), (4, True)):
                    torch.multinomial(weight, count, replacement=again)
                torch.multinomial(weight[0], 1)
                weight.t().softmax(0).multinomial(1) if rows > 1 and dtype is torch.float32 else None
    for columns in args.columns:
        for rows in args.rows:
            logits = torch.randn(rows, columns, requires_grad=True, device=device)
            policy = Categorical(logits=logits)
            action = policy.sample()
            (policy.log_prob(action).mean() + policy.entropy().mean()).backward()
            kept = torch.topk(logits, min(50, columns)).values
            cut = logits.masked_fill(logits < kept[..., -1:], float("-inf"))
            ordered, places = torch.sort(logits, descending=False)
            likely = ordered.softmax(-1).cumsum(-1)
            out = (likely <= 0.1).scatter(1, places, likely <= 0.1)
            chosen = torch.multinomial(cut.masked_fill(out, float("-inf")).softmax(-1), 1).squeeze(1)
            print(rows, columns, chosen.shape)
    x = torch.rand(512, 32, device=device)
    for policy in (Normal(x, x + 1), Bernoulli(x), Beta(x + 1, x + 1), Dirichlet(x + 1)):
        print(policy.log_prob(policy.sample()).shape, policy.entropy().shape)
    square = MultivariateNormal(x[:, :8], torch.eye(8, device=device))
    print(square.log_prob(square.sample()).shape)


if __name__ == "__main__":
    main()
