"""Speech: convolutions, a bidirectional LSTM and CTC; or wav2vec 2.0 of transformers with CTC on raw sound."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Listener(nn.Module):
    """Deep Speech 2's plan: two convolutions over time and frequency, recurrent layers, a score a time step."""

    def __init__(self, features: int, hidden: int, characters: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 32, (11, 5), (2, 2), (5, 2)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20, inplace=True),
            nn.Conv2d(32, 32, (11, 5), (1, 2), (5, 2)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20, inplace=True),
        )  # fmt: skip
        self.recurrent = nn.LSTM(
            32 * (features // 4), hidden, 3, bidirectional=True, batch_first=True, dropout=0.1
        )
        self.scores = nn.Linear(2 * hidden, characters)

    def forward(self, sound):
        x = self.convolutions(sound.transpose(1, 2).unsqueeze(1))
        x = x.permute(0, 2, 1, 3).flatten(2)
        return self.scores(self.recurrent(x)[0])


def listener(args: argparse.Namespace, device: str) -> None:
    model = Listener(80, args.hidden, 32).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(args.steps):
        frames = args.frames - 50 * step
        sound = torch.randn(args.batch, 80, frames).to(device)
        heard = torch.full((args.batch,), (frames + 1) // 2) - torch.arange(args.batch) % 20
        words = torch.randint(1, 32, (args.batch, args.characters))
        lengths = torch.full((args.batch,), args.characters) - torch.arange(args.batch) % 7
        likely = F.log_softmax(model(sound), -1).transpose(0, 1)
        loss = F.ctc_loss(likely, words.to(device), heard.to(device), lengths.to(device), zero_infinity=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        optimizer.zero_grad()
        guess = likely.argmax(-1).transpose(0, 1).cpu()
        print(step, loss.item(), tuple(guess.shape))


def wav2vec(args: argparse.Namespace, device: str) -> None:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    config = Wav2Vec2Config(
        vocab_size=32, hidden_size=args.hidden, num_hidden_layers=4, num_attention_heads=8, intermediate_size=4 * args.hidden,
        conv_dim=(256,) * 7, num_conv_pos_embeddings=64, mask_time_prob=0.0, layerdrop=0.0, ctc_loss_reduction="mean",
        pad_token_id=0,
    )  # fmt: skip
    model = Wav2Vec2ForCTC(config).to(device).train()
    model.freeze_feature_encoder()
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-4)
    for step in range(args.steps):
        sound = torch.randn(args.batch, 160 * args.frames).to(device)
        labels = torch.randint(1, 32, (args.batch, args.characters)).to(device)
        loss = model(sound, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="listener", choices=["listener", "wav2vec"])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--frames", type=int, default=800)
    parser.add_argument("--characters", type=int, default=60)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    (listener if args.model == "listener" else wav2vec)(args, device)


if __name__ == "__main__":
    main()
