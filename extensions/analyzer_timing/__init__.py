"""A program's time: its kernels, from their operations and bytes, the host, and both together."""
