"""Products summed in another type than their matrices'; both engines ask for the same in the same order."""

import torch

half, wide = torch.bfloat16, torch.float32


def drawn(*shape, dtype=half):
    return torch.randn(*shape, device="cuda", dtype=dtype)


left, right, start = drawn(640, 1280), drawn(1280, 2560), torch.zeros(640, 2560, device="cuda")
torch.mm(left, right, out_dtype=wide)
torch.mm(drawn(640, 2560)[:, ::2], right, out_dtype=wide)
torch.mm(left, right, out_dtype=wide, out=start)
for bias in (start, drawn(640, 2560), drawn(2560), drawn(2560, dtype=wide)):  # those of one row are fused
    torch.addmm(bias, left, right, out_dtype=wide)
torch.addmm(start, left, right, out_dtype=wide, out=start)
stacked, others, sums = drawn(4, 640, 128), drawn(4, 128, 256), torch.zeros(4, 640, 256, device="cuda")
torch.bmm(stacked, others, out_dtype=wide)
torch.bmm(stacked, drawn(4, 256, 128).mT, out_dtype=wide)
torch.baddbmm(sums, stacked, others, out_dtype=wide)
torch.baddbmm(drawn(256), stacked, others, out_dtype=wide)
torch.baddbmm(sums, stacked, others, out_dtype=wide, out=sums)
index = torch.zeros(5000, device="cuda", dtype=torch.int64)
begins = torch.arange(0, 5000, 50, device="cuda")
for mode in ("sum", "mean", "max"):  # an expanded gradient is copied
    table = torch.randn(1000, 64, device="cuda", requires_grad=True)
    torch.nn.functional.embedding_bag(index, table, begins, mode=mode).sum().backward()
packed = torch.ops.aten._convert_weight_to_int4pack(
    torch.zeros(512, 512, device="cuda", dtype=torch.uint8), 2
)
torch.ops.aten._weight_int4pack_mm(drawn(64, 1024), packed, 128, drawn(8, 512, 2))
