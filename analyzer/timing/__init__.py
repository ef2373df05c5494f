"""What a program takes of time: kernels from what they compute and move, the host, and both together."""

from analyzer.timing.step import operator_seconds, step_time
from analyzer.timing.step_time import StepTime

__all__ = ["StepTime", "operator_seconds", "step_time"]
