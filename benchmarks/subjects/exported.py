"""Sixteen small networks of as many architectures, with random weights, for PyTorch's exporters to write (`onnx/exports.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Made = tuple[Any, Callable[[int], tuple[Any, ...]]]


def _image(*size: int) -> Callable[[int], tuple[Any, ...]]:
    import torch

    return lambda batch: (torch.zeros(batch, *size),)


def _tokens(length: int) -> Callable[[int], tuple[Any, ...]]:
    import torch

    return lambda batch: (torch.ones(batch, length, dtype=torch.int64),)


def _torchvision(name: str) -> Callable[[], Made]:
    def make() -> Made:
        import torchvision

        return getattr(torchvision.models, name)(weights=None), _image(3, 64, 64)

    return make


def _densenet() -> Made:
    from torchvision.models import DenseNet

    return DenseNet(16, (2, 3, 3, 2), 32), _image(3, 64, 64)


def _convnext() -> Made:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    blocks = [CNBlockConfig(32, 64, 2), CNBlockConfig(64, 128, 2), CNBlockConfig(128, None, 1)]
    return ConvNeXt(blocks), _image(3, 64, 64)


def _vit() -> Made:
    from torchvision.models import VisionTransformer

    return VisionTransformer(64, 16, 2, 4, 64, 128), _image(3, 64, 64)


def _swin() -> Made:
    from torchvision.models import SwinTransformer

    return SwinTransformer([4, 4], 32, [2, 2], [2, 4], [4, 4]), _image(3, 64, 64)


def _unet() -> Made:
    from monai.networks.nets import UNet

    return UNet(2, 1, 2, (8, 16, 32), (2, 2), num_res_units=1), _image(1, 64, 64)


def _lstm() -> Made:
    import torch
    from torch import nn

    class Tagger(nn.Module):
        """Words, two recurrent layers in both directions, a label for each."""

        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(500, 64)
            self.layers = nn.LSTM(64, 48, 2, bidirectional=True, batch_first=True)
            self.labels = nn.Linear(96, 12)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.labels(self.layers(self.words(tokens))[0])

    return Tagger(), _tokens(20)


def _transformers(model: str, config: str, **sizes: Any) -> Callable[[], Made]:
    def make() -> Made:
        import torch
        import transformers
        from torch import nn

        class First(nn.Module):
            """The model's first result alone."""

            def __init__(self) -> None:
                super().__init__()
                made = getattr(transformers, config)(**sizes)
                self.model = getattr(transformers, model)(made)

            def forward(self, tokens: torch.Tensor) -> torch.Tensor:
                return self.model(tokens, return_dict=False, **kept)[0]

        kept = {"use_cache": False} if "CausalLM" in model or "LMHead" in model else {}
        return First(), _tokens(32)

    return make


_SMALL = {"vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
ARCHITECTURES: dict[str, Callable[[], Made]] = {
    "resnet18": _torchvision("resnet18"),
    "mobilenet_v3_small": _torchvision("mobilenet_v3_small"),
    "shufflenet_v2_x0_5": _torchvision("shufflenet_v2_x0_5"),
    "squeezenet1_1": _torchvision("squeezenet1_1"),
    "mnasnet0_5": _torchvision("mnasnet0_5"),
    "efficientnet_b0": _torchvision("efficientnet_b0"),
    "regnet_x_400mf": _torchvision("regnet_x_400mf"),
    "densenet": _densenet,
    "convnext": _convnext,
    "vit": _vit,
    "swin": _swin,
    "unet": _unet,
    "lstm": _lstm,
    "bert": _transformers("BertForMaskedLM", "BertConfig", **_SMALL, intermediate_size=128),
    "gpt2": _transformers("GPT2LMHeadModel", "GPT2Config", vocab_size=500, n_embd=64, n_layer=2, n_head=4),
    "llama": _transformers(
        "LlamaForCausalLM", "LlamaConfig", **_SMALL, num_key_value_heads=2, intermediate_size=128
    ),
}
