"""An ONNX model as a PyTorch module, so that it can be trained."""
