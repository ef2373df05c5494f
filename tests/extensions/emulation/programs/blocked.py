"""Matrices of blocks (BSR, BSC): made, turned into other layouts, and multiplied by Triton, piece by piece and by cuSPARSE."""

import torch
from torch.nn.functional import linear

ROWS, COLUMNS, SIDE = 32, 16, 16
begins = torch.arange(ROWS + 1) * 3
row = torch.arange(ROWS) % 5
places = torch.stack([row, row + 5, row + 10], 1).flatten()
shape = (ROWS * SIDE, COLUMNS * SIDE)
matrix = torch.sparse_bsr_tensor(begins, places, torch.ones(ROWS * 3, SIDE, SIDE), shape).cuda()
x = torch.randn(2, 8, shape[1], device="cuda")

dense = matrix.to_dense()
entries = matrix.to_sparse()
by_columns = matrix.to_sparse_bsc((SIDE, SIDE))
copy, half, scaled, negative = matrix.clone(), matrix.half(), matrix * 2, -matrix
total, transposed = matrix.sum(), matrix.t().to_dense()
del dense, entries, by_columns, copy, scaled, negative, transposed

small = torch.zeros(64, 48)
small[:16, 16:32], small[48:, :16], small[32, 40] = 1, 1, 1
small = small.cuda()
assert small.to_sparse_bsr((16, 8)).values().shape == (5, 16, 8)
small.to_sparse_bsc((16, 8))
small.t().to_sparse_bsr((8, 16))
offsets = torch.tensor([0, 2, 2, 3, 4, 6, 6, 6, 6, 7, 8, 8, 9, 9, 9, 9, 10]).cuda()
columns = torch.tensor([0, 5, 1, 2, 3, 4, 1, 11, 6, 9]).cuda()
plain = torch.sparse_csr_tensor(offsets, columns, torch.ones(10, device="cuda"), (16, 12))
assert plain.to_sparse_bsr((4, 4)).values().shape == (8, 4, 4)
plain.t().to_sparse_bsc((4, 8))

first = matrix @ x[0, :1].t().expand(-1, 16)
net = torch.nn.Linear(shape[1], shape[0]).cuda()
net.weight = torch.nn.Parameter(matrix, requires_grad=False)
y = net(x)
y.sum().backward()
linear(x, matrix)
linear(x[0, :5].half(), half)
linear(x[0, :5], matrix, torch.ones(shape[0], device="cuda"))
torch.addmm(y[0, :1].t(), matrix, x[0].t(), beta=0.5, alpha=2)
torch.addmm(torch.randn(shape[0], 5, device="cuda"), matrix, x[0].t()[:, :5], beta=0.5, alpha=2)
matrix.double() @ torch.randn(shape[1], 9, device="cuda", dtype=torch.double)
torch.randn(9, shape[1], device="cuda", dtype=torch.double) @ matrix.double().t()
matrix @ x[0, 0]
matrix @ x[0, :, ::2].reshape(-1)[::4]
