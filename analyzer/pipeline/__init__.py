"""Target → Graph → events → allocator → `Estimate`: one function, two ways in (PyTorch, ONNX)."""

from analyzer.pipeline.analyze import analyze

__all__ = ["analyze"]
