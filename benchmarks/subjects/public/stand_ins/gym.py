"""The gym of 2018 over today's gymnasium: `reset` returns the observation, `step` four values, and there is `seed`.

Programs of that time need it; the last gym of theirs does not run beside NumPy 2.
"""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

__all__ = ["make", "spaces"]


class _Environment:
    def __init__(self, name: str) -> None:
        self._inner = gymnasium.make(name)
        self._seed: int | None = None
        self.observation_space, self.action_space = self._inner.observation_space, self._inner.action_space
        self._max_episode_steps = self._inner.spec.max_episode_steps if self._inner.spec else None

    def seed(self, seed: int) -> None:
        self._seed = seed

    def reset(self) -> Any:
        seed, self._seed = self._seed, None
        return self._inner.reset(seed=seed)[0]

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        seen, reward, ended, cut, told = self._inner.step(action)
        return seen, reward, ended or cut, told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def make(name: str) -> _Environment:
    """The environment of that name."""
    return _Environment(name)
