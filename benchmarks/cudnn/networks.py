"""The networks whose convolutions cuDNN is asked about, by the package that has them, with usual input sizes.

`NETWORKS` maps a package to a function that yields `Network`s: every model that torchvision and timm list, MONAI's and
Diffusers' with the settings of their examples, and what Transformers' automatic classes for images, video and sound name;
"handwritten" are networks no package lists.
Repeated layers without convolutions are left out where a setting says how many there are. Packages are imported when
their networks are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.networks.handwritten import handwritten

_BATCH = 2
# Stands in the names of networks at a size that is not their own.
OTHER_SIZE = " at "
_TIMM_SIZES = (224, 256, 160, 192, 288, 240, 128, 320, 384, 300)


@dataclass(frozen=True)
class Network:
    """A network at one input size: how to make it, and its arguments (a tuple, or a dictionary of named ones)."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], Any]
    seconds: int = 90


def _of_shapes(*shapes: tuple[int, ...]) -> Callable[[], Any]:
    return lambda: tuple(torch.empty(*shape) for shape in shapes)


class _Detector(nn.Module):
    """The convolutions of a torchvision detector; what lies between them depends on values."""

    def __init__(self, model: Any, two_layers: bool) -> None:
        super().__init__()
        self.model, self.two_layers = model, two_layers

    def forward(self, x: Any) -> None:
        model = self.model
        found = model.backbone(x)
        maps = [found] if torch.is_tensor(found) else list(found.values())
        if hasattr(model, "rpn"):
            model.rpn.head(maps)
        elif hasattr(model, "head"):
            model.head(maps)
        heads = getattr(model, "roi_heads", None)
        for kind in ("mask", "keypoint"):
            if getattr(heads, f"{kind}_head", None) is not None:
                regions = torch.empty(_BATCH * 128, 256, 14, 14)
                getattr(heads, f"{kind}_predictor")(getattr(heads, f"{kind}_head")(regions))
        if heads is not None and self.two_layers:
            heads.box_head(torch.empty(_BATCH * 512, 256, 7, 7))


def torchvision_networks() -> Iterator[Network]:
    """Every model torchvision lists, at the sizes its kind is used with."""
    from torchvision import models

    native = {
        "inception_v3": 299, "efficientnet_b1": 240, "efficientnet_b2": 288, "efficientnet_b3": 300, "efficientnet_b4": 380,
        "efficientnet_b5": 456, "efficientnet_b6": 528, "efficientnet_b7": 600, "efficientnet_v2_s": 384,
        "efficientnet_v2_m": 480, "efficientnet_v2_l": 480,
    }  # fmt: skip
    often = ("resnet", "resnext", "wide", "dense", "mobilenet", "effici", "convnext", "regnet_y_4", "vgg", "mnas",
             "shuffle", "squeeze")  # fmt: skip
    small = (
        "resnet",
        "vgg",
        "mobilenet_v2",
        "dense",
        "wide",
        "googlenet",
        "resnext50",
        "shufflenet_v2_x1",
        "squeezenet1_1",
    )
    for name in models.list_models():
        build = models.get_model_builder(name)
        kind = build.__module__.split(".")[2]
        bare = partial(build, weights=None)
        if kind == "quantization" or name.startswith("quantized"):
            continue
        if kind == "optical_flow":
            yield Network(name, bare, _of_shapes(*[(_BATCH, 3, 520, 960)] * 2), 120)
        elif kind == "video":
            size = 224 if name == "s3d" or "mvit" in name or "swin" in name else 112
            for frames in (16,) if size == 224 else (16, 8):
                yield Network(f"{name}@{frames}x{size}", bare, _of_shapes((_BATCH, 3, frames, size, size)))
        elif kind == "detection":
            for height, width in (
                (800, 800), (800, 1088), (800, 1344), (320, 320), (300, 320), (640, 640), (512, 512),
            ):  # fmt: skip
                make = partial(_detector, build, "v2" in name)
                yield Network(f"{name}@{height}x{width}", make, _of_shapes((_BATCH, 3, height, width)))
        elif kind == "segmentation":
            auxiliary = {} if "lraspp" in name else {"aux_loss": True}
            for size in (224, 256, 320, 480, 512, 513, 520):
                make = partial(build, weights=None, weights_backbone=None, **auxiliary)
                yield Network(f"{name}@{size}", make, _of_shapes((_BATCH, 3, size, size)))
        else:
            sizes = [native.get(name, 224), 224, 256]
            if "vit" in name or "swin" in name:
                sizes = [224]
            elif name == "inception_v3":
                sizes = [299]
            elif name.startswith(often):
                sizes += [288, 320, 384, 512]
            if name.startswith(small):
                sizes += [32, 64, 96, 128]
            logits = {"aux_logits": True} if name in ("googlenet", "inception_v3") else {}
            for size in dict.fromkeys(sizes):
                yield Network(f"{name}@{size}", partial(bare, **logits), _of_shapes((_BATCH, 3, size, size)))


