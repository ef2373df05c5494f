"""ONNX Runtime: what a session takes from the GPU, predicted from the model file alone.

    load → rewrite (the graph that really runs) → order, planner (who shares a buffer)
    → session (events) → arena

`predict` is a pure function of the file, the batch, the options and the device.
"""

from analyzer.runtimes.onnxruntime.frame import prepare
from analyzer.runtimes.onnxruntime.options import SessionOptions, parse
from analyzer.runtimes.onnxruntime.runtime import SessionPrediction, predict
from analyzer.runtimes.onnxruntime.simulation import ArenaRegion, RunFigures

__all__ = ["ArenaRegion", "RunFigures", "SessionOptions", "SessionPrediction", "parse", "predict", "prepare"]
