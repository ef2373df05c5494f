"""peft: low-rank adapters on a Llama-shaped model made on the host, and then generation, greedy, sampled or by beams."""

import argparse

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=1000)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--write", default="", choices=["", "greedy", "sample", "beams", "static"])
    args = parser.parse_args()
    config = LlamaConfig(
        vocab_size=args.vocabulary, hidden_size=args.hidden, intermediate_size=11 * args.hidden // 4,
        num_hidden_layers=args.layers, num_attention_heads=args.heads,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=args.rank, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    )
    model.cuda().train()
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    for step in range(args.steps):
        ids = torch.randint(0, args.vocabulary, (args.batch, args.length), device="cuda")
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item())
    if args.write:
        how = {
            "greedy": {},
            "sample": {"do_sample": True, "top_k": 5},
            "beams": {"num_beams": 3},
            "static": {"cache_implementation": "static", "disable_compile": True},
        }[args.write]
        model.eval()
        ids = torch.randint(0, args.vocabulary, (args.batch, 8), device="cuda")
        written = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=4,
            min_new_tokens=4,
            pad_token_id=0,
            **how,
        )
        print(tuple(written.shape))


if __name__ == "__main__":
    main()