def _detector(build: Callable[..., nn.Module], two_layers: bool) -> nn.Module:
    return _Detector(build(weights=None, weights_backbone=None), two_layers)


def timm_networks() -> Iterator[Network]:
    """Every model timm lists, at its own input size and at the others of `_TIMM_SIZES`; transformers with one block."""
    import timm

    def make(name: str) -> nn.Module:
        try:
            return timm.create_model(name, pretrained=False, depth=1)
        except TypeError:
            return timm.create_model(name, pretrained=False)

    names = timm.list_models()
    for name in names:
        size = timm.get_pretrained_cfg(name, allow_unregistered=True)
        shape = (3, 224, 224) if size is None else size.input_size
        yield Network(name, partial(make, name), _of_shapes((_BATCH, *shape)))
    for size in _TIMM_SIZES:
        for name in names:
            # A model that takes one size only fails at once; a very deep one is not used with small images.
            yield Network(
                f"{name}{OTHER_SIZE}{size}", partial(make, name), _of_shapes((_BATCH, 3, size, size)), 5
            )


def monai_networks() -> Iterator[Network]:
    """MONAI's networks for volumes and images, with the channels of its tutorials."""
    from monai.networks import nets

    deep, shallow, wide = (16, 32, 64, 128, 256), (16, 32, 64, 128), (32, 64, 128, 256, 512)
    by_dimensions = {
        3: ((32, 48, 64, 80, 96, 112, 128, 160, 192), ((1, 2), (1, 5), (4, 3), (1, 14), (1, 3), (1, 1), (3, 2))),
        2: ((64, 96, 128, 224, 256, 384, 512), ((1, 2), (3, 2), (3, 1), (1, 1), (1, 4), (3, 5), (3, 19))),
    }  # fmt: skip
    for dimensions, (sizes, channels) in by_dimensions.items():
        variants: list[tuple[str, dict[str, Any]]] = [
            *(("UNet", {"channels": each, "strides": (2,) * (len(each) - 1), "num_res_units": units})
              for each in (deep, shallow, wide) for units in (0, 2)),
            *(("SegResNet", {"init_filters": filters}) for filters in (8, 16, 32)),
            *(("AttentionUnet", {"channels": each, "strides": (2,) * (len(each) - 1)}) for each in (deep, shallow)),
            *(("DynUNet", {"kernel_size": [3] * depth, "strides": [1] + [2] * (depth - 1),
                           "upsample_kernel_size": [2] * (depth - 1), "res_block": residual})
              for depth in (4, 5, 6) for residual in (False, True)),
            *((name, {}) for name in ("BasicUNet", "BasicUNetPlusPlus", "VNet", "HighResNet", "MedNeXtS", "VQVAE")),
            *((name, {}) for name in ("DenseNet121", "DenseNet169", "DenseNet201")),
            ("AutoEncoder", {"channels": (16, 32, 64), "strides": (2, 2, 2)}),
            ("SwinUNETR", {"feature_size": 24}), ("SwinUNETR", {"feature_size": 48}),
            ("FlexibleUNet", {"backbone": "efficientnet-b0"}),
            *((name, {"by_classes": True}) for name in ("resnet10", "resnet18", "resnet34", "resnet50", "resnet101")),
            ("UNETR", {"feature_size": 16, "with_size": True}),
        ]  # fmt: skip
        for size in sizes:
            for c_in, c_out in channels:
                for name, given in variants:
                    keywords: dict[str, Any] = {"spatial_dims": dimensions, **given}
                    classes = keywords.pop("by_classes", False)
                    keywords |= {"n_input_channels" if classes else "in_channels": c_in}
                    keywords |= {"num_classes" if classes else "out_channels": c_out}
                    if keywords.pop("with_size", False):
                        keywords["img_size"] = (size,) * dimensions
                    title = f"{name} {given} {dimensions}d {c_in}-{c_out}@{size}"
                    make = partial(getattr(nets, name), **keywords)
                    yield Network(title, make, _of_shapes((_BATCH, c_in, *(size,) * dimensions)))


