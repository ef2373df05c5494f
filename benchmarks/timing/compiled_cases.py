"""The measured compiled programs: `torch.compile` of the model, loss and optimizer uncompiled.

"compile" is its mode: "default", or "reduce-overhead" (CUDA graphs). As in `cases.py`, `DEVELOPMENT` was looked at kernel by kernel
while rules were written, and of `HELD_OUT` only the totals were recorded.
"""

from __future__ import annotations

from benchmarks.timing.cases import _case

_A, _B, _C = "development", "held_out", "held_out_3"
_BF, _CL, _INFER, _HALF = {"amp": "bf16"}, {"channels_last": True}, {"mode": "infer"}, {"dtype": "bf16"}
_PLAIN, _GRAPHS = {"compile": "default"}, {"compile": "reduce-overhead"}

DEVELOPMENT = [
    _case(_A, "resnet50", 64, "sgdm", **_PLAIN), _case(_A, "resnet50", 96, "sgdm", **_BF, **_CL, **_PLAIN),
    _case(_A, "resnet18", 64, **_INFER, **_PLAIN), _case(_A, "resnet18", 16, **_INFER, **_BF, **_GRAPHS), _case(_A, "gpt2", 8, **_PLAIN),
    _case(_A, "gpt2", 12, **_BF, **_PLAIN), _case(_A, "bert", 16, "adamw_fused", **_BF, **_GRAPHS), _case(_A, "vit_b_16", 48, **_INFER, **_HALF, **_PLAIN),
    _case(_A, "unet", 8, "adam", **_PLAIN), _case(_A, "llama_tiny", 8, **_HALF, **_PLAIN), _case(_A, "llama_tiny", 8, **_INFER, **_HALF, **_GRAPHS),
    _case(_A, "convnext_tiny", 32, **_BF, **_PLAIN), _case(_A, "mobilenet_v3_large", 96, **_INFER, **_BF, **_PLAIN),
    _case(_A, "mnist_fc", 8192, "sgd", **_PLAIN), _case(_B, "diffusion", 32, **_BF, **_GRAPHS), _case(_C, "noise_predictor", 16, **_PLAIN),
]  # fmt: skip

HELD_OUT = [
    _case(_B, "resnet34", 96, "sgdm", **_PLAIN), _case(_B, "vgg11_bn", 48, "sgdm", **_BF, **_CL, **_PLAIN), _case(_B, "resnet101", 32, **_INFER, **_GRAPHS),
    _case(_B, "mobilenet_v2", 64, "sgdm", **_PLAIN), _case(_B, "distilbert", 48, **_PLAIN), _case(_B, "roberta", 24, **_BF, **_GRAPHS),
    _case(_B, "opt", 12, **_BF, **_PLAIN), _case(_B, "qwen2", 8, "adamw_fused", **_HALF, **_GRAPHS), _case(_B, "hf_vit", 48, **_HALF, **_PLAIN),
    _case(_C, "super_resolution", 16, "adam", **_PLAIN), _case(_B, "autoencoder", 48, "adam", **_CL, **_GRAPHS), _case(_B, "diffusion", 16, **_INFER, **_GRAPHS),
    _case(_C, "gpt_neox", 8, **_INFER, **_HALF, **_PLAIN), _case(_B, "t5_encoder", 24, tf32=True, **_PLAIN), _case(_C, "mixer_s16", 64, "adamw_fused", **_BF, **_PLAIN),
    _case(_C, "repvgg_a2", 48, **_INFER, **_BF, **_CL, **_PLAIN), _case(_B, "bloom", 8, **_PLAIN),
]  # fmt: skip

SETS = {"development": DEVELOPMENT, "held_out": HELD_OUT}
