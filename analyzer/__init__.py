"""Know a model's GPU memory before you have the GPU."""
