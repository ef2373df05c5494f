"""A runtime's prediction where what it did is known: from a run that was recorded, or emulated."""

from __future__ import annotations

from typing import Any

from analyzer.devices import DeviceProfile
from analyzer.options import Options
from analyzer.runtimes.base import Prediction, Runtime, Source


class Happened(Runtime):
    """Predicts what happened: the source brings its prediction."""

    def predict(self, source: Source, options: Options, profile: DeviceProfile) -> Prediction:
        """Return what happened."""
        del options, profile
        assert source.prediction is not None
        return source.prediction


def no_allocator() -> Any:
    """Refuse to simulate again what happened: the allocator of its prediction."""
    raise AssertionError("what happened is not simulated again")
