"""An encoder and decoder of transformers (BART or T5): training with labels, then generation with beams."""

import argparse

import torch
from transformers import BartConfig, BartForConditionalGeneration, T5Config, T5ForConditionalGeneration


def network(args: argparse.Namespace) -> torch.nn.Module:
    if args.model == "bart":
        return BartForConditionalGeneration(
            BartConfig(
                vocab_size=args.vocabulary, d_model=args.width, encoder_layers=args.layers, decoder_layers=args.layers,
                encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=4 * args.width,
                decoder_ffn_dim=4 * args.width, max_position_embeddings=512,
            )
        )  # fmt: skip
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=args.vocabulary, d_model=args.width, d_kv=args.width // 8, d_ff=4 * args.width,
            num_layers=args.layers, num_heads=8, decoder_start_token_id=0,
        )
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="bart", choices=["bart", "t5"])
    parser.add_argument("--vocabulary", type=int, default=32128)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--new", type=int, default=24)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = network(args).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(args.steps):
        source = torch.randint(3, args.vocabulary, (args.batch, args.length - 8 * step)).to(device)
        labels = torch.randint(3, args.vocabulary, (args.batch, args.length // 2)).to(device)
        loss = model(input_ids=source, attention_mask=torch.ones_like(source), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item())
    model.eval()
    source = torch.randint(3, args.vocabulary, (args.batch, args.length), device=device)
    written = model.generate(
        source, attention_mask=torch.ones_like(source), num_beams=args.beams, max_new_tokens=args.new,
        min_new_tokens=args.new, do_sample=False, early_stopping=True,
    )  # fmt: skip
    print("written", written.shape[0])


if __name__ == "__main__":
    main()
