"""Deep Q-learning in a gymnasium-like loop: a replay buffer on the host, a target network, epsilon-greedy actions."""

import argparse
import random
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn


def network(size: int, actions: int, width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, actions)
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--moves", type=int, default=40)
    args = parser.parse_args()
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    random.seed(0)
    online, target = network(64, 6, args.width).to(device), network(64, 6, args.width).to(device)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.RMSprop(online.parameters(), lr=1e-3)
    memory: deque[tuple[torch.Tensor, int, float, torch.Tensor, bool]] = deque(maxlen=10_000)
    state = torch.randn(64)
    for move in range(args.moves):
        if random.random() < 0.5:
            action = random.randrange(6)
        else:
            with torch.no_grad():
                action = int(online(state.to(device).unsqueeze(0)).argmax(1).item())
        following, reward, done = torch.randn(64), float(action == 2), random.random() < 0.05
        memory.extend([(state, action, reward, following, done)] * 32)
        state = torch.randn(64) if done else following
        if len(memory) < args.batch:
            continue
        states, actions, rewards, afterwards, over = zip(*random.sample(memory, args.batch), strict=True)
        x, z = torch.stack(states).to(device), torch.stack(afterwards).to(device)
        a = torch.tensor(actions, device=device).unsqueeze(1)
        r, d = torch.tensor(rewards, device=device), torch.tensor(over, device=device)
        with torch.no_grad():
            best = target(z).max(1).values * (~d)
        loss = F.smooth_l1_loss(online(x).gather(1, a).squeeze(1), r + 0.99 * best)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(online.parameters(), 1.0)
        optimizer.step()
        if move % 8 == 0:
            for old, new in zip(target.parameters(), online.parameters(), strict=True):
                old.data.mul_(0.995).add_(new.data, alpha=0.005)
    print("loss", loss.item())


if __name__ == "__main__":
    main()
