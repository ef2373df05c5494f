"""What a program takes of time: its kernels, from what they compute and move, the host, and both together."""
