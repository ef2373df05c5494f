"""`analyze pipeline`: pipelines built from configurations, followed, and told by stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")
pytest.importorskip("transformers")

from analyzer.cli import main  # noqa: E402
from analyzer_pipelines.configurations import pipeline_of  # noqa: E402

TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 1000,
    "model_type": "clip_text_model",
}
UNET = {
    "_class_name": "UNet2DConditionModel",
    "block_out_channels": [32, 64],
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"],
    "layers_per_block": 1,
    "cross_attention_dim": 32,
    "attention_head_dim": 4,
    "sample_size": 16,
}
VAE = {
    "_class_name": "AutoencoderKL",
    "block_out_channels": [32, 64],
    "down_block_types": ["DownEncoderBlock2D"] * 2,
    "up_block_types": ["UpDecoderBlock2D"] * 2,
    "sample_size": 32,
}
COMPONENTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "text_encoder": ("transformers", "CLIPTextModel", TEXT),
    "unet": ("diffusers", "UNet2DConditionModel", UNET),
    "vae": ("diffusers", "AutoencoderKL", VAE),
    "scheduler": (
        "diffusers",
        "DDIMScheduler",
        {"_class_name": "DDIMScheduler", "clip_sample": False, "steps_offset": 1},
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small Stable Diffusion: configurations alone, as `save_pretrained` lays them out."""
    index: dict[str, Any] = {
        "_class_name": "StableDiffusionPipeline",
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "safety_checker": [None, None],
        "feature_extractor": [None, None],
        "requires_safety_checker": False,
    }
    for name, (library, kind, config) in COMPONENTS.items():
        index[name] = [library, kind]
        (tmp_path / name).mkdir()
        file = "scheduler_config.json" if name == "scheduler" else "config.json"
        (tmp_path / name / file).write_text(json.dumps(config))
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    return tmp_path


def followed(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    code = main(["pipeline", str(folder), "--device", "h200", "--format", "json", "-q", *words])
    out, err = capsys.readouterr()
    assert code == 0, out + err
    return json.loads(out)


def test_stages_are_told_in_their_order(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = followed(folder, capsys, "--size", "64x64", "--steps", "3")["runs"][0]
    assert not run["ended"]
    stages = {stage["name"]: stage for stage in run["stages"]}
    assert list(stages) == ["text_encoder", "unet", "vae.decode"]
    assert stages["unet"]["calls"] == 3 and stages["vae.decode"]["calls"] == 1
    assert max(stage["peak_allocated"] for stage in stages.values()) == run["peak_allocated"]


def test_offloads_side_by_side(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A component at a time, then a layer at a time: each holds less than the whole does."""
    pytest.importorskip("accelerate")
    runs = followed(folder, capsys, "--size", "64x64", "--offload", "none,model,sequential")["runs"]
    assert [run["title"] for run in runs] == [
        "64x64, whole",
        "64x64, model offload",
        "64x64, sequential offload",
    ]
    before = [
        run["stages"][0]["peak_allocated"] for run in runs
    ]  # the text encoder's, with what is beside it
    assert before[0] > before[1] > before[2]


def test_sizes_grow_and_what_fits_decides(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = followed(folder, capsys, "--size", "64x64,256x128")["runs"]
    assert runs[0]["peak_allocated"] < runs[1]["peak_allocated"]
    assert main(["pipeline", str(folder), "--size", "256x128", "--device", "h200", "--budget", "100MiB"]) == 1
    assert capsys.readouterr().out.startswith("does not fit: ")


def test_a_component_of_another_place_is_not_imported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = json.loads((folder / "model_index.json").read_text())
    index["unet"] = ["os.path", "join"]
    (folder / "model_index.json").write_text(json.dumps(index))
    assert main(["pipeline", str(folder), "--device", "h200", "-q"]) == 2
    assert "of neither diffusers nor transformers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--size", "64"), "no size"),
        (("--frames", "many"), "no number"),
        (("--offload", "modell"), "model"),
        (("--revision", "main"), "hf:ORG/NAME"),
    ],
)
def test_mistakes_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    assert main(["pipeline", str(folder), *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_folder_without_a_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", str(tmp_path)]) == 2
    assert "model_index.json" in capsys.readouterr().err
    (tmp_path / "model_index.json").write_text('{"_class_name": ["mine", "Pipeline"]}')
    assert main(["pipeline", str(tmp_path)]) == 2
    assert "names no pipeline of diffusers" in capsys.readouterr().err


def test_weights_are_initialized_as_before_afterwards(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(vars(torch.nn.init))
    followed(folder, capsys, "--size", "64x64", "--steps", "1")
    assert vars(torch.nn.init) == before


def test_its_class_is_read(folder: Path) -> None:
    assert pipeline_of(str(folder / "model_index.json")) == (folder, "StableDiffusionPipeline")
