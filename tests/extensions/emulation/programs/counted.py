"""Least and largest of what is not contiguous are those of a copy; both engines ask for the same in the same order."""

import torch

weights = torch.rand(768, 512, device="cuda").t()
torch.multinomial(weights, 1)
torch.bincount(torch.zeros(4000, device="cuda", dtype=torch.int64)[::2], minlength=5)
