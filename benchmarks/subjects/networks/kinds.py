"""What the measured sets' networks share: where networks come from, batches, losses, optimizers.

Kept as measured, so that prediction and measurement are of one program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Model = tuple[Callable[[], nn.Module], Callable[[int], Any], Callable[[Any, Any], Any]]


def images(batch: int, size: int = 224, classes: int = 1000, channels: int = 3) -> Any:
    return (torch.randn(batch, channels, size, size),), torch.randint(0, classes, (batch,))


def masks(batch: int, size: int, classes: int) -> Any:
    return (torch.randn(batch, 3, size, size),), torch.randint(0, classes, (batch, size, size))


def volumes(batch: int, size: int, classes: int, channels: int = 1) -> Any:
    return (torch.randn(batch, channels, size, size, size),), torch.randint(
        0, classes, (batch, size, size, size)
    )


def clips(batch: int, frames: int = 16, size: int = 112, classes: int = 400) -> Any:
    return (torch.randn(batch, 3, frames, size, size),), torch.randint(0, classes, (batch,))


def tokens(batch: int, length: int, vocabulary: int) -> Any:
    return (torch.randint(0, vocabulary, (batch, length)),), torch.randint(0, vocabulary, (batch, length))


def labelled_tokens(batch: int, length: int, vocabulary: int, classes: int) -> Any:
    return (torch.randint(0, vocabulary, (batch, length)),), torch.randint(0, classes, (batch,))


def reconstruct(batch: int, size: int) -> Any:
    x = torch.randn(batch, 3, size, size)
    return (x,), torch.randn(batch, 3, size, size)


def cross_entropy(output: Any, target: Any) -> Any:
    return F.cross_entropy(output, target)


def per_token(output: Any, target: Any) -> Any:
    scores = output.logits if hasattr(output, "logits") else output
    return F.cross_entropy(scores.reshape(-1, scores.size(-1)), target.reshape(-1))


def by_logits(output: Any, target: Any) -> Any:
    return F.cross_entropy(output.logits, target)


def segmentation(output: Any, target: Any) -> Any:
    return F.cross_entropy(output["out"], target)


def googlenet_loss(output: Any, target: Any) -> Any:
    return F.cross_entropy(output if isinstance(output, torch.Tensor) else output.logits, target)


def mse(output: Any, target: Any) -> Any:
    return F.mse_loss(output, target)


def pooled(output: Any, target: Any) -> Any:
    return F.cross_entropy(output.last_hidden_state.mean(1), target)


def vision(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import torchvision

        namespaces = (torchvision.models, torchvision.models.segmentation, torchvision.models.video)
        return next(getattr(n, name) for n in namespaces if hasattr(n, name))(**options)

    return make


def language(model: str, config: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**options))

    return make


def medical(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        from monai.networks import nets

        return getattr(nets, name)(**options)

    return make


def timm(name: str, *, checkpointed: bool = False, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import timm

        model = timm.create_model(name, pretrained=False, **options)
        if checkpointed:
            model.set_grad_checkpointing(True)
        return model

    return make


OPT: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "sgdm": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4),
    "sgd_fused": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "adam_l2": lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=1e-2),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True),
    "adam_fused": lambda p: torch.optim.Adam(p, lr=1e-3, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-3),
    "radam": lambda p: torch.optim.RAdam(p, lr=1e-3),
    "adamax": lambda p: torch.optim.Adamax(p, lr=1e-3),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-3),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
    "rmsprop_centered": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9, centered=True),
    "asgd": lambda p: torch.optim.ASGD(p, lr=1e-3),
    "rprop": lambda p: torch.optim.Rprop(p, lr=1e-3),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-3),
}
