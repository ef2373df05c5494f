"""The GPU a captured program believes in: what it answers, and which kernels CUDA would choose."""