class _Conditioned(nn.Module):
    """A U-Net of Diffusers with its time step and, where it has one, its text."""

    def __init__(self, model: Any, text: int | None, **more: Any) -> None:
        super().__init__()
        self.model, self.text, self.more = model, text, more

    def forward(self, x: Any) -> Any:
        given = {} if self.text is None else {"encoder_hidden_states": torch.empty(_BATCH, 77, self.text)}
        added = {name: torch.empty(*shape) for name, shape in self.more.items()}
        return self.model(x, torch.zeros(_BATCH), **given, **({"added_cond_kwargs": added} if added else {}))


class _There(nn.Module):
    """Encoder and decoder of an autoencoder."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Any) -> Any:
        return self.model.decode(self.model.encode(x).latent_dist.mode())


def diffusers_networks() -> Iterator[Network]:
    """Stable Diffusion's U-Nets and autoencoders, and U-Nets for small images, with the settings of the examples."""
    import diffusers

    wide = (320, 640, 1280, 1280)
    linear = {"use_linear_projection": True}
    stable: dict[str, tuple[int, dict[str, Any], dict[str, tuple[int, ...]]]] = {
        "sd15": (768, {"block_out_channels": wide, "attention_head_dim": 8}, {}),
        "sd21": (1024, {"block_out_channels": wide, "attention_head_dim": [5, 10, 20, 20], **linear}, {}),
        "sdxl": (
            2048,
            {
                "block_out_channels": wide[:3], "attention_head_dim": [5, 10, 20], **linear,
                "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
                "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
                "transformer_layers_per_block": [1, 2, 10], "addition_embed_type": "text_time",
                "addition_time_embed_dim": 256, "projection_class_embeddings_input_dim": 2816,
            },
            {"text_embeds": (_BATCH, 1280), "time_ids": (_BATCH, 6)},
        ),
    }  # fmt: skip
    for name, (text, settings, more) in stable.items():
        for size in (32, 48, 64, 96, 128):
            make = partial(
                _unet,
                partial(diffusers.UNet2DConditionModel, cross_attention_dim=text, **settings),
                text,
                more,
            )
            yield Network(f"{name}@{size}", make, _of_shapes((_BATCH, 4, size, size)), 120)
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4}
    for latents in (4, 16):
        for size in (64, 128, 256, 384, 512, 768, 1024):
            make = partial(_autoencoder, diffusers, latents, blocks)
            yield Network(f"vae{latents}@{size}", make, _of_shapes((_BATCH, 3, size, size)))
    plain: dict[str, dict[str, Any]] = {
        "default": {},
        "small": {"block_out_channels": (32, 64, 128, 256), "norm_num_groups": 8},
        "64": {"block_out_channels": (64, 128, 256, 256)},
        "butterflies": {
            "layers_per_block": 2, "block_out_channels": (128, 128, 256, 256, 512, 512),
            "down_block_types": ("DownBlock2D",) * 4 + ("AttnDownBlock2D", "DownBlock2D"),
            "up_block_types": ("UpBlock2D", "AttnUpBlock2D") + ("UpBlock2D",) * 4,
        },
        "cifar": {
            "layers_per_block": 2, "block_out_channels": (128, 256, 256, 256),
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"),
            "up_block_types": ("UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
        },
        "mnist": {
            "layers_per_block": 2, "block_out_channels": (32, 64, 64), "norm_num_groups": 8,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
        },
    }  # fmt: skip
    for name, settings in plain.items():
        for c in (1, 3):
            for size in (28, 32, 64, 96, 128, 256):
                of = {"sample_size": size, "in_channels": c, "out_channels": c, **settings}
                make = partial(_unet, partial(diffusers.UNet2DModel, **of), None, {})
                yield Network(f"unet2d {name} {c}@{size}", make, _of_shapes((_BATCH, c, size, size)))


def _unet(make: Callable[[], Any], text: int | None, more: dict[str, tuple[int, ...]]) -> nn.Module:
    return _Conditioned(make(), text, **more)


def _autoencoder(diffusers: Any, latents: int, blocks: dict[str, Any]) -> nn.Module:
    channels = (128, 256, 512, 512)
    return _There(
        diffusers.AutoencoderKL(
            latent_channels=latents, block_out_channels=channels, layers_per_block=2, **blocks
        )
    )


def transformers_networks() -> Iterator[Network]:
    """What the automatic classes for images, video, sound and state-space text models name, with two layers."""
    import transformers
    from transformers.models.auto import modeling_auto

    tasks = (
        "IMAGE_CLASSIFICATION", "SEMANTIC_SEGMENTATION", "DEPTH_ESTIMATION", "IMAGE_TO_IMAGE", "OBJECT_DETECTION",
        "UNIVERSAL_SEGMENTATION", "MASKED_IMAGE_MODELING", "VIDEO_CLASSIFICATION", "AUDIO_CLASSIFICATION", "CTC",
        "SPEECH_SEQ_2_SEQ", "AUDIO_XVECTOR",
    )  # fmt: skip
    found: dict[tuple[str, str], str] = {}
    for task in tasks:
        for kind, names in getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {}).items():
            for name in [names] if isinstance(names, str) else names:
                found.setdefault((kind, name), task)
    for kind, names in modeling_auto.MODEL_MAPPING_NAMES.items():
        if kind in ("mamba", "mamba2", "falcon_mamba", "squeezebert", "funnel", "convbert", "clip", "siglip"):
            for name in [names] if isinstance(names, str) else names:
                found.setdefault((kind, name), "")
    for (kind, name), task in found.items():
        try:
            build, config = getattr(transformers, name), transformers.AutoConfig.for_model(kind)
        except (AttributeError, ImportError, ValueError):
            continue
        if not hasattr(config, "layer_types") and not getattr(config, "out_indices", None):
            for setting in ("num_hidden_layers", "encoder_layers", "decoder_layers"):
                if isinstance(getattr(config, setting, None), int):
                    # Some have their layers in blocks, and no such setting to write.
                    with suppress(NotImplementedError):
                        setattr(config, setting, min(2, getattr(config, setting)))
        for title, inputs in _given(config, getattr(build, "main_input_name", "input_ids"), task):
            yield Network(f"{name}@{title}", partial(build, config), inputs)


