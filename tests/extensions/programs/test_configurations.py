"""`analyze config.json`: to the byte what a GPU took for the scripts that say the same, and what is refused.

Measured: `tests/data/h200/language_models.json`, each row's script having been written without this project, or by
`--write-script`; `configurations.json`, by `benchmarks/language_models/measured_cases.py`.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import analyzer
from analyzer.errors import DoesNotFit, MissingDependencyError, OptionError, TargetError
from tests.paths import MODELS

pytestmark = pytest.mark.skipif(
    not all(
        importlib.util.find_spec(name) for name in ("transformers", "peft", "accelerate", "bitsandbytes")
    ),
    reason="the user's own packages are not here",
)
DATA = Path(__file__).parents[2] / "data" / "h200"
MEASURED = json.loads((DATA / "language_models.json").read_text())
CASES = json.loads((DATA / "configurations.json").read_text())
QUICK = ("lora_gc",)
# What is quick here, of every kind; the others with `-m campaign`.
QUICK_CASES = (
    "vision_train", "classification_train", "states_mamba2", "phi3_full", "infer_8b_8k", "moe_full", "hybrid_qwen3_next",
    "stored_8bit_infer", "stored_fp8_dequantized_experts",
)  # fmt: skip
# transformers loads experts in threads, in an order only a run has: what is allocated at the most may then lie in other blocks.
BY_TIME = ("generate_moe", "moe_full", "moe_lora", "moe_qwen3", "latent_attention_infer", "latent_attention_train", "hybrid_qwen3_next")  # fmt: skip


# Weights that threads read while the program turns them back, or takes them in one by one: how far they are ahead only a run has.
READ_AHEAD = (
    "stored_8bit_lora",
    "stored_fp8_dequantized",
    "stored_fp8_dequantized_lora",
    "stored_fp8_dequantized_experts",
)


def written(folder: Path, document: dict[str, Any]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(document))
    return str(path)


def tiny(**said: Any) -> dict[str, Any]:
    return {
        "model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, **said,
    }  # fmt: skip


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=() if row["name"] in QUICK else pytest.mark.campaign, id=row["name"])
        for row in MEASURED["rows"]
        if row["name"] in ("lora_gc", "qlora_gc_8bit", "generate_static")
    ],
)
def test_what_a_gpu_took(tmp_path: Path, row: dict[str, Any]) -> None:
    config = written(tmp_path, MEASURED["configs"][row["config"]])
    estimate = analyzer.analyze(config, release={"torch": "2.11"}, **row["options"])
    assert (estimate.peak_allocated, estimate.peak_reserved) == (row["peak_allocated"], row["peak_reserved"])


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=() if row["name"] in QUICK_CASES else pytest.mark.campaign, id=row["name"])
        for row in CASES["rows"]
    ],
)
@pytest.mark.sampled(3)
def test_what_a_gpu_took_for_a_configuration(tmp_path: Path, row: dict[str, Any]) -> None:
    config = written(tmp_path, CASES["configs"][row["config"]])
    estimate = analyzer.analyze(config, release={"torch": "2.11"}, device="h200", **row["options"])
    if row["name"] in BY_TIME:
        assert estimate.peak_allocated == pytest.approx(row["peak_allocated"], rel=0.002)
        assert estimate.peak_reserved == pytest.approx(row["peak_reserved"], rel=0.035)
        least, most = estimate.reserved_range
        assert least <= row["peak_reserved"] <= most
        return
    if row["name"] in READ_AHEAD:
        assert estimate.peak_allocated == row["peak_allocated"]
        least, most = estimate.reserved_range
        assert least <= row["peak_reserved"] <= most
        return
    assert (estimate.peak_allocated, estimate.peak_reserved) == (row["peak_allocated"], row["peak_reserved"])
    assert estimate.device_used == pytest.approx(row["nvml_peak"], rel=0.01)


def test_the_same_bytes_as_the_script_that_is_written(tmp_path: Path) -> None:
    from analyzer.options import Options
    from analyzer.pipeline.config import script_of

    config = written(tmp_path, tiny())
    said = {"mode": "train", "batch": 2, "length": 16, "optimizer": "adafactor"}
    script = tmp_path / "train.py"
    script.write_text(script_of(config, Options.of(said)))
    ours, followed = analyzer.analyze(config, **said), analyzer.run(script)
    assert ours.peak_allocated == followed.peak_allocated > 0
    assert ours.peak_reserved == followed.peak_reserved
    assert ours.target == f"{config} (causal-lm, length 16)"
    assert (ours.mode, ours.optimizer, ours.batch) == ("train", "adafactor", 2)


def test_weights_of_a_forward_pass_by_hand(tmp_path: Path) -> None:
    """Untied float32 weights of two layers, and nothing of the checkpoint beside them on the GPU."""
    config = written(tmp_path, tiny(tie_word_embeddings=False))
    layer = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48 + 2 * 32
    estimate = analyzer.analyze(config, length=8)
    assert estimate.naive.weights == 4 * (
        2 * 64 * 32 + 2 * layer + 32 + 4 + 4
    )  # and RoPE's 4 frequencies, twice
    assert estimate.mode == "infer"


def test_other_tasks(tmp_path: Path) -> None:
    vision = {"model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 32, "image_size": 32,
              "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "patch_size": 16}  # fmt: skip
    assert analyzer.analyze(written(tmp_path, vision), mode="train", batch=2).peak_allocated > 0
    t5 = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 32, "d_ff": 64, "d_kv": 8,
          "num_layers": 1, "num_heads": 4, "vocab_size": 64, "decoder_start_token_id": 0}  # fmt: skip
    assert analyzer.analyze(written(tmp_path, t5), mode="generate", new_tokens=3, length=8).mode == "generate"


def test_what_a_serving_engine_has_room_for(tmp_path: Path) -> None:
    """Its weights are those of the forward pass; the cache's blocks by hand: 2 layers x 2 kv heads x 16 tokens x (8 + 8) x 4 bytes."""
    from analyzer_serving.serving import serving

    config = written(tmp_path, tiny())
    found = serving(config, device="8GiB", length=100, batched_tokens=64, utilization=0.5)
    plain = analyzer.analyze(config, length=64, device="8GiB")
    assert found.budget is not None and found.budget.weights == plain.naive.weights
    assert found.budget.activations == plain.peak_allocated - plain.naive.weights
    assert found.blocks == found.budget.cache_bytes // (2 * 2 * 16 * 16 * 4)
    assert found.requests == found.blocks / 7 and found.bounded == ("activations",)  # 100 tokens are 7 blocks
    with pytest.raises(OptionError, match="what one of 2 GPUs holds"):
        serving(config, device="8GiB", length=100, ranks=2)
    said = serving(config, length=100, ranks=2, available=2**20)
    assert said.blocks == 2**20 // (2 * 1 * 16 * 16 * 4) and said.budget is None
    with pytest.raises(DoesNotFit, match="ends without memory"):
        serving(config, device="2GiB", length=100, batched_tokens=2_000_000)


