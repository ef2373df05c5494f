# fragmentation by buffers that outlive what lay in their place
import torch

kept = []
for i in range(16):
    work = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
    del work
    kept.append(torch.empty(60 << 20, dtype=torch.uint8, device="cuda"))
print(len(kept))
