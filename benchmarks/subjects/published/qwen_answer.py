"""What FakeGPU's validation of inference runs: `qwen_answer.py [load]`: Qwen3-8B in bfloat16, a prompt of nine words, two new ones."""

import sys

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

config = Qwen3Config(
    vocab_size=151936, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8,
    head_dim=128, max_position_embeddings=40960, attn_implementation="sdpa",
)  # fmt: skip
torch.set_default_dtype(torch.bfloat16)
with torch.device("meta"):
    nbytes = sum(one.numel() * one.element_size() for one in Qwen3ForCausalLM(config).parameters())
# transformers takes all that it loads in one block first, and gives it back (`caching_allocator_warmup`).
torch.empty(nbytes // 2, dtype=torch.float16, device="cuda:0")
with torch.device("cuda:0"):
    model = Qwen3ForCausalLM(config)
model.eval()
if sys.argv[1:] == ["load"]:
    print(f"PEAKS {torch.cuda.memory_allocated()} {torch.cuda.memory_reserved()}")
    sys.exit()
torch.cuda.reset_peak_memory_stats()
ids = torch.randint(0, config.vocab_size, (1, 9)).to("cuda:0")
mask = torch.ones_like(ids)
with torch.inference_mode():
    outputs = model(input_ids=ids, attention_mask=mask, use_cache=True)
    following = torch.argmax(outputs.logits[:, -1, :], dim=-1, keepdim=True)
    mask = torch.cat([mask, torch.ones((1, 1), dtype=mask.dtype, device=mask.device)], dim=1)
    outputs = model(
        input_ids=following, attention_mask=mask, past_key_values=outputs.past_key_values, use_cache=True
    )
    following = torch.argmax(outputs.logits[:, -1, :], dim=-1, keepdim=True)
print(f"PEAKS {torch.cuda.max_memory_allocated()} {torch.cuda.max_memory_reserved()}")
