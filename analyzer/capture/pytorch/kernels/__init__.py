"""Which kernels CUDA would choose for an operator, and what they make."""
