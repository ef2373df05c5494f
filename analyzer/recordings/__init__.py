"""Recordings a user has: a snapshot of PyTorch's allocator, the text of an error for want of memory.

`plain_pickle` reads a pickle as data and executes nothing (`entries`: a history's entries in one piece),
`snapshot` says what lies in it, `history` turns it into the requests a program made, `replay` has them served
again by our allocators as they were, `outcome` under other settings, `growth` says what grows, `estimate`
makes an `Estimate` of all that; `messages` reads the texts of errors. `opened` finds out which of them a file
is.
"""