def test_state_of_paged_optimizers_is_no_part_of_the_allocator_s(tmp_path: Path) -> None:
    """Adapters of at least 100,000 elements (three a layer: q's two, v's first) have two states of a byte in managed memory."""
    config = written(tmp_path, tiny(hidden_size=256, num_attention_heads=4, num_key_value_heads=2))
    said = {"mode": "train", "lora": "r=400,targets=q_proj+v_proj", "length": 8}
    paged = analyzer.analyze(config, optimizer="paged_adamw_8bit", **said)
    assert any(note.startswith(f"{2 * 3 * 400 * 256 * 2 / 2**20:.1f} MiB of paged") for note in paged.notes)
    assert paged.incomplete is None


def test_weights_of_8_bits_as_pytorchs_own_binary_takes_them(tmp_path: Path) -> None:
    """LLM.int8 with adapters in the script's own words, two steps: what torch 2.11.0+cu130 took of the emulated runtime
    (`analyze emulate`, bitsandbytes 0.50.2, transformers 5.17.0)."""
    config = written(
        tmp_path,
        tiny(
            vocab_size=4096, hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8,
            num_key_value_heads=4,
        ),
    )  # fmt: skip
    said = {
        "mode": "train",
        "length": 256,
        "batch": 2,
        "steps": 2,
        "dtype": "float16",
        "optimizer": "adamw_torch",
    }
    estimate = analyzer.analyze(
        config,
        device="h200",
        release={"torch": "2.11"},
        lora="r=8,targets=q_proj+v_proj",
        load_in_8bit=True,
        **said,
    )
    assert (estimate.peak_allocated, estimate.peak_reserved) == (219_169_792, 255_852_544)


