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

THIRD = [
    _case("convnextv2_nano", 12, "adamw"), _case("coatnet_nano", 12, "adamw", amp="bf16"), _case("efficientformer_l1", 24, "adamw"),
    _case("edgenext_small", 16, "adamw"), _case("mobilevitv2_100", 12, "adamw", amp="fp16"), _case("fastvit_t8", 16, "adamw"),
    _case("tiny_vit_5m", 24, "adamw"), _case("davit_tiny", 8, mode="infer"),
    _case("cait_xxs24", 12, "adamw"), _case("xcit_tiny_12", 16, "adamw"), _case("crossvit_9", 16, "adamw"),
    _case("pvt_v2_b1", 20, "adamw", amp="bf16"), _case("poolformer_s12", 16, "adamw", channels_last=True),
    _case("nfnet_f0", 6, "sgdm"), _case("rexnet_100", 40, "sgdm", amp="fp16"), _case("regnety_016", 10, "nesterov"),
    _case("regnetz_b16", 16, mode="infer"), _case("hrnet_w18_small", 16, "adam"), _case("dla34", 32, "sgdm", channels_last=True),
    _case("repvgg_a2", 24, "sgdm", amp="bf16", channels_last=True), _case("ghostnet_100", 48, "rmsprop"),
    _case("mixnet_s", 24, "rmsprop"), _case("hardcorenas_a", 32, mode="infer", dtype="bf16"), _case("ese_vovnet19b", 16, "adamw"),
    _case("dpn68", 12, "sgdm"), _case("res2net50", 8, "adam", amp="bf16"), _case("resnest14d", 16, "sgdm"),
    _case("skresnet18", 20, "adamw", accum=2), _case("inception_next", 32, "adamw"), _case("hiera_tiny", 12, "adamw", dtype="bf16"),
    _case("focalnet_tiny", 8, "adamw"), _case("gcvit_xxtiny", 16, "adamw"), _case("volo_d1", 8, mode="infer"),
    _case("mambaout_femto", 16, "adamw", amp="bf16"), _case("starnet_s2", 32, "adamw"), _case("repvit_m1", 24, "adamw"),
    _case("efficientvit_b1", 16, "adamw", amp="bf16"), _case("mobilenetv4_small", 64, "adamw"), _case("mobileone_s0", 24, "sgdm"),
    _case("resnetv2_50", 12, "sgdm", amp="fp16"), _case("seresnext26t", 16, "adamax"), _case("cspdarknet53", 8, "adam"),
    _case("hgnetv2_b1", 24, "adamw", amp="bf16", channels_last=True), _case("twins_svt_small", 12, "adamw"),
    _case("vit_checkpointed", 8, "adamw", amp="bf16"), _case("mixer_s16", 24, "adamw_fused"),
    _case("tf_efficientnet_b1", 12, "adamw", amp="fp16", channels_last=True), _case("xception41", 6, "sgdm"),
    _case("sequencer2d_s", 6, "adamw"), _case("deberta", 8, "adamw"), _case("t5", 12, "adafactor"), _case("bart", 8, "adamw", amp="bf16"),
    _case("pegasus", 12, "adamw_fused"), _case("gpt_neox", 6, "adamw", dtype="bf16"), _case("gptj", 6, "adamw"),
    _case("mixtral", 4, "adamw"), _case("qwen3", 4, "adamw", amp="bf16"), _case("qwen3_moe", 4, "adamw", dtype="bf16"),
    _case("gemma3", 4, "adamw"), _case("phi3", 4, "adamw"), _case("olmo2", 6, mode="infer", dtype="bf16"),
    _case("gpt_oss", 4, "adamw", dtype="bf16"), _case("deepseek_v3", 4, "adamw"), _case("modernbert", 8, "adamw", amp="bf16"),
    _case("rwkv", 4, "adam"), _case("mamba2", 4, "adamw"), _case("convbert", 12, "adamw"), _case("longformer", 4, "adamw"),
    _case("big_bird", 8, "adamw"), _case("mobilebert", 12, "adamw"), _case("fnet", 16, "adamw"),
    _case("xlnet", 8, "adamw"), _case("perceiver", 8, "adamw"), _case("whisper", 6, "adamw", amp="fp16"), _case("clip", 12, "adamw"),
    _case("siglip", 12, "adamw", amp="bf16"), _case("segformer_masks", 6, "adamw"), _case("yolos", 6, "adamw"), _case("cvt", 12, "adamw"),
    _case("dpt", 6, "adamw"), _case("swin2sr", 4, "adam"), _case("videomae", 4, "adamw"), _case("wavlm", 4, "adamw"),
    _case("patchtst", 32, "adam"), _case("noise_predictor", 12, "adamw", amp="bf16"), _case("volume_unet", 1, "adamw", amp="fp16"),
    _case("volume_unet", 2, "sgdm"), _case("gated_unet", 6, "adam"), _case("gated_unet_checkpointed", 6, "adamw", amp="bf16"),
    _case("variational", 40, "adam"), _case("super_resolution", 6, "adam"), _case("detector", 10, "sgdm"),
    _case("detector", 12, "adamw", amp="bf16", channels_last=True), _case("capsules", 32, "adam"),
    _case("attentive_translator", 24, "adam"), _case("transducer", 6, "adamw"), _case("tied_lstm", 20, "asgd"),
    _case("wavenet", 6, "adam"), _case("convolutional_lstm", 8, "adam"), _case("rotary", 6, "adamw", amp="bf16"),
    _case("rotary_checkpointed", 6, "adamw_fused", dtype="bf16"), _case("experts", 24, "adam", accum=2),
    _case("graph_convolutions", 12, "adam"), _case("points", 12, "adam"), _case("recommender", 512, "adagrad"),
    _case("factorization", 1024, "adam"), _case("fourier", 12, "adam"), _case("text_recogniser", 20, "adadelta"),
    _case("forecaster", 256, "radam"), _case("radiance", 256, "adam"), _case("generator", 8, "adam"), _case("keywords", 24, "nadam"),
    _case("set_transformer", 20, "adamw"), _case("contrastive", 40, "adamw", amp="fp16"), _case("state_space", 16, "adamw"),
]  # fmt: skip

SETS = {"held_out": CASES, "held_out_2": SECOND, "held_out_3": THIRD}
