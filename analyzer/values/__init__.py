"""Values of tensors that decide sizes, for every engine that runs a program without a GPU.

Two engines use it: the tracer, whose tensors have no memory, and the emulated runtime, which loads this
folder into the user's own Python as a package by itself. So it imports torch alone, and its files import each
other relatively.
"""
