"""The measured programs: whole steps, none of whose shapes the table of operators was made from.

`DEVELOPMENT` was looked at operator by operator while rules were written; of `HELD_OUT` only the totals were measured. docs/evidence/TIMING.md
says what was decided after these had been seen.
"""

from __future__ import annotations

from typing import Any

Case = dict[str, Any]


def _case(zoo: str, model: str, batch: int, optimizer: str = "adamw", **more: Any) -> Case:
    return {"zoo": zoo, "model": model, "batch": batch, "opt": optimizer, "mode": "train", **more}


_A, _B, _C = "development", "held_out", "held_out_3"
_BF, _CL, _INFER = {"amp": "bf16"}, {"channels_last": True}, {"mode": "infer"}

DEVELOPMENT = [
    _case(_A, "resnet50", 48, "sgdm"), _case(_A, "resnet50", 96, "sgdm", **_BF, **_CL), _case(_A, "resnet18", 64, **_INFER),
    _case(_A, "vgg16", 32, "sgdm"), _case(_A, "efficientnet_b0", 64), _case(_A, "mobilenet_v3_large", 96, "sgdm", **_BF),
    _case(_A, "densenet121", 32, "adam"), _case(_A, "convnext_tiny", 32, **_BF), _case(_A, "swin_t", 32), _case(_A, "vit_b_16", 64, **_BF),
    _case(_A, "vit_b_16", 48, **_INFER), _case(_A, "gpt2", 8), _case(_A, "gpt2", 12, **_BF), _case(_A, "bert", 16, "adamw_fused"),
    _case(_A, "llama_tiny", 8, dtype="bf16"), _case(_A, "lstm", 64, "adam"), _case(_A, "unet", 8, "adam"), _case(_A, "mnist_fc", 8192, "sgd"),
    _case(_B, "diffusion", 32, **_BF), _case(_B, "mistral", 8, dtype="bf16"), _case(_B, "deeplabv3_resnet50", 8, "sgdm"),
    _case(_B, "r3d_18", 8, "sgdm", **_BF), _case(_B, "translator", 48), _case(_C, "mixtral", 8), _case(_C, "qwen3_moe", 8, dtype="bf16"),
    _case(_C, "t5", 16, "adamw"), _case(_C, "coatnet_nano", 24, **_BF), _case(_C, "mixer_s16", 64, "adamw_fused"),
    _case(_C, "regnety_016", 48, "nesterov", **_CL), _case(_C, "noise_predictor", 16), _case(_A, "gpt2", 8, tf32=True), _case(_B, "wav2vec2", 6),
]  # fmt: skip

HELD_OUT = [
    _case(_B, "resnet34", 96, "sgdm"), _case(_B, "resnet101", 48, "adamw", **_BF), _case(_B, "resnet101", 32, **_INFER),
    _case(_B, "wide_resnet50_2", 48, "sgdm", **_BF, **_CL), _case(_B, "inception_v3", 48, "rmsprop"), _case(_B, "mobilenet_v2", 128, "sgdm"),
    _case(_B, "efficientnet_v2_s", 32, **_BF, **_CL), _case(_B, "efficientnet_b3", 32, **_INFER, **_BF), _case(_B, "convnext_small", 24),
    _case(_B, "swin_v2_t", 24, **_BF), _case(_B, "swin_s", 32, **_INFER), _case(_B, "vit_b_32", 128), _case(_B, "vit_b_16_384", 16, dtype="bf16"),
    _case(_B, "maxvit_t", 12, **_BF), _case(_B, "vgg11_bn", 48, "sgdm", **_BF), _case(_B, "densenet169", 24, "sgd_fused"),
    _case(_B, "fcn_resnet50", 12, "sgdm", **_BF), _case(_B, "googlenet", 96, "adam"), _case(_B, "regnet_x_1_6gf", 64, "sgdm", **_CL),
    _case(_B, "s3d", 8, "sgdm"), _case(_B, "distilbert", 48), _case(_B, "roberta", 24, **_BF), _case(_B, "electra", 16, "adamw_fused"),
    _case(_B, "opt", 12, **_BF), _case(_B, "qwen2", 8, "adamw_fused", dtype="bf16"), _case(_B, "gemma2", 8), _case(_B, "falcon", 8, **_INFER),
    _case(_B, "bloom", 8, tf32=True), _case(_B, "hf_vit", 48, dtype="bf16"), _case(_B, "segformer", 24, **_BF), _case(_B, "gru", 64, "adam"),
    _case(_B, "sequence_lstm", 96, "rmsprop"), _case(_B, "diffusion", 16, **_INFER), _case(_B, "autoencoder", 48, "adam", **_CL), _case(_B, "lora", 512),
    _case(_B, "mpnet", 16, **_INFER, **_BF), _case(_B, "t5_encoder", 24), _case(_B, "dinov2", 16, **_BF), _case(_B, "ast", 6, **_BF),
    _case(_C, "repvgg_a2", 48, "sgdm", **_BF, **_CL), _case(_C, "tiny_vit_5m", 48), _case(_C, "poolformer_s12", 32, **_BF),
    _case(_C, "resnetv2_50", 32, "sgdm"), _case(_C, "xception41", 12, "sgdm", **_BF), _case(_C, "hgnetv2_b1", 48, **_BF, **_CL), _case(_C, "cspdarknet53", 24, "adam"),
    _case(_C, "gpt_neox", 8, dtype="bf16"), _case(_C, "gptj", 8, **_BF), _case(_C, "bart", 12), _case(_C, "pegasus", 16, **_INFER), _case(_C, "qwen3", 8, **_BF),
    _case(_C, "gemma3", 8, dtype="bf16"), _case(_C, "phi3", 8, tf32=True), _case(_C, "olmo2", 8, **_INFER, dtype="bf16"), _case(_C, "deepseek_v3", 6, dtype="bf16"),
    _case(_C, "whisper", 8), _case(_C, "experts", 64), _case(_C, "super_resolution", 16, "adam"), _case(_C, "modernbert", 12, **_BF), _case(_C, "clip", 32),
]  # fmt: skip

SETS = {"development": DEVELOPMENT, "held_out": HELD_OUT}


def tag(case: Case) -> str:
    """ "resnet50 48 train sgdm amp=bf16"."""
    plain = [
        case["model"],
        str(case["batch"]),
        case["mode"],
        *([case["opt"]] if case["mode"] == "train" else []),
    ]
    return " ".join(
        [
            *plain,
            *(
                f"{name}={value}"
                for name, value in case.items()
                if name not in ("zoo", "model", "batch", "mode", "opt")
            ),
        ]
    )
