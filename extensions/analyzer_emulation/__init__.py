"""PyTorch's own CUDA build on a machine without a GPU: a CUDA runtime that answers, and what the program then
asked its allocator.

`native/` is that runtime, in C: memory is addresses, kernels do nothing. `library` finds it, `device` says to
it which GPU it is, `launch` starts a program under it, `inside/` watches from within that process, `replay`
goes through the history of its allocator once more, `history` makes an `Estimate` of the record.
"""
