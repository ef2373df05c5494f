"""Models of the third held-out set: name -> (make_model, make_batch(batch) -> ((inputs, ...), target), loss(output, target)).

From timm, transformers (small configurations, random weights), `own_images`, `own_sequences` and `own_sets`; none of these
architectures is in the other sets. They were chosen, and predicted, before any of them was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.subjects.networks import own_images, own_sequences, own_sets
from benchmarks.subjects.networks.kinds import (
    OPT,
    Model,
    by_logits,
    cross_entropy,
    images,
    labelled_tokens,
    language,
    masks,
    mse,
    per_token,
    timm,
    tokens,
    volumes,
)

__all__ = ["OPT", "M"]


def of_size(size: int, classes: int = 1000) -> Callable[[int], Any]:
    return lambda batch: images(batch, size, classes)


class Named(nn.Module):
    """A model that is called with its inputs by name."""

    def __init__(self, model: nn.Module, *names: str, **more: Any) -> None:
        super().__init__()
        self.model, self.names, self.more = model, names, more

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.model(**dict(zip(self.names, inputs, strict=True)), **self.more)


def named(make: Callable[[], nn.Module], *names: str, **more: Any) -> Callable[[], nn.Module]:
    return lambda: Named(make(), *names, **more)


def checkpointed(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        model: Any = make()
        model.gradient_checkpointing_enable()
        return model

    return made


def two_texts(source: int, target: int, vocabulary: int) -> Callable[[int], Any]:
    def make(batch: int) -> Any:
        given = tuple(torch.randint(2, vocabulary, (batch, length)) for length in (source, target))
        return given, torch.randint(2, vocabulary, (batch, target))

    return make


def first_token(output: Any, target: Any) -> Any:
    """A classification of the first token's state."""
    return F.cross_entropy(output.last_hidden_state[:, 0], target)


def both_heads(output: Any, target: Any) -> Any:
    """The classifier and the one distilled from a teacher, where training has both."""
    return cross_entropy((output[0] + output[1]) / 2 if isinstance(output, tuple) else output, target)


def contrastive(output: Any, target: Any) -> Any:
    return F.cross_entropy(output.logits_per_image, target)


def upscaled(output: Any, target: Any) -> Any:
    return F.cross_entropy(
        F.interpolate(output.logits, size=target.shape[-2:], mode="bilinear", align_corners=False), target
    )


def forecast(output: Any, target: Any) -> Any:
    return F.mse_loss(output.prediction_outputs, target)


def detected(output: Any, target: Any) -> Any:
    return F.cross_entropy(output.logits.flatten(0, 1), target.flatten()) + output.pred_boxes.abs().mean()


def ctc(output: Any, target: Any) -> Any:
    time, batch = output.shape[:2]
    lengths = torch.full((batch,), time, dtype=torch.int32)
    return F.ctc_loss(output, target, lengths, torch.full((batch,), target.shape[1], dtype=torch.int32))


def margins(output: Any, target: Any) -> Any:
    """Capsules' margin loss."""
    wanted = F.one_hot(target, 10).to(output.dtype)
    return (
        (wanted * F.relu(0.9 - output) ** 2 + 0.5 * (1 - wanted) * F.relu(output - 0.1) ** 2).sum(-1).mean()
    )


def binary(output: Any, target: Any) -> Any:
    return F.binary_cross_entropy_with_logits(output, target)


def of_nodes(output: Any, target: Any) -> Any:
    return F.nll_loss(F.log_softmax(output, -1), target)


def graph(batch: int) -> Any:
    nodes, edges = 200 * batch, 1600 * batch
    return (torch.randn(nodes, 64), torch.randint(0, nodes, (2, edges))), torch.randint(0, 12, (nodes,))


def sound_and_words(batch: int) -> Any:
    return (torch.randn(batch, 80, 400), torch.randint(0, 64, (batch, 40))), torch.randint(0, 64, (batch, 40))


