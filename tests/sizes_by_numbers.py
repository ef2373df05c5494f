"""The text of a program whose sizes follow from numbers of a tensor on the device; either engine runs it."""

NUMBERED = """
host = torch.rand(1 << 17)
x = host.cuda()
assert x[x > 0.9].shape == host[host > 0.9].shape
assert (x * 2 > 1).nonzero().shape == (host > 0.5).nonzero().shape
assert x.mul(4).int().unique(return_counts=True)[1].shape == (4,)
assert x.mul(4).long().bincount().shape == (4,)
assert torch.unique_consecutive(x > 2).shape == (1,)
"""
