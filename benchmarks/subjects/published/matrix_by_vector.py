"""What somebody asked PyTorch's forum about: a vector by a matrix, and what the snapshot shows besides them."""

import torch

weight, bias, x = torch.rand(1000, 10).cuda(), torch.rand(10).cuda(), torch.rand(1000).cuda()
y = x @ weight + bias
print(f"PEAKS {torch.cuda.memory_allocated()} {torch.cuda.memory_reserved()}")
