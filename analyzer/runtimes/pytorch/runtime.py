"""Eager PyTorch as a runtime: a captured program on the caching allocator."""

from __future__ import annotations

from typing import Any

from analyzer.devices import DeviceProfile
from analyzer.options import Options
from analyzer.runtimes.base import Prediction, Runtime, Source
from analyzer.runtimes.batches import Batches, ParametricCapture
from analyzer.runtimes.pytorch.batches.figures import EagerBatches
from analyzer.runtimes.pytorch.eager import prediction_of, requests
from analyzer.runtimes.pytorch.scratch.script import is_known
from analyzer.runtimes.pytorch.settings import alloc_conf, with_workspaces


class PyTorch(Runtime):
    """Eager PyTorch on the allocator that `PYTORCH_ALLOC_CONF` asks for."""

    name = "pytorch"
    frameworks = ("pytorch",)
    depends_on = ("torch", "cuda", "cudnn")
    takes_limits = True

    def profile(self, profile: DeviceProfile, options: Options, module: Any = None) -> DeviceProfile:
        return with_workspaces(self.with_releases(profile, options), options.runtime_options, module)

    def describes(self, operator: str) -> bool:
        return is_known(operator)

    def predict(self, source: Source, options: Options, profile: DeviceProfile) -> Prediction:
        if source.prediction is not None:
            return source.prediction
        conf = alloc_conf(options.runtime_options)
        return prediction_of(requests(source.graph, profile), source.graph, profile, conf)

    def over_batches(
        self, parametric: ParametricCapture, profile: DeviceProfile, options: Options
    ) -> Batches:
        return EagerBatches(parametric, profile, alloc_conf(options.runtime_options))
