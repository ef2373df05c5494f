"""ONNX Runtime's plan: order, places, shared buffers, the memory pattern."""