@pytest.mark.parametrize("spread", ["ddp:2", "fsdp2:2,mixed=bf16,rank=1", "fsdp2:4"])
@pytest.mark.sampled(2)
def test_one_rank_of_a_spread_configuration(tmp_path: Path, spread: str) -> None:
    """The same bytes as the script by itself under torchrun; of a sharded model a rank has its share of weights and states."""
    from analyzer.options import Options
    from analyzer.parallelism import parse
    from analyzer.pipeline.config import script_of

    config = written(tmp_path, tiny(vocab_size=512, hidden_size=128, intermediate_size=256))
    said = {"mode": "train", "batch": 2, "length": 16, "parallel": spread, "optimizer": "adamw_torch"}
    script = tmp_path / "train.py"
    script.write_text(script_of(config, Options.of(said)))
    rank = parse(spread).rank
    ours = analyzer.analyze(config, **said)
    followed = analyzer.run(script, ranks=rank.world_size, rank=rank.rank)
    assert ours.incomplete is None and followed.incomplete is None
    assert (ours.peak_allocated, ours.peak_reserved) == (followed.peak_allocated, followed.peak_reserved)
    assert ours.target.endswith(f"(rank {rank.rank} of {rank.world_size})")
    whole = analyzer.analyze(config, **{**said, "parallel": None})
    share = 1 if spread.startswith("ddp") else rank.world_size
    assert ours.naive.weights == pytest.approx(whole.naive.weights / share, rel=0.01)
    state = [one.breakdown["optimizer state"] for one in (ours, whole)]
    assert state[0] == pytest.approx(state[1] / share, rel=0.05)


def test_what_is_not_spread(tmp_path: Path) -> None:
    config = written(tmp_path, tiny())
    for spread, more, said in (
        ("tp:2", {"mode": "train"}, "not spread by tp"),
        ("fsdp2:2", {}, "for training"),
        ("fsdp2:2,wrap=layers.*", {"mode": "train"}, "wrap is not for a configuration"),
        ("fsdp2:2", {"mode": "train", "lora": "r=4", "load_in_4bit": True}, "without memory first"),
    ):
        with pytest.raises(OptionError, match=said):
            analyzer.analyze(config, parallel=spread, **more)


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = written(tmp_path, {"model_type": "llamma", "auto_map": {"AutoConfig": "evil.py--X"}})
    with pytest.raises(TargetError, match="no model of the kind 'llamma'"):
        analyzer.analyze(unknown)
    config = written(tmp_path, tiny())
    with pytest.raises(OptionError, match="a limit of the allocator is not for a configuration"):
        analyzer.fit(config, limit="2GiB")
    with pytest.raises(OptionError, match=r"lora needs a config\.json"):
        analyzer.analyze(MODELS / "gpt2.py", lora="r=4")
    for plan in (analyzer.fit, analyzer.advise, analyzer.what_if):
        with pytest.raises(OptionError, match=r"lora needs a config\.json"):
            plan(MODELS / "linear.py", lora="r=4", device="2GiB")
    with pytest.raises(OptionError, match=r"mode='generate' needs a config\.json"):
        analyzer.analyze(MODELS / "gpt2.py", mode="generate")
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "peft" else found(name))
    with pytest.raises(MissingDependencyError, match="not installed: peft") as caught:
        analyzer.analyze(config, mode="train", lora="r=4")
    assert "[llm]" in caught.value.hint


def test_weights_of_four_bits_that_are_turned_to_wider_ones_are_told(tmp_path: Path) -> None:
    note = "weights stored as mxfp4 are counted as bfloat16"
    stored = tiny(quantization_config={"quant_method": "mxfp4"}, dtype="bfloat16")
    assert any(said.startswith(note) for said in analyzer.analyze(written(tmp_path, stored), length=8).notes)
    assert not any("mxfp4" in said for said in analyzer.analyze(written(tmp_path, tiny()), length=8).notes)


