"""Models of the development set, as they were when it was measured: name -> (make_model, make_batch, loss).

Names and structure are kept as measured, so that prediction and measurement are of one program.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.subjects.networks.kinds import (
    OPT,
    Model,
    cross_entropy,
    images,
    language,
    medical,
    mse,
    per_token,
    tokens,
    vision,
)
from models import cnn, feedforward, linear_mnist

__all__ = ["OPT", "M"]


class CharLSTM(nn.Module):
    def __init__(self, v=1000, e=256, h=512):
        super().__init__()
        self.emb = nn.Embedding(v, e)
        self.lstm = nn.LSTM(e, h, num_layers=2, batch_first=True, dropout=0.1)
        self.fc = nn.Linear(h, v)

    def forward(self, x):
        y, _ = self.lstm(self.emb(x))
        return self.fc(y)


class UNet(nn.Module):
    def __init__(self, c=32, cin=3, cout=2):
        super().__init__()

        def blk(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1),
                nn.BatchNorm2d(o),
                nn.ReLU(True),
                nn.Conv2d(o, o, 3, padding=1),
                nn.BatchNorm2d(o),
                nn.ReLU(True),
            )

        self.d1, self.d2, self.d3, self.d4 = blk(cin, c), blk(c, 2 * c), blk(2 * c, 4 * c), blk(4 * c, 8 * c)
        self.u3, self.u2, self.u1 = (
            nn.ConvTranspose2d(8 * c, 4 * c, 2, 2),
            nn.ConvTranspose2d(4 * c, 2 * c, 2, 2),
            nn.ConvTranspose2d(2 * c, c, 2, 2),
        )
        self.e3, self.e2, self.e1 = blk(8 * c, 4 * c), blk(4 * c, 2 * c), blk(2 * c, c)
        self.out = nn.Conv2d(c, cout, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        d = self.d4(F.max_pool2d(c, 2))
        y = self.e3(torch.cat([self.u3(d), c], 1))
        y = self.e2(torch.cat([self.u2(y), b], 1))
        y = self.e1(torch.cat([self.u1(y), a], 1))
        return self.out(y)


class EncoderCls(nn.Module):
    def __init__(self, d=512, L=6, h=8, v=5000, drop=0.1):
        super().__init__()
        self.emb = nn.Embedding(v, d)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, h, 4 * d, drop, batch_first=True), L)
        self.fc = nn.Linear(d, v)

    def forward(self, x):
        return self.fc(self.enc(self.emb(x)))


class CkptMLP(nn.Module):
    def __init__(self, d=2048, n=8):
        super().__init__()
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.LayerNorm(d))
                for _ in range(n)
            ]
        )

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        for b in self.blocks:
            x = x + checkpoint(b, x, use_reentrant=False)
        return x


def of_documents(module: ModuleType) -> Callable[[int], Any]:
    """A document's batch, with its one target."""

    def make(batch: int) -> Any:
        inputs, (target,) = module.make_batch(batch)
        return inputs, target

    return make


UNETR = {
    "in_channels": 1, "out_channels": 14, "img_size": (96, 96, 96), "feature_size": 16, "hidden_size": 768, "mlp_dim": 3072,
    "num_heads": 12, "proj_type": "perceptron", "norm_name": "instance", "res_block": True, "dropout_rate": 0.0,
}  # fmt: skip
LLAMA = {
    "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4,
    "vocab_size": 8000, "use_cache": False,
}  # fmt: skip
M: dict[str, Model] = {
    "seed_cnn": (cnn.make_model, of_documents(cnn), cross_entropy),
    "mnist_fc": (linear_mnist.make_model, of_documents(linear_mnist), cross_entropy),
    "seed_ff": (lambda: feedforward.FeedForward(4, 2000, 1000), lambda b: ((torch.randn(b, 2000),), torch.randn(b, 2000)), mse),
    "lstm": (CharLSTM, lambda b: tokens(b, 128, 1000), per_token),
    "unet": (UNet, lambda b: ((torch.randn(b, 3, 256, 256),), torch.randint(0, 2, (b, 256, 256))), cross_entropy),
    "encoder": (EncoderCls, lambda b: tokens(b, 128, 5000), per_token),
    "ckpt_mlp": (CkptMLP, lambda b: ((torch.randn(b, 2048),), torch.randn(b, 2048)), mse),
    "llama_tiny": (language("LlamaForCausalLM", "LlamaConfig", **LLAMA), lambda b: tokens(b, 256, 8000), per_token),
    "gpt2": (language("GPT2LMHeadModel", "GPT2Config", use_cache=False), lambda b: tokens(b, 256, 50257), per_token),
    "bert": (language("BertForMaskedLM", "BertConfig"), lambda b: tokens(b, 128, 30522), per_token),
    "unetr": (medical("UNETR", **UNETR), lambda b: ((torch.randn(b, 1, 96, 96, 96),), torch.randint(0, 14, (b, 96, 96, 96))), cross_entropy),
}  # fmt: skip
for _n in [
    "resnet18",
    "resnet50",
    "vgg16",
    "densenet121",
    "mobilenet_v3_large",
    "efficientnet_b0",
    "convnext_tiny",
    "vit_b_16",
    "swin_t",
    "alexnet",
    "regnet_y_400mf",
    "shufflenet_v2_x1_0",
    "squeezenet1_1",
    "resnext50_32x4d",
    "mnasnet1_0",
]:
    M[_n] = (vision(_n), images, cross_entropy)