def _given(config: Any, main: str, task: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Sizes of the main input, and the arguments with it."""

    def named(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[], Any]:
        return lambda: {main: torch.zeros(*shape, dtype=dtype)}

    if main == "pixel_values":
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", None) or 224
        size = size[0] if isinstance(size, (list, tuple)) else size
        channels = getattr(config, "num_channels", 3)
        channels = channels if isinstance(channels, int) else 3
        if task == "VIDEO_CLASSIFICATION":
            yield "video", named(_BATCH, getattr(config, "num_frames", 16), 3, size, size)
            return
        for each in dict.fromkeys((size, 224, 256, 384, 512, 640, 800)):
            yield str(each), named(_BATCH, channels, each, each)
    elif main == "input_values":
        for each in (16000, 32000, 48000, 80000, 160000, 240000):
            yield str(each), named(_BATCH, each)
    elif main == "input_features":
        mel = getattr(config, "num_mel_bins", 80)
        for each in (3000, 1000, 2000, 584):
            yield str(each), named(_BATCH, each, mel)
            yield (
                f"{each} with words",
                lambda each=each: {
                    main: torch.zeros(_BATCH, mel, each),
                    "decoder_input_ids": torch.zeros(_BATCH, 32, dtype=torch.long),
                },
            )
    else:
        for each in (128, 256, 512, 1024):
            yield str(each), named(_BATCH, each, dtype=torch.long)


def handwritten_networks() -> Iterator[Network]:
    """Networks no package lists."""
    for name, make, shape in handwritten():
        yield Network(name, make, _of_shapes((_BATCH, *shape)))


NETWORKS = {
    "handwritten": handwritten_networks,
    "torchvision": torchvision_networks,
    "timm": timm_networks,
    "monai": monai_networks,
    "diffusers": diffusers_networks,
    "transformers": transformers_networks,
}
