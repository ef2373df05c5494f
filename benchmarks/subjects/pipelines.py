"""Configurations of eight public diffusion pipelines, written as folders.

Sources: the defaults of diffusers' classes, which are those of the named model unless a key is given here;
`scripts/convert_*_to_diffusers.py` of diffusers for the keys; transformers' defaults for text encoders.
A folder has `model_index.json` and one configuration a component, as `save_pretrained` lays it out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CLIP_L = {"model_type": "clip_text_model", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
          "num_attention_heads": 12, "projection_dim": 768, "vocab_size": 49408, "hidden_act": "quick_gelu"}  # fmt: skip
CLIP_G = CLIP_L | {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32,
                   "num_attention_heads": 20, "projection_dim": 1280, "hidden_act": "gelu"}  # fmt: skip
T5_XXL = {"model_type": "t5", "d_model": 4096, "d_ff": 10240, "d_kv": 64, "num_layers": 24, "num_heads": 64,
          "vocab_size": 32128, "feed_forward_proj": "gated-gelu", "is_gated_act": True, "dense_act_fn": "gelu_new"}  # fmt: skip
UMT5_XXL = T5_XXL | {"model_type": "umt5", "vocab_size": 256384}
LLAMA_8B = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128320}  # fmt: skip
QWEN_VL_7B = {
    "model_type": "qwen2_5_vl",
    "text_config": {"model_type": "qwen2_5_vl_text", "hidden_size": 3584, "intermediate_size": 18944,
                    "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
                    "vocab_size": 152064},
    "vision_config": {"model_type": "qwen2_5_vl", "hidden_size": 1280, "out_hidden_size": 3584, "depth": 32},
}  # fmt: skip
VAE = {"block_out_channels": [128, 256, 512, 512], "down_block_types": ["DownEncoderBlock2D"] * 4,
       "up_block_types": ["UpDecoderBlock2D"] * 4, "layers_per_block": 2}  # fmt: skip
VAE_16 = VAE | {"latent_channels": 16, "use_quant_conv": False, "use_post_quant_conv": False,
                "scaling_factor": 1.5305, "shift_factor": 0.0609, "sample_size": 1024}  # fmt: skip
FLOW = {"shift": 3.0}

PIPELINES: dict[str, dict[str, Any]] = {
    "sd15": {
        "_class_name": "StableDiffusionPipeline",
        "vae": ("diffusers", "AutoencoderKL", VAE | {"sample_size": 512}),
        "text_encoder": ("transformers", "CLIPTextModel", CLIP_L),
        "tokenizer": ("transformers", "CLIPTokenizer", {}),
        "unet": ("diffusers", "UNet2DConditionModel", {"cross_attention_dim": 768, "sample_size": 64}),
        "scheduler": ("diffusers", "PNDMScheduler", {"skip_prk_steps": True, "steps_offset": 1,
                                                     "beta_schedule": "scaled_linear"}),
        "safety_checker": None,
        "feature_extractor": None,
        "requires_safety_checker": False,
    },
    "sdxl": {
        "_class_name": "StableDiffusionXLPipeline",
        "vae": ("diffusers", "AutoencoderKL", VAE | {"sample_size": 1024, "scaling_factor": 0.13025,
                                                     "force_upcast": True}),
        "text_encoder": ("transformers", "CLIPTextModel", CLIP_L),
        "text_encoder_2": ("transformers", "CLIPTextModelWithProjection", CLIP_G),
        "tokenizer": ("transformers", "CLIPTokenizer", {}),
        "tokenizer_2": ("transformers", "CLIPTokenizer", {}),
        "unet": ("diffusers", "UNet2DConditionModel", {
            "sample_size": 128, "block_out_channels": [320, 640, 1280], "cross_attention_dim": 2048,
            "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
            "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
            "transformer_layers_per_block": [1, 2, 10], "attention_head_dim": [5, 10, 20],
            "use_linear_projection": True, "addition_embed_type": "text_time", "addition_time_embed_dim": 256,
            "projection_class_embeddings_input_dim": 2816}),
        "scheduler": ("diffusers", "EulerDiscreteScheduler", {"beta_schedule": "scaled_linear"}),
    },
    "sd35": {  # Stable Diffusion 3.5 medium
        "_class_name": "StableDiffusion3Pipeline",
        "vae": ("diffusers", "AutoencoderKL", VAE_16),
        "text_encoder": ("transformers", "CLIPTextModelWithProjection", CLIP_L),
        "text_encoder_2": ("transformers", "CLIPTextModelWithProjection", CLIP_G),
        "text_encoder_3": ("transformers", "T5EncoderModel", T5_XXL),
        "tokenizer": ("transformers", "CLIPTokenizer", {}),
        "tokenizer_2": ("transformers", "CLIPTokenizer", {}),
        "tokenizer_3": ("transformers", "T5TokenizerFast", {}),
        "transformer": ("diffusers", "SD3Transformer2DModel", {
            "num_layers": 24, "num_attention_heads": 24, "caption_projection_dim": 1536,
            "pos_embed_max_size": 384, "qk_norm": "rms_norm", "dual_attention_layers": list(range(13))}),
        "scheduler": ("diffusers", "FlowMatchEulerDiscreteScheduler", FLOW),
    },
    "flux": {
        "_class_name": "FluxPipeline",
        "vae": ("diffusers", "AutoencoderKL", VAE_16 | {"scaling_factor": 0.3611, "shift_factor": 0.1159}),
        "text_encoder": ("transformers", "CLIPTextModel", CLIP_L),
        "text_encoder_2": ("transformers", "T5EncoderModel", T5_XXL),
        "tokenizer": ("transformers", "CLIPTokenizer", {}),
        "tokenizer_2": ("transformers", "T5TokenizerFast", {}),
        "transformer": ("diffusers", "FluxTransformer2DModel", {"guidance_embeds": True}),
        "scheduler": ("diffusers", "FlowMatchEulerDiscreteScheduler", FLOW | {"use_dynamic_shifting": True}),
    },
    "qwen-image": {
        "_class_name": "QwenImagePipeline",
        "vae": ("diffusers", "AutoencoderKLQwenImage", {}),
        "text_encoder": ("transformers", "Qwen2_5_VLForConditionalGeneration", QWEN_VL_7B),
        "tokenizer": ("transformers", "Qwen2Tokenizer", {}),
        "transformer": ("diffusers", "QwenImageTransformer2DModel", {}),
        "scheduler": ("diffusers", "FlowMatchEulerDiscreteScheduler", {"use_dynamic_shifting": True}),
    },
    "wan-1.3b": {
        "_class_name": "WanPipeline",
        "vae": ("diffusers", "AutoencoderKLWan", {}),
        "text_encoder": ("transformers", "UMT5EncoderModel", UMT5_XXL),
        "tokenizer": ("transformers", "T5TokenizerFast", {}),
        "transformer": ("diffusers", "WanTransformer3DModel", {
            "num_attention_heads": 12, "num_layers": 30, "ffn_dim": 8960}),
        "scheduler": ("diffusers", "UniPCMultistepScheduler", {
            "prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}),
    },
    "wan-14b": {
        "_class_name": "WanPipeline",
        "vae": ("diffusers", "AutoencoderKLWan", {}),
        "text_encoder": ("transformers", "UMT5EncoderModel", UMT5_XXL),
        "tokenizer": ("transformers", "T5TokenizerFast", {}),
        "transformer": ("diffusers", "WanTransformer3DModel", {}),
        "scheduler": ("diffusers", "UniPCMultistepScheduler", {
            "prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}),
    },
    "hunyuan-video": {
        "_class_name": "HunyuanVideoPipeline",
        "vae": ("diffusers", "AutoencoderKLHunyuanVideo", {}),
        "text_encoder": ("transformers", "LlamaModel", LLAMA_8B),
        "text_encoder_2": ("transformers", "CLIPTextModel", CLIP_L),
        "tokenizer": ("transformers", "LlamaTokenizerFast", {}),
        "tokenizer_2": ("transformers", "CLIPTokenizer", {}),
        "transformer": ("diffusers", "HunyuanVideoTransformer3DModel", {}),
        "scheduler": ("diffusers", "FlowMatchEulerDiscreteScheduler", {"shift": 7.0}),
    },
    "ltx": {
        "_class_name": "LTXPipeline",
        "vae": ("diffusers", "AutoencoderKLLTXVideo", {}),
        "text_encoder": ("transformers", "T5EncoderModel", T5_XXL),
        "tokenizer": ("transformers", "T5TokenizerFast", {}),
        "transformer": ("diffusers", "LTXVideoTransformer3DModel", {}),
        "scheduler": ("diffusers", "FlowMatchEulerDiscreteScheduler", {"use_dynamic_shifting": True,
                      "base_shift": 0.95, "max_shift": 2.05, "base_image_seq_len": 1024,
                      "shift_terminal": 0.1}),
    },
}  # fmt: skip


def write(name: str, folder: Path) -> Path:
    """Write a pipeline's configurations into a folder; returns it."""
    index: dict[str, Any] = {}
    for part, value in PIPELINES[name].items():
        if not isinstance(value, tuple):
            index[part] = [None, None] if value is None else value
            continue
        library, kind, config = value
        index[part] = [library, kind]
        if "Tokenizer" in kind:
            continue
        (folder / part).mkdir(parents=True, exist_ok=True)
        file = "scheduler_config.json" if "Scheduler" in kind else "config.json"
        (folder / part / file).write_text(json.dumps({"_class_name": kind, **config}, indent=1))
    (folder / "model_index.json").write_text(json.dumps(index, indent=1))
    return folder
