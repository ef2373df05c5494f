"""What Hugging Face's "Efficient Training on a Single GPU" trains: `bert_large.py BATCH STEPS [checkpoint] [fp16] [adafactor]`, or `load`.

BERT-large for sequence classification, 512 tokens, attention and AdamW as the library had them then (its own, a parameter at a time; a mask
of float32 is added to scores even where nothing is masked); fp16 as the Trainer has it (autocast and a gradient scaler).
"""

import math
import sys

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, BertConfig, BertForSequenceClassification


def attention(module, query, key, value, _mask, dropout=0.0, **_):
    scores = torch.matmul(query, key.transpose(-1, -2))
    scores = scores / math.sqrt(query.shape[-1])
    scores = scores + torch.zeros(query.shape[0], 1, 1, key.shape[2], device=query.device)
    shares = F.dropout(F.softmax(scores, dim=-1), dropout, module.training)
    return torch.matmul(shares, value).permute(0, 2, 1, 3).contiguous(), None


AttentionInterface.register("of_4_21", attention)
config = BertConfig(vocab_size=30522, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
                    attn_implementation="of_4_21")  # fmt: skip
model = BertForSequenceClassification(config).to("cuda")
if sys.argv[1:] == ["load"]:
    print(f"PEAKS {torch.cuda.max_memory_allocated()} {torch.cuda.max_memory_reserved()}")
    sys.exit()
batch, accumulated, flags = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
if "checkpoint" in flags:
    model.gradient_checkpointing_enable({"use_reentrant": True})
model.train()
if "adafactor" in flags:
    from transformers.optimization import Adafactor

    optimizer = Adafactor(model.parameters(), scale_parameter=False, relative_step=False, lr=5e-5)
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, foreach=False)
half = "fp16" in flags
scaler = torch.amp.GradScaler("cuda", enabled=half)
for _ in range(3):
    for _ in range(accumulated):
        ids = torch.randint(100, 30000, (batch, 512)).to("cuda")
        labels = torch.zeros(batch, dtype=torch.int64).to("cuda")
        with torch.autocast("cuda", torch.float16, enabled=half):
            loss = model(input_ids=ids, labels=labels).loss / accumulated
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
    scaler.step(optimizer)
    scaler.update()
    model.zero_grad(set_to_none=False)  # as torch 1.10 did
print(f"PEAKS {torch.cuda.max_memory_allocated()} {torch.cuda.max_memory_reserved()}")
