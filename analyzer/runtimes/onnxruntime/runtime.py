"""ONNX Runtime as a runtime: its own plan of the model, on its own arena. It takes the model, not the
captured graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analyzer.devices import DeviceProfile
from analyzer.options import Options
from analyzer.runtimes.base import Prediction, Runtime, Source
from analyzer.runtimes.batches import Batches, ParametricCapture
from analyzer.runtimes.onnxruntime.batches import SessionBatches
from analyzer.runtimes.onnxruntime.options import parse
from analyzer.runtimes.onnxruntime.prediction import SessionPrediction, predict


class OnnxRuntime(Runtime):
    """A session under the CUDA provider, or under the CPU provider with the option provider=cpu."""

    name = "onnxruntime"
    frameworks = ("onnx",)
    depends_on = ("onnxruntime", "cuda", "cudnn")

    def profile(self, profile: DeviceProfile, options: Options, module: Any = None) -> DeviceProfile:
        del module
        return self.with_releases(profile, options, on_gpu=parse(options.runtime_options).provider == "cuda")

    def modelled(self, prediction: Prediction, profile: DeviceProfile) -> dict[str, str]:
        """The CPU provider's figures depend on ONNX Runtime alone."""
        found = super().modelled(prediction, profile)
        assert isinstance(prediction, SessionPrediction)
        return found if prediction.settings.provider == "cuda" else {self.name: found[self.name]}

    def predict(self, source: Source, options: Options, profile: DeviceProfile) -> SessionPrediction:
        assert source.model is not None  # `frameworks` lets nothing else come here
        # The arena follows what the device has; a budget leaves it less, which is no limit of the arena's
        # own.
        budget = options.budget_bytes
        if budget is not None and budget < profile.usable_bytes:
            left = profile.of_memory(budget)
            found = predict(source.model, options=options.runtime_options, device=left, runs=source.runs)
            return found if found.settings.gpu_mem_limit is not None else replace(found, capped=None)
        return predict(source.model, options=options.runtime_options, device=profile, runs=source.runs)

    def over_batches(
        self, parametric: ParametricCapture, profile: DeviceProfile, options: Options
    ) -> Batches | None:
        """Return figures over batches for a session that does not share its arena; else None."""
        settings = parse(options.runtime_options)
        if len(parametric.batches) == 1 or options.strict or settings.shared_with:
            return None
        return SessionBatches(parametric, settings, profile)

    def limited_to(self, options: Options, nbytes: int) -> Options:
        """Set the arena's own limit."""
        limited: dict[str, Any] = {"gpu_mem_limit": nbytes}
        return replace(options, runtime_options={**options.runtime_options, **limited})
