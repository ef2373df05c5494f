"""One operator as FakeGPU measures its workspace: `convolution.py float32|bfloat16 N C H`, C channels to C, 3 x 3, padding 1.

Three calls first; what it takes at its peak beyond what is there before and after.
"""

import sys

import torch

dtype, (count, channels, height) = getattr(torch, sys.argv[1]), map(int, sys.argv[2:])
picture = torch.randn((count, channels, height, height), device="cuda", dtype=dtype)
weight = torch.randn((channels, channels, 3, 3), device="cuda", dtype=dtype)
for _ in range(3):
    torch.nn.functional.conv2d(picture, weight, padding=1)
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
result = torch.nn.functional.conv2d(picture, weight, padding=1)
after = torch.cuda.memory_allocated()
print(f"PEAKS {torch.cuda.max_memory_allocated() - max(before, after)} {torch.cuda.max_memory_reserved()}")