def test_adapters_of_layers_nobody_named(tmp_path: Path) -> None:
    """peft has no default for a Whisper."""
    small = {
        "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "num_mel_bins": 8,
        "vocab_size": 40, "max_target_positions": 16, "decoder_start_token_id": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    with pytest.raises(OptionError, match="which layers of a whisper get adapters"):
        analyzer.analyze(written(tmp_path, small), mode="train", length=8, lora="r=2")


BNB_4BIT = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": "bfloat16",
            "bnb_4bit_use_double_quant": True, "bnb_4bit_quant_storage": "uint8"}  # fmt: skip
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
SIZED = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "vocab_size": 512,
    "dtype": "bfloat16",
    "tie_word_embeddings": False,
}
# Of a layer of SIZED: q, o, k, v (2 of 4 heads), and the three of its MLP.
LINEAR = 2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 512
REST = (
    2 * (2 * 512 * 256 + (2 * 2 + 1) * 256) + 2 * 32 * 4
)  # both embeddings and norms in bfloat16; RoPE's frequencies, twice


def test_weights_stored_in_4_bits_by_hand(tmp_path: Path) -> None:
    """Half a byte a weight; and what quantizing while loading leaves there, but for the 256 steps bitsandbytes quantizes scales by,
    which it then keeps on the GPU (`functional.py`, `name2qmap`)."""
    stored, plain = tiny(**SIZED, quantization_config=BNB_4BIT), tiny(**SIZED)
    found = analyzer.analyze(written(tmp_path, stored), length=256)
    assert found.naive.weights == REST + 2 * LINEAR // 2
    assert found.incomplete is None
    for said in ({"length": 256, "batch": 8}, {"mode": "generate", "length": 600, "new_tokens": 2}):
        now = analyzer.analyze(written(tmp_path, stored), **said)
        loading = analyzer.analyze(written(tmp_path, plain), load_in_4bit=True, **said)
        assert now.peak_requested == loading.peak_requested - 256 * 4


def test_adapters_beside_weights_stored_in_8_bits(tmp_path: Path) -> None:
    """A byte a weight, adapters and their two states in float32, as beside weights quantized while they load."""
    said = {"mode": "train", "lora": "r=8,targets=all-linear", "length": 512, "batch": 4}
    stored = tiny(**SIZED, quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})
    now = analyzer.analyze(written(tmp_path, stored), **said)
    loading = analyzer.analyze(written(tmp_path, tiny(**SIZED)), load_in_8bit=True, **said)
    assert now.peak_requested == loading.peak_requested
    assert now.naive == loading.naive


