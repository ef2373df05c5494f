"""Recordings a user has: a snapshot of PyTorch's allocator, the text of an error for want of memory.

`plain_pickle` reads a pickle as data and executes nothing, `snapshot` says what lies in it, `history` turns
it into the requests a program made, `replay` has them served again by our allocators, as they were and under
other settings, `findings` says who holds the peak and what grows, `estimate` makes an `Estimate` of all that;
`messages` reads the texts of errors. `opened` finds out which of them a file is.
"""
