"""Models of the held-out set: name -> (make_model, make_batch(batch) -> ((inputs, ...), target), loss(output, target)).

They come from torchvision, MONAI, transformers and this file, and were chosen before any of them was predicted: other
architectures, sizes and layer kinds than the 70 cases the rules were checked against while they were written.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.subjects.networks.kinds import (
    OPT,
    Model,
    by_logits,
    clips,
    cross_entropy,
    googlenet_loss,
    images,
    labelled_tokens,
    language,
    masks,
    medical,
    mse,
    per_token,
    pooled,
    reconstruct,
    segmentation,
    tokens,
    vision,
    volumes,
)

__all__ = ["OPT", "M"]


class GRUTagger(nn.Module):
    """Two bidirectional GRU layers over embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2000, 128)
        self.gru = nn.GRU(128, 256, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(512, 50)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.gru(self.embedding(x))[0])


class SequenceLSTM(nn.Module):
    """A time-major LSTM whose last state is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 384, num_layers=3, dropout=0.2)
        self.out = nn.Linear(384, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(x.transpose(0, 1))[0][-1])


class TemporalConvolutions(nn.Module):
    """Dilated 1-D convolutions with weight normalisation."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i in range(6):
            convolution = nn.Conv1d(64 if i else 16, 64, 3, padding=2**i, dilation=2**i)
            layers += [nn.utils.parametrizations.weight_norm(convolution), nn.ReLU(), nn.Dropout(0.1)]
        self.body, self.head = nn.Sequential(*layers), nn.Conv1d(64, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


class Diffusion(nn.Module):
    """A small denoising U-Net: GroupNorm, SiLU, attention at the lowest resolution."""

    def __init__(self, c: int = 64) -> None:
        super().__init__()

        def block(i: int, o: int) -> nn.Module:
            return nn.Sequential(
                nn.GroupNorm(8, i),
                nn.SiLU(),
                nn.Conv2d(i, o, 3, padding=1),
                nn.GroupNorm(8, o),
                nn.SiLU(),
                nn.Conv2d(o, o, 3, padding=1),
            )

        self.stem, self.down1, self.down2 = (
            nn.Conv2d(3, c, 3, padding=1),
            block(c, 2 * c),
            block(2 * c, 4 * c),
        )
        self.attention = nn.MultiheadAttention(4 * c, 4, batch_first=True)
        self.up2, self.up1, self.out = block(6 * c, 2 * c), block(3 * c, c), nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.stem(x)
        b = self.down1(F.avg_pool2d(a, 2))
        c = self.down2(F.avg_pool2d(b, 2))
        flat = c.flatten(2).transpose(1, 2)
        c = c + self.attention(flat, flat, flat, need_weights=False)[0].transpose(1, 2).view_as(c)
        y = self.up2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        y = self.up1(torch.cat([F.interpolate(y, scale_factor=2, mode="bilinear"), a], 1))
        return self.out(y)


class Translator(nn.Module):
    """PyTorch's own encoder-decoder transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4000, 256)
        self.transformer = nn.Transformer(256, 4, 3, 3, 1024, batch_first=True)
        self.out = nn.Linear(256, 4000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        e = self.embedding(x)
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1), device=x.device)
        return self.out(self.transformer(e, e, tgt_mask=mask, tgt_is_causal=True))


class Lora(nn.Module):
    """Frozen layers with trained low-rank adapters."""

    def __init__(self, d: int = 1024) -> None:
        super().__init__()
        self.frozen = nn.ModuleList([nn.Linear(d, d) for _ in range(6)]).requires_grad_(False)
        self.down = nn.ModuleList([nn.Linear(d, 8, bias=False) for _ in range(6)])
        self.up = nn.ModuleList([nn.Linear(8, d, bias=False) for _ in range(6)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for frozen, down, up in zip(self.frozen, self.down, self.up, strict=True):
            x = F.gelu(frozen(x) + up(down(x)))
        return x


class AutoEncoder(nn.Module):
    """Strided and transposed convolutions with batch and instance normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.LeakyReLU(0.2, True),
            nn.Conv2d(32, 64, 4, 2, 1), nn.InstanceNorm2d(64, affine=True), nn.PReLU(),
            nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.ELU(True),
            nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class Checkpointed(nn.Module):
    """Reentrant checkpointing of convolution blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, padding=1)
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()) for _ in range(6)]
        )
        self.head = nn.Linear(64, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.utils.checkpoint import checkpoint

        x = self.stem(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=True)
        return self.head(x.mean((2, 3)))


SMALL = {"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048}
M: dict[str, Model] = {
    "resnet34": (vision("resnet34"), images, cross_entropy),
    "wide_resnet50_2": (vision("wide_resnet50_2"), images, cross_entropy),
    "googlenet": (vision("googlenet", aux_logits=True, init_weights=False), images, googlenet_loss),
    "inception_v3": (vision("inception_v3", aux_logits=False, init_weights=False), lambda b: images(b, 299), cross_entropy),
    "mobilenet_v2": (vision("mobilenet_v2"), images, cross_entropy),
    "efficientnet_v2_s": (vision("efficientnet_v2_s"), images, cross_entropy),
    "vit_b_32": (vision("vit_b_32"), images, cross_entropy),
    "swin_v2_t": (vision("swin_v2_t"), lambda b: images(b, 256), cross_entropy),
    "maxvit_t": (vision("maxvit_t"), images, cross_entropy),
    "vgg11_bn": (vision("vgg11_bn"), images, cross_entropy),
    "densenet169": (vision("densenet169"), images, cross_entropy),
    "fcn_resnet50": (vision("fcn_resnet50", weights=None, weights_backbone=None), lambda b: masks(b, 256, 21), segmentation),
    "deeplabv3_resnet50": (vision("deeplabv3_resnet50", weights=None, weights_backbone=None), lambda b: masks(b, 256, 21), segmentation),
    "r3d_18": (vision("r3d_18"), clips, cross_entropy),
    "mvit_v1_b": (vision("mvit_v1_b"), lambda b: clips(b, 16, 224), cross_entropy),
    "s3d": (vision("s3d"), lambda b: clips(b, 16, 224), cross_entropy),
    "monai_unet": (medical("UNet", spatial_dims=3, in_channels=1, out_channels=5, channels=(16, 32, 64, 128), strides=(2, 2, 2), num_res_units=2), lambda b: volumes(b, 64, 5), cross_entropy),
    "segresnet": (medical("SegResNet", spatial_dims=3, in_channels=1, out_channels=3, init_filters=16), lambda b: volumes(b, 96, 3), cross_entropy),
    "vnet": (medical("VNet", spatial_dims=3, in_channels=1, out_channels=2), lambda b: volumes(b, 64, 2), cross_entropy),
    "swin_unetr": (medical("SwinUNETR", in_channels=1, out_channels=4, feature_size=24, spatial_dims=3), lambda b: volumes(b, 64, 4), cross_entropy),
    "attention_unet": (medical("AttentionUnet", spatial_dims=2, in_channels=3, out_channels=4, channels=(32, 64, 128), strides=(2, 2)), lambda b: masks(b, 128, 4), cross_entropy),
    "distilbert": (language("DistilBertForSequenceClassification", "DistilBertConfig", num_labels=4), lambda b: labelled_tokens(b, 128, 30522, 4), by_logits),
    "roberta": (language("RobertaForMaskedLM", "RobertaConfig", vocab_size=20000, num_hidden_layers=6), lambda b: tokens(b, 128, 20000), per_token),
    "electra": (language("ElectraForSequenceClassification", "ElectraConfig", num_labels=3), lambda b: labelled_tokens(b, 256, 30522, 3), by_logits),
    "t5_encoder": (language("T5EncoderModel", "T5Config", d_model=512, num_layers=6), lambda b: labelled_tokens(b, 128, 32000, 512), pooled),
    "opt": (language("OPTForCausalLM", "OPTConfig", vocab_size=16000, num_hidden_layers=6, ffn_dim=2048, hidden_size=512, num_attention_heads=8, word_embed_proj_dim=512, use_cache=False), lambda b: tokens(b, 256, 16000), per_token),
    "mistral": (language("MistralForCausalLM", "MistralConfig", vocab_size=16000, num_hidden_layers=4, num_key_value_heads=2, use_cache=False, **SMALL), lambda b: tokens(b, 512, 16000), per_token),
    "qwen2": (language("Qwen2ForCausalLM", "Qwen2Config", vocab_size=16000, num_hidden_layers=4, num_key_value_heads=8, use_cache=False, **SMALL), lambda b: tokens(b, 384, 16000), per_token),
    "gemma": (language("GemmaForCausalLM", "GemmaConfig", vocab_size=16000, num_hidden_layers=4, num_key_value_heads=1, head_dim=64, use_cache=False, **SMALL), lambda b: tokens(b, 256, 16000), per_token),
    "hf_vit": (language("ViTForImageClassification", "ViTConfig", num_labels=100), lambda b: images(b, 224, 100), by_logits),
    "hf_convnext": (language("ConvNextForImageClassification", "ConvNextConfig", num_labels=100), lambda b: images(b, 224, 100), by_logits),
    "segformer": (language("SegformerForImageClassification", "SegformerConfig", num_labels=100), lambda b: images(b, 224, 100), by_logits),
    "wav2vec2": (language("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", num_labels=8, num_hidden_layers=6, apply_spec_augment=False, layerdrop=0.0), lambda b: ((torch.randn(b, 32000),), torch.randint(0, 8, (b,))), by_logits),
    "gru": (GRUTagger, lambda b: ((torch.randint(0, 2000, (b, 100)),), torch.randint(0, 50, (b, 100))), per_token),
    "sequence_lstm": (SequenceLSTM, lambda b: ((torch.randn(b, 80, 64),), torch.randint(0, 10, (b,))), cross_entropy),
    "temporal": (TemporalConvolutions, lambda b: ((torch.randn(b, 16, 4096),), torch.randn(b, 1, 4096)), mse),
    "diffusion": (Diffusion, lambda b: reconstruct(b, 64), mse),
    "translator": (Translator, lambda b: tokens(b, 96, 4000), per_token),
    "lora": (Lora, lambda b: ((torch.randn(b, 1024),), torch.randn(b, 1024)), mse),
    "autoencoder": (AutoEncoder, lambda b: reconstruct(b, 128), mse),
    "checkpointed": (Checkpointed, lambda b: images(b, 64, 100), cross_entropy),
}  # fmt: skip


def to_classes(output: Any, target: Any) -> Any:
    return F.cross_entropy(output[0] if isinstance(output, (tuple, list)) else output, target)


TINY = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
# The second held-out set: measured and predicted once, after everything above had been learnt from the first.
M.update({
    "resnet101": (vision("resnet101"), images, cross_entropy),
    "efficientnet_b3": (vision("efficientnet_b3"), lambda b: images(b, 300), cross_entropy),
    "convnext_small": (vision("convnext_small"), images, cross_entropy),
    "regnet_x_1_6gf": (vision("regnet_x_1_6gf"), images, cross_entropy),
    "mnasnet0_5": (vision("mnasnet0_5"), images, cross_entropy),
    "shufflenet_v2_x0_5": (vision("shufflenet_v2_x0_5"), lambda b: images(b, 192), cross_entropy),
    "squeezenet1_0": (vision("squeezenet1_0"), images, cross_entropy),
    "vit_b_16_384": (vision("vit_b_16", image_size=384), lambda b: images(b, 384), cross_entropy),
    "swin_s": (vision("swin_s"), images, cross_entropy),
    "lraspp_mobilenet_v3_large": (vision("lraspp_mobilenet_v3_large", weights=None, weights_backbone=None), lambda b: masks(b, 224, 21), segmentation),
    "r2plus1d_18": (vision("r2plus1d_18"), clips, cross_entropy),
    "mc3_18": (vision("mc3_18"), clips, cross_entropy),
    "dynunet": (medical("DynUNet", spatial_dims=3, in_channels=1, out_channels=3, kernel_size=[3, 3, 3, 3], strides=[1, 2, 2, 2], upsample_kernel_size=[2, 2, 2]), lambda b: volumes(b, 64, 3), cross_entropy),
    "basic_unet": (medical("BasicUNet", spatial_dims=3, in_channels=1, out_channels=2), lambda b: volumes(b, 64, 2), cross_entropy),
    "highresnet": (medical("HighResNet", spatial_dims=3, in_channels=1, out_channels=4), lambda b: volumes(b, 48, 4), cross_entropy),
    "monai_densenet": (medical("DenseNet121", spatial_dims=3, in_channels=1, out_channels=4), lambda b: ((torch.randn(b, 1, 64, 64, 64),), torch.randint(0, 4, (b,))), to_classes),
    "monai_vit": (medical("ViT", in_channels=1, img_size=(64, 64, 64), patch_size=(16, 16, 16), classification=True, num_classes=4), lambda b: ((torch.randn(b, 1, 64, 64, 64),), torch.randint(0, 4, (b,))), to_classes),
    "unetr_2d": (medical("UNETR", in_channels=3, out_channels=4, img_size=128, spatial_dims=2, feature_size=16), lambda b: masks(b, 128, 4), cross_entropy),
    "albert": (language("AlbertForSequenceClassification", "AlbertConfig", num_labels=3, hidden_size=768, num_attention_heads=12, intermediate_size=3072), lambda b: labelled_tokens(b, 128, 30000, 3), by_logits),
    "deberta_v2": (language("DebertaV2ForSequenceClassification", "DebertaV2Config", num_labels=3, num_hidden_layers=4, vocab_size=20000, **TINY), lambda b: labelled_tokens(b, 128, 20000, 3), by_logits),
    "mpnet": (language("MPNetForSequenceClassification", "MPNetConfig", num_labels=3, num_hidden_layers=6), lambda b: labelled_tokens(b, 128, 30000, 3), by_logits),
    "gpt_neo": (language("GPTNeoForCausalLM", "GPTNeoConfig", vocab_size=16000, hidden_size=512, num_layers=4, attention_types=[[["global", "local"], 2]], num_heads=8, use_cache=False), lambda b: tokens(b, 256, 16000), per_token),
    "bloom": (language("BloomForCausalLM", "BloomConfig", vocab_size=16000, hidden_size=512, n_layer=4, n_head=8, use_cache=False), lambda b: tokens(b, 192, 16000), per_token),
    "gemma2": (language("Gemma2ForCausalLM", "Gemma2Config", vocab_size=16000, num_hidden_layers=4, num_key_value_heads=3, head_dim=64, use_cache=False, **TINY), lambda b: tokens(b, 256, 16000), per_token),
    "falcon": (language("FalconForCausalLM", "FalconConfig", vocab_size=16000, hidden_size=512, num_hidden_layers=4, num_attention_heads=8, use_cache=False), lambda b: tokens(b, 256, 16000), per_token),
    "mamba": (language("MambaForCausalLM", "MambaConfig", vocab_size=8000, hidden_size=256, num_hidden_layers=2, use_cache=False), lambda b: tokens(b, 64, 8000), per_token),
    "beit": (language("BeitForImageClassification", "BeitConfig", num_labels=50, num_hidden_layers=6), lambda b: images(b, 224, 50), by_logits),
    "dinov2": (language("Dinov2ForImageClassification", "Dinov2Config", num_labels=50, num_hidden_layers=6), lambda b: images(b, 224, 50), by_logits),
    "mobilevit": (language("MobileViTForImageClassification", "MobileViTConfig", num_labels=50), lambda b: images(b, 256, 50), by_logits),
    "levit": (language("LevitForImageClassification", "LevitConfig", num_labels=50), lambda b: images(b, 224, 50), by_logits),
    "hf_swinv2": (language("Swinv2ForImageClassification", "Swinv2Config", num_labels=50, image_size=256, window_size=8), lambda b: images(b, 256, 50), by_logits),
    "hubert": (language("HubertForSequenceClassification", "HubertConfig", num_labels=8, num_hidden_layers=4, apply_spec_augment=False, layerdrop=0.0), lambda b: ((torch.randn(b, 24000),), torch.randint(0, 8, (b,))), by_logits),
    "ast": (language("ASTForAudioClassification", "ASTConfig", num_labels=20, num_hidden_layers=4, max_length=512), lambda b: ((torch.randn(b, 512, 128),), torch.randint(0, 20, (b,))), by_logits),
})  # fmt: skip
