# huggingface/transformers#12878: an evaluation with gradients, which fits no more than a training
import torch, torch.nn as nn

layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
net = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).cuda()
net.train(False)
for batch in range(3):
    out = net(torch.randn(32, 512, 512, device="cuda"))
    print(out.shape)
