"""ONNX Runtime as a runtime: its own plan of the model, on its own arena. It takes the model, not the captured graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analyzer.devices import DeviceProfile
from analyzer.options import Options
from analyzer.runtimes.base import Runtime, Source
from analyzer.runtimes.onnxruntime.prediction import SessionPrediction, predict


class OnnxRuntime(Runtime):
    """A session under the CUDA provider, or under the CPU provider with the option provider=cpu."""

    name = "onnxruntime"
    frameworks = ("onnx",)

    def profile(self, profile: DeviceProfile, options: Options, module: Any = None) -> DeviceProfile:
        del module
        # The arena follows what the device has; a budget leaves it less.
        left = options.budget_bytes or profile.capacity_bytes
        return replace(profile, capacity_bytes=min(profile.capacity_bytes, left))

    def predict(self, source: Source, options: Options, profile: DeviceProfile) -> SessionPrediction:
        assert source.model is not None  # `frameworks` lets nothing else come here
        return predict(source.model, options=options.runtime_options, device=profile, runs=source.runs)
