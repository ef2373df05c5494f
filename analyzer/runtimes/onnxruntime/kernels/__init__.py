"""Declarations and scratch memory of ONNX Runtime's kernels."""
