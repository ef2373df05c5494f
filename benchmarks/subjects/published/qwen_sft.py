"""What FakeGPU's validation trains: `qwen_sft.py 0.8B|2B full|lora LENGTH [checkpoint] [accumulate]`.

Qwen3.5's text model in bfloat16, scaled_dot_product_attention, no cache, one text of random words whose first half is not learnt;
AdamW one tensor at a time, one step. LoRA: PEFT, rank 8, every linear layer. Linear attention is computed in chunks of 64 words, a row
of a chunk's triangle after the other, as transformers 5.12 does it (`torch_chunk_gated_delta_rule`); later ones do it otherwise.
"""

import sys

import torch
import torch.nn.functional as F
from transformers.models.qwen3_5 import Qwen3_5ForCausalLM, Qwen3_5TextConfig, modeling_qwen3_5


def in_chunks(query, key, value, g, beta, chunk_size=64, use_qk_l2norm_in_kernel=False, **_):  # fmt: skip
    """The gated delta rule in float32: what is asked of the allocator, and in which order, is transformers 5.12's."""
    kind = query.dtype
    if use_qk_l2norm_in_kernel:
        query, key = (
            modeling_qwen3_5.l2norm(query, dim=-1, eps=1e-6),
            modeling_qwen3_5.l2norm(key, dim=-1, eps=1e-6),
        )
    query, key, value, beta, g = [
        one.transpose(1, 2).contiguous().to(torch.float32) for one in (query, key, value, beta, g)
    ]
    length, missing = key.shape[2], -key.shape[2] % chunk_size
    query, key, value = (
        F.pad(query, (0, 0, 0, missing)),
        F.pad(key, (0, 0, 0, missing)),
        F.pad(value, (0, 0, 0, missing)),
    )
    beta, g = F.pad(beta, (0, missing)), F.pad(g, (0, missing))
    query = query * query.shape[-1] ** -0.5
    weighted_value, weighted_key = value * beta.unsqueeze(-1), key * beta.unsqueeze(-1)
    query, key, value, weighted_key, weighted_value = [
        one.reshape(*one.shape[:2], -1, chunk_size, one.shape[-1])
        for one in (query, key, value, weighted_key, weighted_value)
    ]
    g = g.reshape(*g.shape[:2], -1, chunk_size)
    upper = torch.triu(torch.ones(chunk_size, chunk_size, dtype=torch.bool, device=query.device))
    g = g.cumsum(dim=-1)
    decay = ((g.unsqueeze(-1) - g.unsqueeze(-2)).tril().exp().float()).tril()
    inverse = -((weighted_key @ key.transpose(-1, -2)) * decay).masked_fill(upper, 0)
    for row in range(1, chunk_size):
        now, above = inverse[..., row, :row].clone(), inverse[..., :row, :row].clone()
        inverse[..., row, :row] = now + (now.unsqueeze(-1) * above).sum(-2)
    inverse = inverse + torch.eye(chunk_size, dtype=inverse.dtype, device=inverse.device)
    value = inverse @ weighted_value
    fading = inverse @ (weighted_key * g.exp().unsqueeze(-1))
    state = torch.zeros(
        *key.shape[:2], key.shape[-1], value.shape[-1], dtype=value.dtype, device=value.device
    )
    out = torch.zeros_like(value)
    for chunk in range(key.shape[2]):
        q, k, v = query[:, :, chunk], key[:, :, chunk], value[:, :, chunk]
        inverse = q @ k.transpose(-1, -2) * decay[:, :, chunk]
        before = fading[:, :, chunk] @ state
        new = v - before
        across = (q * g[:, :, chunk, :, None].exp()) @ state
        out[:, :, chunk] = across + inverse @ new
        left = (k * (g[:, :, chunk, -1, None] - g[:, :, chunk]).exp()[..., None]).transpose(-1, -2)
        state = state * g[:, :, chunk, -1, None, None].exp() + left @ new
    out = out.reshape(*out.shape[:2], -1, out.shape[-1])[:, :, :length]
    return out.transpose(1, 2).contiguous().to(kind), None


modeling_qwen3_5.torch_chunk_gated_delta_rule = in_chunks

WIDTHS = {"0.8B": (1024, 3584), "2B": (2048, 6144)}
which, method, length, flags = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
hidden, inner = WIDTHS[which]
config = Qwen3_5TextConfig(
    hidden_size=hidden, intermediate_size=inner, num_hidden_layers=24, num_attention_heads=8, num_key_value_heads=2, head_dim=256,
    linear_num_key_heads=16, linear_num_value_heads=16, tie_word_embeddings=True, attn_implementation="sdpa",
)  # fmt: skip
config.use_cache = False
model = Qwen3_5ForCausalLM(config).to(torch.bfloat16)
if method == "lora":
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(
        model,
        LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, task_type="CAUSAL_LM", target_modules="all-linear"),
    )
if "checkpoint" in flags:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if method == "lora":
        model.enable_input_require_grads()
model.train()
model.to("cuda:0")
batches = []
for _ in range(2 if "accumulate" in flags else 1):
    ids = torch.randint(100, config.vocab_size, (1, length))
    labels = ids.clone()
    labels[:, : length // 2] = -100
    places = torch.arange(length).view(1, 1, length).expand(3, 1, length).clone()
    batches.append(
        {"input_ids": ids.to("cuda:0"), "labels": labels.to("cuda:0"), "position_ids": places.to("cuda:0")}
    )
optimizer = torch.optim.AdamW(
    [one for one in model.parameters() if one.requires_grad], lr=1e-5, foreach=False
)
for batch in batches:
    outputs = model(**batch, use_cache=False)
    loss = outputs.loss / len(batches)
    loss.backward()
optimizer.step()
print(f"PEAKS {torch.cuda.max_memory_allocated()} {torch.cuda.max_memory_reserved()}")
