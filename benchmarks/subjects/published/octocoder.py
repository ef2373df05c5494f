"""What "Optimizing LLMs for Speed and Memory" generates with: `octocoder.py bfloat16|8bit|4bit`: OctoCoder, 20 words and 60 new ones.

The model held a mask of all positions then (transformers 4.34, GPTBigCodeModel: "bias").
"""

import sys

import torch
from transformers import BitsAndBytesConfig, GPTBigCodeConfig, GPTBigCodeForCausalLM

how = sys.argv[1]
config = GPTBigCodeConfig(
    vocab_size=49152, n_positions=8192, n_embd=6144, n_layer=40, n_head=48, n_inner=24576, multi_query=True, pad_token_id=0,
    attn_implementation="eager",
)  # fmt: skip
torch.set_default_dtype(torch.bfloat16 if how == "bfloat16" else torch.float16)
with torch.device("meta" if how != "bfloat16" else "cuda"):
    model = GPTBigCodeForCausalLM(config)
if how != "bfloat16":
    from transformers.integrations import replace_with_bnb_linear

    quantized = BitsAndBytesConfig(
        load_in_8bit=how == "8bit", load_in_4bit=how == "4bit", bnb_4bit_compute_dtype=torch.float32
    )
    model = replace_with_bnb_linear(model, modules_to_not_convert=["lm_head"], quantization_config=quantized)
    model.to_empty(device="cpu").to("cuda")
model.transformer.register_buffer(
    "bias", torch.ones((8192, 8192), dtype=torch.bool, device="cuda").tril(), persistent=False
)
model.eval()
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
ids = torch.randint(1, 49152, (1, 20)).to("cuda")
model.generate(
    ids, attention_mask=torch.ones_like(ids), max_new_tokens=60, min_new_tokens=60, do_sample=False
)
print(f"PEAKS {torch.cuda.max_memory_allocated()} {torch.cuda.max_memory_reserved()}")
