# "reserved but unallocated memory is large": batches of growing length
import torch, torch.nn as nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
net, head = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda(), nn.Linear(512, 8000).cuda()
opt = torch.optim.AdamW([*net.parameters(), *head.parameters()], fused=True)
for n in [310, 322, 355, 290, 401, 433, 297, 467, 489, 350, 512, 530, 571, 318, 601, 633, 655, 690]:
    x = torch.randn(8, n, 512, device="cuda")
    y = torch.randint(0, 8000, (8 * n,), device="cuda")
    loss = nn.functional.cross_entropy(head(net(x)).flatten(0, 1), y)
    loss.backward()
    opt.step()
    opt.zero_grad()
