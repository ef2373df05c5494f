"""Networks of the third held-out set that nobody ships: text, sound, frames and series, as people write them themselves.

Attention, recurrence, transducers, dilated, spectral and state-space layers. Written before any of them was predicted or
measured.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class AttentiveTranslator(nn.Module):
    """A bidirectional GRU reads, a GRU cell with additive attention writes one token after the other."""

    def __init__(self, words: int = 6000, d: int = 256) -> None:
        super().__init__()
        self.source, self.target = (
            nn.Embedding(words, d, padding_idx=0),
            nn.Embedding(words, d, padding_idx=0),
        )
        self.encoder, self.cell = nn.GRU(d, d, batch_first=True, bidirectional=True), nn.GRUCell(3 * d, d)
        self.enter, self.key, self.query, self.score = (
            nn.Linear(2 * d, d),
            nn.Linear(2 * d, d),
            nn.Linear(d, d),
            nn.Linear(d, 1),
        )
        self.drop, self.out = nn.Dropout(0.2), nn.Linear(4 * d, words)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        memory, last = self.encoder(self.drop(self.source(x)))
        state = torch.tanh(self.enter(torch.cat([last[0], last[1]], -1)))
        keys, words, told = self.key(memory), self.target(y), []
        for place in range(y.shape[1]):
            weights = torch.softmax(self.score(torch.tanh(keys + self.query(state)[:, None])).squeeze(-1), -1)
            context = torch.bmm(weights[:, None], memory).squeeze(1)
            state = self.cell(torch.cat([words[:, place], context], -1), state)
            told.append(self.out(torch.cat([state, context, words[:, place]], -1)))
        return torch.stack(told, 1)


class Transducer(nn.Module):
    """An LSTM over sound, one over labels, and a joint network over all pairs of frames and labels."""

    def __init__(self, labels: int = 64, d: int = 320) -> None:
        super().__init__()
        self.sub = nn.Sequential(nn.Conv1d(80, d, 3, 2, 1), nn.ReLU(), nn.Conv1d(d, d, 3, 2, 1), nn.ReLU())
        self.encoder, self.embedding = (
            nn.LSTM(d, d, 3, batch_first=True, dropout=0.1),
            nn.Embedding(labels, d),
        )
        self.predictor, self.joint = nn.LSTM(d, d, batch_first=True), nn.Linear(d, labels)
        self.a, self.b = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, sound: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        frames = self.encoder(self.sub(sound).transpose(1, 2))[0]
        words = self.predictor(self.embedding(labels))[0]
        return self.joint(torch.tanh(self.a(frames)[:, :, None] + self.b(words)[:, None])).log_softmax(-1)


def transducer_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The likeliest label of each pair, in place of the sum over alignments."""
    picked = output.gather(-1, target[:, None, :, None].expand(-1, output.shape[1], -1, 1)).squeeze(-1)
    return -torch.logsumexp(picked, 1).mean()


class TiedLanguageModel(nn.Module):
    """An LSTM whose output layer is its embedding, with dropout between."""

    def __init__(self, words: int = 12000, d: int = 400) -> None:
        super().__init__()
        self.embedding, self.lstm, self.out = (
            nn.Embedding(words, d),
            nn.LSTM(d, d, 2, batch_first=True, dropout=0.3),
            nn.Linear(d, words),
        )
        self.out.weight = self.embedding.weight
        self.drop = nn.Dropout(0.4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.drop(self.lstm(self.drop(self.embedding(x)))[0]))


