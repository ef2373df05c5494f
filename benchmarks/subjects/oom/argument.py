# LlamaFactory#260: a batch that is an argument
import argparse
import torch, torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
args = parser.parse_args()
layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
net = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
opt = torch.optim.AdamW(net.parameters())
for step in range(3):
    loss = net(torch.randn(args.batch_size, 512, 512, device="cuda")).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
