"""Soft actor-critic: a sampled Gaussian policy, two critics with averaged targets, three optimizers, a replay buffer."""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal


def network(inside: int, width: int, outside: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inside, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outside)
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--observed", type=int, default=111)
    parser.add_argument("--actions", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--buffer", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    actor = network(args.observed, args.width, 2 * args.actions).to(device)
    critics = nn.ModuleList(network(args.observed + args.actions, args.width, 1) for _ in range(2)).to(device)
    targets = copy.deepcopy(critics).requires_grad_(False)
    log_alpha = torch.zeros(1, requires_grad=True, device=device)
    of_actor = torch.optim.Adam(actor.parameters(), lr=3e-4)
    of_critics = torch.optim.Adam(critics.parameters(), lr=3e-4)
    of_alpha = torch.optim.Adam([log_alpha], lr=3e-4)
    seen = torch.zeros(args.buffer, args.observed, device=device)
    then = torch.zeros_like(seen)
    done = torch.zeros(args.buffer, args.actions, device=device)
    reward, over = torch.zeros(args.buffer, device=device), torch.zeros(args.buffer, device=device)

    def act(x):
        mean, log_std = actor(x).chunk(2, -1)
        policy = Normal(mean, log_std.clamp(-5, 2).exp())
        drawn = policy.rsample()
        action = torch.tanh(drawn)
        likely = policy.log_prob(drawn) - torch.log(1 - action.pow(2) + 1e-6)
        return action, likely.sum(-1)

    def judged(of, x, action):
        both = torch.cat([x, action], -1)
        return torch.min(*(critic(both).squeeze(-1) for critic in of))

    for step in range(args.steps):
        with torch.no_grad():
            done[step] = act(seen[step : step + 1])[0][0]
        pick = torch.randint(0, args.buffer, (args.batch,), device=device)
        x, action, after, gain, end = seen[pick], done[pick], then[pick], reward[pick], over[pick]
        with torch.no_grad():
            following, likely = act(after)
            value = judged(targets, after, following) - log_alpha.exp() * likely
            wanted = gain + 0.99 * (1 - end) * value
        both = torch.cat([x, action], -1)
        loss = sum(F.mse_loss(critic(both).squeeze(-1), wanted) for critic in critics)
        of_critics.zero_grad(set_to_none=True)
        loss.backward()
        of_critics.step()
        action, likely = act(x)
        of_actor.zero_grad(set_to_none=True)
        (log_alpha.exp().detach() * likely - judged(critics, x, action)).mean().backward()
        of_actor.step()
        of_alpha.zero_grad(set_to_none=True)
        (-log_alpha.exp() * (likely.detach() - args.actions)).mean().backward()
        of_alpha.step()
        with torch.no_grad():
            for slow, fast in zip(targets.parameters(), critics.parameters(), strict=True):
                slow.data.mul_(0.995).add_(fast.data, alpha=0.005)
        print(step, float(loss))


if __name__ == "__main__":
    main()
