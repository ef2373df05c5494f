"""What has no plain memory: quantized and nested tensors, which emulation runs and does not look into."""

import torch

values = torch.randn(512, 768, device="cuda")
torch.quantize_per_tensor(values, 0.1, 0, torch.quint8).dequantize()
nested = torch.nested.nested_tensor([torch.randn(30, 16, device="cuda"), torch.randn(50, 16, device="cuda")])
assert nested.to_padded_tensor(0.0).shape == (2, 50, 16)
assert [
    part.shape[0]
    for part in torch.nn.functional.softmax(torch.nn.Linear(16, 32, device="cuda")(nested), -1).unbind()
] == [30, 50]
torch.normal(values, values.abs())
