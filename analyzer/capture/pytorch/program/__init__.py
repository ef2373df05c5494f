"""What a whole program does besides calling operators: its files, threads, compilers, checkpoints; steps that
repeat."""