class WaveNet(nn.Module):
    """Dilated causal convolutions with gated activations and skip sums."""

    def __init__(self, c: int = 48, rounds: int = 2) -> None:
        super().__init__()
        self.enter, self.steps = nn.Conv1d(1, c, 1), [2**i for i in range(8)] * rounds
        self.filters = nn.ModuleList([nn.Conv1d(c, 2 * c, 2, dilation=d) for d in self.steps])
        self.keep = nn.ModuleList([nn.Conv1d(c, c, 1) for _ in self.steps])
        self.skip = nn.ModuleList([nn.Conv1d(c, 128, 1) for _ in self.steps])
        self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(128, 128, 1), nn.ReLU(), nn.Conv1d(128, 256, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, total = self.enter(x), torch.zeros(())
        for number, step in enumerate(self.steps):
            a, b = self.filters[number](F.pad(x, (step, 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            total = self.skip[number](y) if number == 0 else total + self.skip[number](y)
            x = x + self.keep[number](y)
        return self.end(total)


class ConvolutionalLSTM(nn.Module):
    """Two convolutional LSTM layers over frames."""

    def __init__(self, c: int = 32) -> None:
        super().__init__()
        self.gates = nn.ModuleList(
            [nn.Conv2d(1 + c, 4 * c, 3, padding=1), nn.Conv2d(2 * c, 4 * c, 3, padding=1)]
        )
        self.out, self.c = nn.Conv2d(c, 1, 3, padding=1), c

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, steps, _, h, w = x.shape
        states = [(x.new_zeros(b, self.c, h, w), x.new_zeros(b, self.c, h, w)) for _ in self.gates]
        told = []
        for step in range(steps):
            y = x[:, step]
            for number, gates in enumerate(self.gates):
                hidden, cell = states[number]
                i, f, o, g = gates(torch.cat([y, hidden], 1)).chunk(4, 1)
                cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
                y = torch.sigmoid(o) * torch.tanh(cell)
                states[number] = (y, cell)
            told.append(self.out(y))
        return torch.stack(told, 1)


class RotaryBlock(nn.Module):
    """RMS norm, rotary grouped-query attention, a gated feed-forward layer."""

    def __init__(self, d: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, d // heads
        self.norm1, self.norm2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.q, self.kv, self.o = (
            nn.Linear(d, d, bias=False),
            nn.Linear(d, 2 * groups * self.size, bias=False),
            nn.Linear(d, d, bias=False),
        )
        self.gate, self.up, self.down = (
            nn.Linear(d, 3 * d, bias=False),
            nn.Linear(d, 3 * d, bias=False),
            nn.Linear(3 * d, d, bias=False),
        )

    def turn(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        y = self.norm1(x)
        q = self.q(y).view(b, t, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(y).view(b, t, 2 * self.groups, self.size).transpose(1, 2).chunk(2, 1)
        q, k = self.turn(q, cos, sin), self.turn(k, cos, sin)
        k, v = (each.repeat_interleave(self.heads // self.groups, 1) for each in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class RotaryTransformer(nn.Module):
    """A decoder of such blocks, checkpointed if asked."""

    def __init__(self, words: int = 10000, d: int = 512, layers: int = 6, checkpointed: bool = False) -> None:
        super().__init__()
        self.embedding, self.norm, self.out = (
            nn.Embedding(words, d),
            nn.RMSNorm(d),
            nn.Linear(d, words, bias=False),
        )
        self.blocks, self.checkpointed = (
            nn.ModuleList([RotaryBlock(d, 8, 2) for _ in range(layers)]),
            checkpointed,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)
        rates = 10000 ** (-torch.arange(0, 64, 2, device=x.device, dtype=torch.float32) / 64)
        angles = torch.outer(places, rates).repeat(1, 2)
        x = self.embedding(x)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = (
                checkpoint(block, x, cos, sin, use_reentrant=False)
                if self.checkpointed
                else block(x, cos, sin)
            )
        return self.out(self.norm(x))


class Experts(nn.Module):
    """A dense mixture of experts: every expert sees every token, two are counted."""

    def __init__(self, d: int = 256, experts: int = 8) -> None:
        super().__init__()
        self.enter, self.router = nn.Linear(64, d), nn.Linear(d, experts)
        self.w1, self.w2 = (
            nn.Parameter(0.02 * torch.randn(experts, d, 4 * d)),
            nn.Parameter(0.02 * torch.randn(experts, 4 * d, d)),
        )
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        scores = torch.softmax(self.router(x), -1)
        best, which = scores.topk(2, -1)
        weights = torch.zeros_like(scores).scatter(-1, which, best / best.sum(-1, keepdim=True))
        hidden = F.gelu(torch.einsum("btd,edf->btef", x, self.w1))
        y = torch.einsum("btef,efd,bte->btd", hidden, self.w2, weights)
        return self.out(self.norm(x + y).mean(1))


class TextRecogniser(nn.Module):
    """Convolutions down to one row of pixels, a bidirectional LSTM, log-probabilities over time for CTC."""

    def __init__(self, labels: int = 80) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, o, pool in (
            (1, 64, (2, 2)),
            (64, 128, (2, 2)),
            (128, 256, None),
            (256, 256, (2, 1)),
            (256, 512, (2, 1)),
            (512, 512, (2, 1)),
        ):
            layers += [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(True)]
            if pool:
                layers.append(nn.MaxPool2d(pool))
        self.trunk, self.lstm, self.out = (
            nn.Sequential(*layers),
            nn.LSTM(512, 256, 2, bidirectional=True),
            nn.Linear(512, labels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.trunk(x).mean(2).permute(2, 0, 1)
        return self.out(self.lstm(y)[0]).log_softmax(-1)


class Forecaster(nn.Module):
    """N-BEATS: stacks of linear layers that explain what the ones before left over."""

    def __init__(self, back: int = 168, ahead: int = 24, d: int = 512) -> None:
        super().__init__()
        self.back, self.ahead = back, ahead
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Linear(back, d),
                    nn.ReLU(),
                    nn.Linear(d, d),
                    nn.ReLU(),
                    nn.Linear(d, d),
                    nn.ReLU(),
                    nn.Linear(d, back + ahead),
                )
                for _ in range(6)
            ]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(x.shape[0], self.ahead, device=x.device, dtype=x.dtype)
        for block in self.blocks:
            seen, ahead = block(x).split([self.back, self.ahead], -1)
            x, total = x - seen, total + ahead
        return total


class KeywordSpotter(nn.Module):
    """The spectrogram of sound by torch.stft, then depthwise separable convolutions."""

    def __init__(self, c: int = 96) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(400))
        self.register_buffer("bank", torch.rand(201, 64))
        self.enter = nn.Sequential(nn.Conv2d(1, c, (10, 4), (2, 2), (5, 1)), nn.BatchNorm2d(c), nn.ReLU())
        self.blocks = nn.Sequential(
            *[
                nn.Sequential(
                    nn.Conv2d(c, c, 3, padding=1, groups=c),
                    nn.BatchNorm2d(c),
                    nn.ReLU(),
                    nn.Conv2d(c, c, 1),
                    nn.BatchNorm2d(c),
                    nn.ReLU(),
                )
                for _ in range(4)
            ]
        )
        self.out = nn.Linear(c, 35)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.stft(x, 400, 160, window=self.window, return_complex=True).abs().pow(2)
        mel = torch.log(spectrum.transpose(1, 2) @ self.bank + 1e-6)
        return self.out(self.blocks(self.enter(mel[:, None])).mean((2, 3)))


class StateSpace(nn.Module):
    """A diagonal state-space layer as a long convolution by FFT, between gated linear layers."""

    def __init__(self, d: int = 128, states: int = 32, layers: int = 3) -> None:
        super().__init__()
        self.enter, self.out = nn.Linear(12, d), nn.Linear(d, 5)
        self.decay = nn.ParameterList([nn.Parameter(torch.rand(d, states)) for _ in range(layers)])
        self.input = nn.ParameterList([nn.Parameter(torch.randn(d, states) / states) for _ in range(layers)])
        self.mix, self.norms = (
            nn.ModuleList([nn.Linear(d, 2 * d) for _ in range(layers)]),
            nn.ModuleList([nn.LayerNorm(d) for _ in range(layers)]),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, length = self.enter(x), x.shape[1]
        steps = torch.arange(length, device=x.device)
        for decay, b, mix, norm in zip(self.decay, self.input, self.mix, self.norms, strict=True):
            kernel = (b[..., None] * torch.exp(-F.softplus(decay)[..., None] * steps)).sum(1)
            u = norm(x).transpose(1, 2).float()
            y = torch.fft.irfft(
                torch.fft.rfft(u, n=2 * length) * torch.fft.rfft(kernel.float(), n=2 * length), n=2 * length
            )[..., :length]
            x = x + F.glu(mix(F.gelu(y.transpose(1, 2).to(x.dtype))), -1)
        return self.out(x.mean(1))
