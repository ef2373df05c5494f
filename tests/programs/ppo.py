"""Proximal policy optimisation: rollouts in environments on the host, advantages, minibatches of an actor and a critic."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical


class World:
    """Several environments that answer pictures, rewards and whether an episode ended."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self.random = torch.Generator().manual_seed(0)

    def reset(self) -> torch.Tensor:
        return torch.rand(self.count, 4, self.size, self.size, generator=self.random)

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        reward = (actions == 1).float() + 0.1 * torch.rand(self.count, generator=self.random)
        return self.reset(), reward, torch.rand(self.count, generator=self.random) < 0.02


class ActorCritic(nn.Module):
    def __init__(self, actions: int, size: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU(),
            nn.Flatten(),
        )  # fmt: skip
        width = self.body(torch.zeros(1, 4, size, size)).shape[1]
        self.body.append(nn.Linear(width, 512)).append(nn.ReLU())
        self.actor, self.critic = nn.Linear(512, actions), nn.Linear(512, 1)

    def forward(self, x):
        h = self.body(x)
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--environments", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--size", type=int, default=84)
    parser.add_argument("--minibatches", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--updates", type=int, default=2)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    world = World(args.environments, args.size)
    agent = ActorCritic(6, args.size).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    shape = (args.length, args.environments)
    seen = torch.zeros((*shape, 4, args.size, args.size), device=device)
    actions, likely, rewards, ended, values = (torch.zeros(shape, device=device) for _ in range(5))
    now, over = world.reset().to(device), torch.zeros(args.environments, device=device)
    for update in range(args.updates):
        for t in range(args.length):
            seen[t], ended[t] = now, over
            with torch.no_grad():
                policy, value = agent(now)
                action = policy.sample()
                likely[t], values[t], actions[t] = policy.log_prob(action), value, action
            following, reward, done = world.step(action.cpu())
            rewards[t] = reward.to(device).view(-1)
            now, over = following.to(device), done.float().to(device)
        with torch.no_grad():
            last = agent(now)[1]
            advantages = torch.zeros_like(rewards)
            carried = torch.zeros_like(last)
            for t in reversed(range(args.length)):
                nonterminal = 1 - (over if t == args.length - 1 else ended[t + 1])
                after = last if t == args.length - 1 else values[t + 1]
                delta = rewards[t] + 0.99 * after * nonterminal - values[t]
                advantages[t] = carried = delta + 0.99 * 0.95 * nonterminal * carried
            returns = advantages + values
        flat_seen = seen.reshape(-1, 4, args.size, args.size)
        flat = [v.reshape(-1) for v in (likely, actions, advantages, returns)]
        count = args.length * args.environments
        for _ in range(args.epochs):
            order = torch.randperm(count)
            for chunk in order.chunk(args.minibatches):
                part = chunk.to(device)
                old, acted, advantage, target = (v[part] for v in flat)
                policy, value = agent(flat_seen[part])
                ratio = (policy.log_prob(acted.long()) - old).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = torch.max(-advantage * ratio, -advantage * ratio.clamp(0.9, 1.1)).mean()
                loss = clipped + 0.5 * F.mse_loss(value, target) - 0.01 * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        print(update, loss.item(), rewards.mean().item())


if __name__ == "__main__":
    main()
