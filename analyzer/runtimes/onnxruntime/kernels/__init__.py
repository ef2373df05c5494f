"""What ONNX Runtime's kernels declare and take for themselves."""
