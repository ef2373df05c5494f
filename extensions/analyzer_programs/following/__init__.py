"""Whole programs, besides the operators they call: their files, threads, compilers, checkpoints; steps that
repeat."""
