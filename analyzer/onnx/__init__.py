"""Reading ONNX files: what a file holds, checked, never executed; shapes at a batch. No torch, no weights."""
