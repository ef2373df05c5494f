"""The held-out cases: each model once or twice, every optimizer of `torch.optim` that needs no closure, AMP and dtypes."""

from __future__ import annotations

from typing import Any


def _case(
    model: str, batch: int, optimizer: str = "adam", mode: str = "train", **more: Any
) -> dict[str, Any]:
    return {"model": model, "batch": batch, "mode": mode, "opt": optimizer, **more}


CASES = [
    _case("resnet34", 48, "nesterov"), _case("resnet34", 24, mode="infer"), _case("wide_resnet50_2", 16, "adamw"),
    _case("wide_resnet50_2", 16, "sgdm", amp="bf16"), _case("googlenet", 32, "rmsprop_centered"),
    _case("inception_v3", 16, "adam_l2"), _case("inception_v3", 16, mode="infer"), _case("mobilenet_v2", 40, "nadam"),
    _case("mobilenet_v2", 40, "adam", amp="fp16"), _case("efficientnet_v2_s", 16, "adamw"),
    _case("efficientnet_v2_s", 16, mode="infer"), _case("vit_b_32", 24, "adamax"), _case("vit_b_32", 24, "adamw", amp="fp16"),
    _case("swin_v2_t", 16, "adamw"), _case("maxvit_t", 8, "adamw"), _case("vgg11_bn", 24, "sgdm"),
    _case("densenet169", 16, "sgd_fused"), _case("fcn_resnet50", 6, "sgdm"), _case("deeplabv3_resnet50", 6, "adam"),
    _case("deeplabv3_resnet50", 6, "adam", amp="bf16"), _case("r3d_18", 4, "adam"), _case("r3d_18", 4, mode="infer"),
    _case("mvit_v1_b", 2, "adamw"), _case("s3d", 4, "sgdm"), _case("monai_unet", 4, "adam"), _case("monai_unet", 4, mode="infer"),
    _case("segresnet", 1, "adamw"), _case("segresnet", 1, "adamw", amp="fp16"), _case("vnet", 2, "adam"),
    _case("swin_unetr", 1, "adamw"), _case("attention_unet", 8, "radam"), _case("distilbert", 24, "adamw"),
    _case("distilbert", 24, "adamw", amp="bf16"), _case("distilbert", 24, mode="infer"), _case("roberta", 12, "adadelta"),
    _case("electra", 8, "adamw_fused"), _case("t5_encoder", 16, "adafactor"), _case("opt", 8, "asgd"),
    _case("opt", 8, "adamw", amp="fp16"), _case("mistral", 4, "adamw"), _case("mistral", 4, "adamw", dtype="bf16"),
    _case("qwen2", 4, "adamw_fused", dtype="bf16"), _case("qwen2", 4, mode="infer"), _case("gemma", 8, "adam_fused"),
    _case("hf_vit", 16, "adamw"), _case("hf_vit", 16, "adamw", dtype="bf16"), _case("hf_convnext", 16, "adamw"),
    _case("segformer", 16, "adamw"), _case("wav2vec2", 4, "adamw"), _case("wav2vec2", 4, "adamw", amp="bf16"),
    _case("gru", 32, "adam"), _case("gru", 32, mode="infer"), _case("sequence_lstm", 48, "rmsprop"),
    _case("sequence_lstm", 48, "adam", amp="fp16"), _case("temporal", 16, "rprop"), _case("diffusion", 8, "adamw"),
    _case("diffusion", 8, "adamw", amp="bf16"), _case("diffusion", 8, mode="infer"), _case("translator", 24, "amsgrad"),
    _case("translator", 24, "amsgrad", amp="bf16"), _case("translator", 24, mode="infer"), _case("lora", 256, "adamw"),
    _case("autoencoder", 16, "adam"), _case("autoencoder", 16, "adam", channels_last=True), _case("checkpointed", 16, "sgdm"),
    _case("resnet34", 16, "adagrad", accum=3),
]  # fmt: skip

SECOND = [
    _case("resnet101", 16, "adamw"), _case("resnet101", 24, mode="infer"), _case("efficientnet_b3", 12, "rmsprop"),
    _case("efficientnet_b3", 12, "adam", amp="bf16"), _case("convnext_small", 12, "adamw", amp="bf16"),
    _case("convnext_small", 12, mode="infer"), _case("regnet_x_1_6gf", 24, "sgdm"), _case("mnasnet0_5", 64, "adamax"),
    _case("shufflenet_v2_x0_5", 64, "nadam"), _case("squeezenet1_0", 40, "adagrad"), _case("vit_b_16_384", 6, "adamw"),
    _case("vit_b_16_384", 6, "adamw", dtype="bf16"), _case("swin_s", 12, "adamw"), _case("swin_s", 12, mode="infer"),
    _case("lraspp_mobilenet_v3_large", 12, "adam"), _case("r2plus1d_18", 3, "sgdm"), _case("mc3_18", 4, "adam", amp="bf16"),
    _case("dynunet", 2, "adam"), _case("dynunet", 2, mode="infer"), _case("basic_unet", 1, "adamw"),
    _case("basic_unet", 1, "adamw", amp="bf16"), _case("highresnet", 1, "adam"), _case("monai_densenet", 2, "adam"),
    _case("monai_vit", 4, "adamw"), _case("monai_vit", 4, mode="infer"), _case("unetr_2d", 4, "adamw"),
    _case("albert", 8, "adamw"), _case("deberta_v2", 8, "adamw"), _case("mpnet", 12, "adamw_fused"),
    _case("mpnet", 12, mode="infer"), _case("gpt_neo", 6, "adamw"), _case("bloom", 6, "adamw", amp="bf16"),
    _case("gemma2", 4, "adafactor"), _case("gemma2", 4, "adamw", dtype="bf16"), _case("falcon", 6, "adamw"),
    _case("falcon", 6, mode="infer"), _case("mamba", 2, "adam"), _case("beit", 8, "adamw"), _case("dinov2", 8, "adamw", amp="bf16"),
    _case("mobilevit", 12, "adamw"), _case("levit", 24, "adamw"), _case("hf_swinv2", 6, "adamw"), _case("hubert", 3, "adamw"),
    _case("ast", 4, "adamw", amp="bf16"),
]  # fmt: skip