def clicks(batch: int) -> Any:
    return (torch.randn(batch, 13), torch.randint(0, 20000, (batch, 8, 5))), torch.rand(batch)


SMALL = {"hidden_size": 384, "num_hidden_layers": 4, "num_attention_heads": 6, "intermediate_size": 1536}
LM = {
    **SMALL,
    "vocab_size": 16000,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
NO_KV = {k: v for k, v in LM.items() if k not in ("num_key_value_heads", "head_dim")}
SEQ = {
    "vocab_size": 12000,
    "d_model": 384,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 6,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 1536,
    "decoder_ffn_dim": 1536,
    "max_position_embeddings": 512,
    "use_cache": False,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}

M: dict[str, Model] = {
    "convnextv2_nano": (timm("convnextv2_nano"), of_size(224), cross_entropy),
    "coatnet_nano": (timm("coatnet_nano_rw_224"), of_size(224), cross_entropy),
    "efficientformer_l1": (timm("efficientformer_l1"), of_size(224), cross_entropy),
    "edgenext_small": (timm("edgenext_small"), of_size(256), cross_entropy),
    "mobilevitv2_100": (timm("mobilevitv2_100"), of_size(256), cross_entropy),
    "fastvit_t8": (timm("fastvit_t8"), of_size(256), cross_entropy),
    "tiny_vit_5m": (timm("tiny_vit_5m_224"), of_size(224), cross_entropy),
    "davit_tiny": (timm("davit_tiny"), of_size(224), cross_entropy),
    "cait_xxs24": (timm("cait_xxs24_224"), of_size(224), cross_entropy),
    "xcit_tiny_12": (timm("xcit_tiny_12_p16_224"), of_size(224), cross_entropy),
    "crossvit_9": (timm("crossvit_9_240"), of_size(240), cross_entropy),
    "pvt_v2_b1": (timm("pvt_v2_b1"), of_size(224), cross_entropy),
    "poolformer_s12": (timm("poolformer_s12"), of_size(224), cross_entropy),
    "nfnet_f0": (timm("dm_nfnet_f0"), of_size(192), cross_entropy),
    "rexnet_100": (timm("rexnet_100"), of_size(224), cross_entropy),
    "regnety_016": (timm("regnety_016"), of_size(288), cross_entropy),
    "regnetz_b16": (timm("regnetz_b16"), of_size(224), cross_entropy),
    "hrnet_w18_small": (timm("hrnet_w18_small"), of_size(224), cross_entropy),
    "dla34": (timm("dla34"), of_size(160), cross_entropy),
    "repvgg_a2": (timm("repvgg_a2"), of_size(192), cross_entropy),
    "ghostnet_100": (timm("ghostnet_100"), of_size(224), cross_entropy),
    "mixnet_s": (timm("mixnet_s"), of_size(224), cross_entropy),
    "hardcorenas_a": (timm("hardcorenas_a"), of_size(224), cross_entropy),
    "ese_vovnet19b": (timm("ese_vovnet19b_dw"), of_size(288), cross_entropy),
    "dpn68": (timm("dpn68"), of_size(224), cross_entropy),
    "res2net50": (timm("res2net50_26w_4s"), of_size(224), cross_entropy),
    "resnest14d": (timm("resnest14d"), of_size(224), cross_entropy),
    "skresnet18": (timm("skresnet18"), of_size(224), cross_entropy),
    "inception_next": (timm("inception_next_atto"), of_size(224), cross_entropy),
    "hiera_tiny": (timm("hiera_tiny_224"), of_size(224), cross_entropy),
    "focalnet_tiny": (timm("focalnet_tiny_srf"), of_size(224), cross_entropy),
    "gcvit_xxtiny": (timm("gcvit_xxtiny"), of_size(224), cross_entropy),
    "volo_d1": (timm("volo_d1_224"), of_size(224), cross_entropy),
    "mambaout_femto": (timm("mambaout_femto"), of_size(288), cross_entropy),
    "starnet_s2": (timm("starnet_s2"), of_size(224), cross_entropy),
    "repvit_m1": (timm("repvit_m1"), of_size(224), both_heads),
    "efficientvit_b1": (timm("efficientvit_b1"), of_size(224), cross_entropy),
    "mobilenetv4_small": (timm("mobilenetv4_conv_small"), of_size(256), cross_entropy),
    "mobileone_s0": (timm("mobileone_s0"), of_size(224), cross_entropy),
    "resnetv2_50": (timm("resnetv2_50"), of_size(224), cross_entropy),
    "seresnext26t": (timm("seresnext26t_32x4d"), of_size(240), cross_entropy),
    "cspdarknet53": (timm("cspdarknet53"), of_size(256), cross_entropy),
    "hgnetv2_b1": (timm("hgnetv2_b1"), of_size(224), cross_entropy),
    "twins_svt_small": (timm("twins_svt_small"), of_size(224), cross_entropy),
    "vit_checkpointed": (timm("vit_small_patch16_384", checkpointed=True), of_size(384), cross_entropy),
    "mixer_s16": (timm("mixer_s16_224"), of_size(224), cross_entropy),
    "tf_efficientnet_b1": (timm("tf_efficientnet_b1"), of_size(240), cross_entropy),
    "xception41": (timm("xception41"), of_size(299), cross_entropy),
    "sequencer2d_s": (timm("sequencer2d_s"), of_size(224), cross_entropy),
    "deberta": (language("DebertaForSequenceClassification", "DebertaConfig", num_labels=3, vocab_size=20000, **SMALL), lambda b: labelled_tokens(b, 160, 20000, 3), by_logits),
    "t5": (named(language("T5ForConditionalGeneration", "T5Config", vocab_size=12000, d_model=384, d_kv=64, d_ff=1024, num_layers=3, num_heads=6, decoder_start_token_id=0, use_cache=False), "input_ids", "decoder_input_ids", use_cache=False), two_texts(192, 64, 12000), per_token),
    "bart": (named(language("BartForConditionalGeneration", "BartConfig", **SEQ), "input_ids", "decoder_input_ids"), two_texts(256, 96, 12000), per_token),
    "pegasus": (named(language("PegasusForConditionalGeneration", "PegasusConfig", **SEQ), "input_ids", "decoder_input_ids"), two_texts(192, 48, 12000), per_token),
    "gpt_neox": (language("GPTNeoXForCausalLM", "GPTNeoXConfig", **NO_KV), lambda b: tokens(b, 256, 16000), per_token),
    "gptj": (language("GPTJForCausalLM", "GPTJConfig", vocab_size=16000, n_positions=512, n_embd=384, n_layer=4, n_head=6, rotary_dim=32, use_cache=False), lambda b: tokens(b, 192, 16000), per_token),
    "mixtral": (language("MixtralForCausalLM", "MixtralConfig", **{**LM, "intermediate_size": 768}, num_local_experts=4), lambda b: tokens(b, 128, 16000), per_token),
    "qwen3": (language("Qwen3ForCausalLM", "Qwen3Config", **LM), lambda b: tokens(b, 384, 16000), per_token),
    "qwen3_moe": (language("Qwen3MoeForCausalLM", "Qwen3MoeConfig", **LM, **EXPERTS), lambda b: tokens(b, 256, 16000), per_token),
    "gemma3": (language("Gemma3ForCausalLM", "Gemma3TextConfig", **LM, sliding_window=128), lambda b: tokens(b, 256, 16000), per_token),
    "phi3": (checkpointed(language("Phi3ForCausalLM", "Phi3Config", **{k: v for k, v in LM.items() if k != "head_dim"})), lambda b: tokens(b, 320, 16000), per_token),
    "olmo2": (language("Olmo2ForCausalLM", "Olmo2Config", **{k: v for k, v in LM.items() if k != "head_dim"}), lambda b: tokens(b, 256, 16000), per_token),
    "gpt_oss": (language("GptOssForCausalLM", "GptOssConfig", **{**LM, "intermediate_size": 512}, num_local_experts=4, num_experts_per_tok=2, sliding_window=64, layer_types=["sliding_attention", "full_attention"] * 2), lambda b: tokens(b, 128, 16000), per_token),
    "deepseek_v3": (language("DeepseekV3ForCausalLM", "DeepseekV3Config", **{k: v for k, v in LM.items() if k not in ("head_dim", "num_key_value_heads")}, num_key_value_heads=6, n_routed_experts=8, n_group=2, topk_group=1, num_experts_per_tok=2, moe_intermediate_size=512, first_k_dense_replace=2, q_lora_rank=192, kv_lora_rank=128, qk_rope_head_dim=32, qk_nope_head_dim=64, v_head_dim=64), lambda b: tokens(b, 192, 16000), per_token),
    "modernbert": (language("ModernBertForMaskedLM", "ModernBertConfig", vocab_size=20000, pad_token_id=0, local_attention=64, **SMALL), lambda b: tokens(b, 256, 20000), per_token),
    "rwkv": (language("RwkvForCausalLM", "RwkvConfig", vocab_size=8000, context_length=128, hidden_size=256, num_hidden_layers=2, use_cache=False), lambda b: tokens(b, 48, 8000), per_token),
    "mamba2": (language("Mamba2ForCausalLM", "Mamba2Config", vocab_size=8000, hidden_size=256, num_hidden_layers=3, num_heads=8, head_dim=64, n_groups=2, state_size=64, chunk_size=64, use_cache=False), lambda b: tokens(b, 192, 8000), per_token),
    "convbert": (language("ConvBertForSequenceClassification", "ConvBertConfig", num_labels=5, vocab_size=20000, embedding_size=384, **SMALL), lambda b: labelled_tokens(b, 128, 20000, 5), by_logits),
    "longformer": (language("LongformerForSequenceClassification", "LongformerConfig", num_labels=4, vocab_size=20000, attention_window=[64] * 4, max_position_embeddings=514, pad_token_id=1, **SMALL), lambda b: labelled_tokens(b, 256, 20000, 4), by_logits),
    "big_bird": (language("BigBirdForSequenceClassification", "BigBirdConfig", num_labels=4, vocab_size=20000, attention_type="original_full", max_position_embeddings=512, **SMALL), lambda b: labelled_tokens(b, 192, 20000, 4), by_logits),
    "mobilebert": (language("MobileBertForSequenceClassification", "MobileBertConfig", num_labels=2, num_hidden_layers=6, vocab_size=20000), lambda b: labelled_tokens(b, 128, 20000, 2), by_logits),
    "fnet": (language("FNetForSequenceClassification", "FNetConfig", num_labels=2, vocab_size=20000, hidden_size=384, num_hidden_layers=4, intermediate_size=1536), lambda b: labelled_tokens(b, 128, 20000, 2), by_logits),
    "xlnet": (language("XLNetForSequenceClassification", "XLNetConfig", num_labels=3, vocab_size=16000, d_model=384, n_layer=4, n_head=6, d_inner=1536), lambda b: labelled_tokens(b, 128, 16000, 3), by_logits),
    "perceiver": (named(language("PerceiverModel", "PerceiverConfig", num_latents=64, d_latents=256, d_model=128, num_blocks=1, num_self_attends_per_block=3, num_self_attention_heads=8, num_cross_attention_heads=8), "inputs"), lambda b: ((torch.randn(b, 512, 128),), torch.randint(0, 256, (b,))), first_token),
    "whisper": (named(language("WhisperForConditionalGeneration", "WhisperConfig", **{**SEQ, "max_source_positions": 500, "max_target_positions": 128, "vocab_size": 12000, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "suppress_tokens": None, "begin_suppress_tokens": None} | {"max_position_embeddings": 128}), "input_features", "decoder_input_ids"), lambda b: ((torch.randn(b, 80, 1000), torch.randint(2, 12000, (b, 64))), torch.randint(2, 12000, (b, 64))), per_token),
    "clip": (named(language("CLIPModel", "CLIPConfig", text_config={**SMALL, "vocab_size": 8000, "max_position_embeddings": 77, "eos_token_id": 2}, vision_config={**SMALL, "image_size": 224, "patch_size": 32}, projection_dim=256), "input_ids", "pixel_values"), lambda b: ((torch.randint(3, 8000, (b, 77)), torch.randn(b, 3, 224, 224)), torch.arange(b)), contrastive),
    "siglip": (named(language("SiglipModel", "SiglipConfig", text_config={**SMALL, "vocab_size": 8000, "max_position_embeddings": 64}, vision_config={**SMALL, "image_size": 192, "patch_size": 16}), "input_ids", "pixel_values"), lambda b: ((torch.randint(3, 8000, (b, 64)), torch.randn(b, 3, 192, 192)), torch.arange(b)), contrastive),
    "segformer_masks": (language("SegformerForSemanticSegmentation", "SegformerConfig", num_labels=21), lambda b: masks(b, 256, 21), upscaled),
    "yolos": (language("YolosForObjectDetection", "YolosConfig", image_size=[256, 320], num_detection_tokens=50, num_labels=20, **SMALL), lambda b: ((torch.randn(b, 3, 256, 320),), torch.randint(0, 21, (b, 50))), detected),
    "cvt": (language("CvtForImageClassification", "CvtConfig", num_labels=50), lambda b: images(b, 224, 50), by_logits),
    "dpt": (language("DPTForSemanticSegmentation", "DPTConfig", num_labels=12, image_size=224, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[48, 96, 192, 384], fusion_hidden_size=128, is_hybrid=False, **SMALL), lambda b: masks(b, 224, 12), upscaled),
    "swin2sr": (language("Swin2SRForImageSuperResolution", "Swin2SRConfig", image_size=64, embed_dim=96, depths=[2, 2], num_heads=[4, 4], window_size=8, upscale=2), lambda b: ((torch.randn(b, 3, 64, 64),), torch.randn(b, 3, 128, 128)), lambda output, target: F.l1_loss(output.reconstruction, target)),
    "videomae": (language("VideoMAEForVideoClassification", "VideoMAEConfig", num_labels=30, image_size=160, num_frames=8, **SMALL), lambda b: ((torch.randn(b, 8, 3, 160, 160),), torch.randint(0, 30, (b,))), by_logits),
    "wavlm": (language("WavLMForSequenceClassification", "WavLMConfig", num_labels=8, apply_spec_augment=False, layerdrop=0.0, **SMALL), lambda b: ((torch.randn(b, 40000),), torch.randint(0, 8, (b,))), by_logits),
    "patchtst": (named(language("PatchTSTForPrediction", "PatchTSTConfig", num_input_channels=7, context_length=336, prediction_length=96, patch_length=16, patch_stride=8, d_model=128, num_hidden_layers=3, num_attention_heads=8, ffn_dim=256), "past_values"), lambda b: ((torch.randn(b, 336, 7),), torch.randn(b, 96, 7)), forecast),
    "noise_predictor": (own_images.NoisePredictor, lambda b: ((torch.randn(b, 3, 48, 48), torch.rand(b) * 1000), torch.randn(b, 3, 48, 48)), mse),
    "volume_unet": (own_images.VolumeUNet, lambda b: volumes(b, 80, 4), cross_entropy),
    "gated_unet": (own_images.GatedUNet, lambda b: masks(b, 192, 6), cross_entropy),
    "gated_unet_checkpointed": (lambda: own_images.GatedUNet(checkpointed=True), lambda b: masks(b, 240, 6), cross_entropy),
    "variational": (own_images.VariationalAutoencoder, lambda b: ((torch.rand(b, 3, 96, 96),), torch.rand(b, 3, 96, 96)), own_images.evidence),
    "super_resolution": (own_images.SuperResolution, lambda b: ((torch.rand(b, 3, 60, 60),), torch.rand(b, 3, 180, 180)), F.l1_loss),
    "detector": (own_images.Detector, lambda b: ((torch.randn(b, 3, 320, 320),), torch.randint(0, 20, (b, 2))), own_images.detection),
    "capsules": (own_images.Capsules, lambda b: images(b, 28, 10, 1), margins),
    "attentive_translator": (own_sequences.AttentiveTranslator, two_texts(30, 24, 6000), per_token),
    "transducer": (own_sequences.Transducer, sound_and_words, own_sequences.transducer_loss),
    "tied_lstm": (own_sequences.TiedLanguageModel, lambda b: tokens(b, 70, 12000), per_token),
    "wavenet": (own_sequences.WaveNet, lambda b: ((torch.randn(b, 1, 4000),), torch.randint(0, 256, (b, 4000))), cross_entropy),
    "convolutional_lstm": (own_sequences.ConvolutionalLSTM, lambda b: ((torch.rand(b, 8, 1, 48, 48),), torch.rand(b, 8, 1, 48, 48)), mse),
    "rotary": (own_sequences.RotaryTransformer, lambda b: tokens(b, 300, 10000), per_token),
    "rotary_checkpointed": (lambda: own_sequences.RotaryTransformer(checkpointed=True), lambda b: tokens(b, 512, 10000), per_token),
    "experts": (own_sequences.Experts, lambda b: ((torch.randn(b, 50, 64),), torch.randint(0, 10, (b,))), cross_entropy),
    "graph_convolutions": (own_sets.GraphConvolutions, graph, of_nodes),
    "points": (own_sets.Points, lambda b: ((torch.randn(b, 3, 1024),), torch.randint(0, 40, (b,))), cross_entropy),
    "recommender": (own_sets.Recommender, clicks, binary),
    "factorization": (own_sets.FactorizationMachine, lambda b: ((torch.randint(0, 2000, (b, 26)),), torch.rand(b)), binary),
    "fourier": (own_sets.FourierOperator, lambda b: ((torch.randn(b, 1, 64, 64),), torch.randn(b, 1, 64, 64)), mse),
    "text_recogniser": (own_sequences.TextRecogniser, lambda b: ((torch.randn(b, 1, 32, 160),), torch.randint(1, 80, (b, 12))), ctc),
    "forecaster": (own_sequences.Forecaster, lambda b: ((torch.randn(b, 168),), torch.randn(b, 24)), F.huber_loss),
    "radiance": (own_sets.RadianceField, lambda b: ((torch.randn(b, 6),), torch.rand(b, 3)), mse),
    "generator": (own_images.Generator, lambda b: ((torch.randn(b, 256),), torch.randn(b, 3, 64, 64)), mse),
    "keywords": (own_sequences.KeywordSpotter, lambda b: ((torch.randn(b, 16000),), torch.randint(0, 35, (b,))), cross_entropy),
    "set_transformer": (own_sets.SetTransformer, lambda b: ((torch.randn(b, 300, 6),), torch.randint(0, 15, (b,))), cross_entropy),
    "contrastive": (own_sets.Contrastive, lambda b: ((torch.randn(b, 3, 160, 160), torch.randint(0, 5000, (b, 32))), torch.arange(b)), own_sets.contrast),
    "state_space": (own_sequences.StateSpace, lambda b: ((torch.randn(b, 500, 12),), torch.randint(0, 5, (b,))), cross_entropy),
}  # fmt: skip