def test_weights_stored_as_fp8_by_hand(tmp_path: Path) -> None:
    """A byte a weight and four for each block of 128 x 128; a kernel's timing clears 256 MiB, where there is one that takes them."""
    config = written(tmp_path, tiny(**SIZED, quantization_config=FP8))
    found = analyzer.analyze(config, length=128, device="h200")
    assert found.naive.weights == REST + 2 * (LINEAR + 4 * LINEAR // 128**2)
    assert 256 << 20 < found.peak_allocated < 300 << 20
    assert any("finegrained-fp8" in note for note in found.notes)
    assert any("DeepGEMM" in note for note in found.notes)
    back = analyzer.analyze(config, length=128, device="h200", dequantize=True)
    assert back.naive.weights == REST + 2 * 2 * LINEAR
    older = analyzer.analyze(config, length=128, device="a100-40gb")  # which has no products of 8 bits
    assert older.naive.weights == back.naive.weights
    assert older.peak_allocated < 100 << 20


def test_experts_stored_as_fp8(tmp_path: Path) -> None:
    """Their rows are sorted and multiplied together; every expert's three parts are stored apart."""
    experts = {"model_type": "qwen3_moe", "moe_intermediate_size": 128, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 64,
               "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip
    config = written(tmp_path, tiny(**{**SIZED, **experts}, quantization_config=FP8))
    found = analyzer.analyze(config, length=64, device="h200")
    attention, each = 2 * 256 * 256 + 2 * 256 * 128, 3 * 256 * 128
    eight = 2 * (attention + 4 * each)
    assert found.naive.weights == REST + eight + 4 * eight // 128**2 + 2 * 2 * (
        4 * 256 + 2 * 64
    )  # routers, norms of heads
    assert any("finegrained_fp8_matmul_grouped" in note for note in found.notes)


def test_experts_stored_as_mxfp4_are_turned_back(tmp_path: Path) -> None:
    """Loading takes a scale and an index of four bytes each for what they are turned into two."""
    said = {"model_type": "gpt_oss", "num_local_experts": 64, "num_experts_per_tok": 2, "head_dim": 64, "num_attention_heads": 4,
            "num_key_value_heads": 2, "hidden_size": 512, "intermediate_size": 512, "vocab_size": 512, "dtype": "bfloat16"}  # fmt: skip
    plain = analyzer.analyze(written(tmp_path, tiny(**said)), length=8)
    config = written(tmp_path, tiny(**said, quantization_config={"quant_method": "mxfp4"}))
    found = analyzer.analyze(config, length=8)
    assert found.naive.weights == plain.naive.weights
    assert found.peak_allocated > plain.peak_allocated
    experts = 2 * 64 * 3 * 512 * 512
    assert f"stay {experts * 4.25 / 8 / 2**30:,.2f} GiB of its {experts * 2 / 2**30:,.2f}" in found.notes[0]


@pytest.mark.parametrize(
    ("stored", "options", "expected", "kind"),
    [
        ({"quant_method": "awq", "bits": 4}, {}, "stored as awq, which gptqmodel would run", TargetError),
        ({"quant_method": "gptq", "bits": 4}, {}, "stored as gptq, which gptqmodel and optimum", TargetError),
        ({"quant_method": "new"}, {}, "stored as new, are not followed", TargetError),
        ({"bits": 4}, {}, "does not say by which method", TargetError),
        ("fp8", {}, "does not say by which method", TargetError),
        (BNB_4BIT, {"load_in_4bit": True}, "stored as bitsandbytes_4bit already", OptionError),
        (BNB_4BIT, {"mode": "train"}, "are not trained: adapters beside them are", OptionError),
        (BNB_4BIT, {"dequantize": True}, "not turned back", OptionError),
        (BNB_4BIT, {"load": "gpu"}, "loaded from their checkpoint", OptionError),
        (FP8, {"mode": "train", "lora": "r=8"}, "nor are adapters beside them", OptionError),
        (BNB_4BIT, {"mode": "train", "lora": "r=8", "task": "sft"}, "not followed under task='sft'", OptionError),
        (None, {"dequantize": True}, "whose weights are stored quantized", OptionError),
    ],
)  # fmt: skip
def test_what_is_not_followed_of_stored_weights(
    tmp_path: Path, stored: object, options: dict[str, Any], expected: str, kind: type[Exception]
) -> None:
    more = {} if stored is None else {"quantization_config": stored}
    with pytest.raises(kind, match=expected):
        analyzer.analyze(written(tmp_path, tiny(**more)), length=8, **options)


@pytest.mark.skipif(importlib.util.find_spec("compressed_tensors") is not None, reason="the package is here")
def test_a_package_that_loads_stored_weights_is_missing(tmp_path: Path) -> None:
    said = {"quant_method": "compressed-tensors", "config_groups": {}, "format": "float-quantized"}
    with pytest.raises(MissingDependencyError, match="not installed: compressed_tensors"):
        analyzer.analyze(written(tmp_path, tiny(quantization_config=said)), length=8)


def test_weights_stored_quantized_are_not_offered_to_be_quantized(tmp_path: Path) -> None:
    from analyzer.options import Options
    from analyzer.planning.changes import of_configuration as variants

    config = written(tmp_path, tiny(quantization_config=BNB_4BIT))
    for said in ({}, {"mode": "train", "lora": "r=8"}):
        assert not any(
            set(more) & {"load_in_4bit", "load_in_8bit"} for _, _, more in variants(Options.of(said), config)
        )
