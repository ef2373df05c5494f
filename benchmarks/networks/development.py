"""Models of the development set, as they were when it was measured: name -> (make_model, make_batch, loss).

Names and structure are kept as measured, so that prediction and measurement are of one program.
"""

import torch
import torch.nn.functional as F
from torch import nn


class SeedCNN(nn.Module):
    """Seed 000: conv 3x3x8, avgpool 2, fc 10."""

    def __init__(self, h=224, w=224):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.pool = nn.AvgPool2d(2, 2)
        self.fc = nn.Linear(8 * ((h - 2) // 2) * ((w - 2) // 2), 10)

    def forward(self, x):
        x = self.conv(x)
        x = self.pool(x)
        x = x.view(x.size(0), -1)
        return self.fc(x)


class SimpleNet(nn.Module):
    """Seed 004: MNIST one linear layer."""

    def __init__(self, i=784, o=10):
        super().__init__()
        self.fc = nn.Linear(i, o)

    def forward(self, x):
        return self.fc(x)


class SeedFF(nn.Module):
    """Seed 001: Linear-ReLU-Linear-Sigmoid blocks."""

    def __init__(self, n=4, i=2000, h=1000):
        super().__init__()
        self.net = nn.Sequential(
            *[nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, i), nn.Sigmoid()) for _ in range(n)]
        )

    def forward(self, x):
        return self.net(x)


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


def _img(b, s=224, n=1000, c=3):
    return (torch.randn(b, c, s, s),), torch.randint(0, n, (b,))


def _tok(b, t, v):
    return (torch.randint(0, v, (b, t)),), torch.randint(0, v, (b, t))


def ce(out, y):
    return F.cross_entropy(out, y)


def ce_tok(out, y):
    return F.cross_entropy(out.reshape(-1, out.size(-1)), y.reshape(-1))


def mse(out, y):
    return F.mse_loss(out, y)


def hf_lm(out, y):
    lg = out.logits
    return F.cross_entropy(lg.reshape(-1, lg.size(-1)), y.reshape(-1))


def tv(name, **kw):
    def f():
        import torchvision.models as m

        return getattr(m, name)(**kw)

    return f


def hf(kind, **kw):
    def f():
        import transformers as t

        if kind == "gpt2":
            c = t.GPT2Config(use_cache=False, **kw)
            return t.GPT2LMHeadModel(c)
        if kind == "bert":
            c = t.BertConfig(**kw)
            return t.BertForMaskedLM(c)
        if kind == "llama":
            c = t.LlamaConfig(use_cache=False, **kw)
            return t.LlamaForCausalLM(c)
        if kind == "vit":
            c = t.ViTConfig(**kw)
            return t.ViTForImageClassification(c)
        if kind == "t5":
            c = t.T5Config(**kw)
            return t.T5EncoderModel(c)
        raise KeyError(kind)

    return f


def unetr():
    from monai.networks.nets import UNETR

    return UNETR(
        in_channels=1,
        out_channels=14,
        img_size=(96, 96, 96),
        feature_size=16,
        hidden_size=768,
        mlp_dim=3072,
        num_heads=12,
        proj_type="perceptron",
        norm_name="instance",
        res_block=True,
        dropout_rate=0.0,
    )


M = {
    "seed_cnn": (SeedCNN, lambda b: ((torch.randn(b, 3, 224, 224),), torch.randn(b, 10)), ce),
    "mnist_fc": (SimpleNet, lambda b: ((torch.randn(b, 784),), torch.randint(0, 10, (b,))), ce),
    "seed_ff": (SeedFF, lambda b: ((torch.randn(b, 2000),), torch.randn(b, 2000)), mse),
    "lstm": (CharLSTM, lambda b: _tok(b, 128, 1000), ce_tok),
    "unet": (UNet, lambda b: ((torch.randn(b, 3, 256, 256),), torch.randint(0, 2, (b, 256, 256))), ce),
    "encoder": (EncoderCls, lambda b: _tok(b, 128, 5000), ce_tok),
    "ckpt_mlp": (CkptMLP, lambda b: ((torch.randn(b, 2048),), torch.randn(b, 2048)), mse),
    "llama_tiny": (
        hf(
            "llama",
            hidden_size=512,
            intermediate_size=1408,
            num_hidden_layers=6,
            num_attention_heads=8,
            num_key_value_heads=4,
            vocab_size=8000,
        ),
        lambda b: _tok(b, 256, 8000),
        hf_lm,
    ),
    "gpt2": (hf("gpt2"), lambda b: _tok(b, 256, 50257), hf_lm),
    "bert": (hf("bert"), lambda b: _tok(b, 128, 30522), hf_lm),
    "unetr": (unetr, lambda b: ((torch.randn(b, 1, 96, 96, 96),), torch.randint(0, 14, (b, 96, 96, 96))), ce),
}
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
    M[_n] = (tv(_n), _img, ce)

OPT = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "sgdm": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-3),
}
