# fine-tuning a language model of transformers
import torch
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(vocab_size=8000, n_layer=6, n_embd=512, n_head=8, n_positions=512)
model = GPT2LMHeadModel(config)
model = model.cuda()
opt = torch.optim.AdamW(model.parameters())
for step in range(3):
    ids = torch.randint(0, 8000, (16, 512), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
