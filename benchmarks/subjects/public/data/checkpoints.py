"""Models as the Hub keeps them (config.json, weights, tokenizer), small and random, and the data sets and metrics beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def model(
    folder: Path, kind: str = "bert", head: str = "AutoModel", settings: dict[str, Any] | None = None
) -> None:
    """A model of that kind, its weights at random, with a tokenizer of its vocabulary (`tokenizer`)."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **(settings or {}))
    getattr(transformers, head).from_config(config).save_pretrained(folder)
    text = config.get_text_config()
    if getattr(text, "vocab_size", 0):
        tokenizer(folder, text.vocab_size, getattr(text, "max_position_embeddings", 512))


def tokenizer(folder: Path, vocabulary: int = 30_522, longest: int = 512) -> None:
    """A tokenizer to which every word is a token: special ones first, then w0, w1, ..."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(_SPECIAL)}
    words |= {f"w{number - len(_SPECIAL)}": number for number in range(len(_SPECIAL), vocabulary)}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    PreTrainedTokenizerFast(
        tokenizer_object=made, model_max_length=longest, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]", bos_token="[CLS]", eos_token="[SEP]",
    ).save_pretrained(folder)  # fmt: skip


def _sentence(rng: np.random.Generator, shortest: int, longest: int, vocabulary: int = 1000) -> str:
    return " ".join(f"w{n}" for n in rng.integers(0, vocabulary, rng.integers(shortest, longest)))


def _jsonl(file: Path, rows: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def sentence_pairs(folder: Path, name: str = "mrpc", train: int = 256, validation: int = 64) -> None:
    """A data set of two sentences and a label, as GLUE's MRPC."""
    rng = np.random.default_rng(0)
    parts = {"train": train, "validation": validation, "test": validation}
    for part, count in parts.items():
        rows = [
            {
                "sentence1": _sentence(rng, 15, 45),
                "sentence2": _sentence(rng, 15, 45),
                "label": int(n % 2),
                "idx": n,
            }
            for n in range(count)
        ]
        _jsonl(folder / name / f"{part}.jsonl", rows)
    _readme(folder, name, list(parts))


def _readme(folder: Path, name: str, parts: list[str]) -> None:
    """Which files a data set's configuration of that name has."""
    lines = ["---", "configs:", f"- config_name: {name}", "  data_files:"]
    for part in parts:
        lines += [f"  - split: {part}", f"    path: {name}/{part}.jsonl"]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))


def texts(
    folder: Path, train: int = 128, test: int = 32, shortest: int = 80, longest: int = 400, name: str = ""
) -> None:
    """A data set of texts; with a `name`, its configuration of that name, with a part for validation."""
    rng = np.random.default_rng(0)
    parts = {"train": train, "test": test} | ({"validation": test} if name else {})
    for part, count in parts.items():
        rows = [{"text": _sentence(rng, shortest, longest)} for _ in range(count)]
        _jsonl(folder / name / f"{part}.jsonl", rows)
    if name:
        _readme(folder, name, list(parts))


def questions(folder: Path, train: int = 96) -> None:
    """A data set of questions and answers."""
    rng = np.random.default_rng(0)
    rows = [{"query": _sentence(rng, 10, 60), "response": _sentence(rng, 40, 160)} for _ in range(train)]
    _jsonl(folder / "train.jsonl", rows)


def sentiments(folder: Path, train: int = 96) -> None:
    """A data set of texts with one of three labels."""
    rng = np.random.default_rng(0)
    _jsonl(
        folder / "train.jsonl", [{"text": _sentence(rng, 8, 30), "label": int(n % 3)} for n in range(train)]
    )


def preferences(folder: Path, train: int = 64, test: int = 16) -> None:
    """A data set of prompts with a better and a worse answer."""
    rng = np.random.default_rng(0)
    for part, count in {"train": train, "test": test}.items():
        rows = [
            {
                "prompt": _sentence(rng, 10, 40),
                "chosen": _sentence(rng, 20, 90),
                "rejected": _sentence(rng, 20, 90),
            }
            for _ in range(count)
        ]
        _jsonl(folder / f"{part}.jsonl", rows)


def accuracy_metric(folder: Path, name: str = "glue") -> None:
    """A metric as evaluate loads it from a folder."""
    (folder / f"{name}.py").write_text(
        "import datasets\nimport evaluate\n\n\n"
        "class Accuracy(evaluate.Metric):\n"
        "    def _info(self):\n"
        "        kinds = {'predictions': datasets.Value('int64'), 'references': datasets.Value('int64')}\n"
        "        return evaluate.MetricInfo(description='', citation='', features=datasets.Features(kinds))\n\n"
        "    def _compute(self, predictions, references):\n"
        "        same = [float(a == b) for a, b in zip(predictions, references)]\n"
        "        return {'accuracy': sum(same) / len(same)}\n"
    )


def gpt_fast(folder: Path, name: str = "stories15M") -> None:
    """model.pth of a transformer of gpt-fast's sizes, in bfloat16, with a sentencepiece tokenizer: taken from its model.py."""
    import sys

    import torch

    root = next(parent for parent in folder.parents if (parent / "model.py").exists())
    sys.path.insert(0, str(root))
    from model import Transformer  # type: ignore[import-not-found]

    torch.manual_seed(0)
    made = Transformer.from_name(name).to(torch.bfloat16)
    torch.save(made.state_dict(), folder / "model.pth")
    sentencepiece(folder)


def sentencepiece(folder: Path, name: str = "tokenizer", vocabulary: int = 300) -> None:
    """A sentencepiece model of random words."""
    import io

    import sentencepiece as spm

    rng = np.random.default_rng(0)
    rows = ("".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz "), 60)) for _ in range(500))
    made = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=rows, model_writer=made, vocab_size=vocabulary, model_type="bpe", minloglevel=2
    )
    (folder / f"{name}.model").write_bytes(made.getvalue())


def stable_diffusion(folder: Path, width: int = 64) -> None:
    """A small Stable Diffusion as diffusers' scripts load it: text encoder, tokenizer, VAE, U-Net and scheduler in their folders."""
    import sys

    import torch

    sys.path.insert(
        0, str(next(parent / "src" for parent in folder.parents if (parent / "src/diffusers").is_dir()))
    )
    from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel  # type: ignore[import-not-found]
    from transformers import CLIPTextConfig, CLIPTextModel

    torch.manual_seed(0)
    DDPMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear").save_pretrained(
        folder / "scheduler"
    )
    wide = (width, 2 * width, 4 * width)
    AutoencoderKL(
        down_block_types=["DownEncoderBlock2D"] * 3, up_block_types=["UpDecoderBlock2D"] * 3, latent_channels=4,
        block_out_channels=wide, layers_per_block=1,
    ).save_pretrained(folder / "vae")  # fmt: skip
    UNet2DConditionModel(
        sample_size=32, in_channels=4, out_channels=4, block_out_channels=wide, layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=256,
    ).save_pretrained(folder / "unet")  # fmt: skip
    text = CLIPTextConfig(
        vocab_size=1000, hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=4,
        bos_token_id=998, eos_token_id=999, pad_token_id=999,
    )  # fmt: skip
    CLIPTextModel(text).save_pretrained(folder / "text_encoder")
    place = folder / "tokenizer"
    place.mkdir(parents=True, exist_ok=True)
    letters = [chr(code) for code in range(33, 127)]
    words = [*letters, *(letter + "</w>" for letter in letters)]
    words += [f"<{number}>" for number in range(998 - len(words))] + ["<|startoftext|>", "<|endoftext|>"]
    (place / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (place / "merges.txt").write_text("#version: 0.2\n")
    told = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "bos_token": "<|startoftext|>"}
    told |= {"eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    (place / "tokenizer_config.json").write_text(json.dumps(told))
    index = {
        "_class_name": "StableDiffusionPipeline", "scheduler": ["diffusers", "DDPMScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"], "tokenizer": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"],
        "safety_checker": [None, None], "feature_extractor": [None, None], "requires_safety_checker": False,
    }  # fmt: skip
    (folder / "model_index.json").write_text(json.dumps(index))


def autoencoder(folder: Path, wide: tuple[int, ...] = (128, 256, 512, 512)) -> None:
    """Stable Diffusion's autoencoder as diffusers keeps it, its weights at random."""
    import torch
    from diffusers import AutoencoderKL  # type: ignore[import-not-found]

    torch.manual_seed(0)
    AutoencoderKL(
        down_block_types=["DownEncoderBlock2D"] * len(wide), up_block_types=["UpDecoderBlock2D"] * len(wide),
        latent_channels=4, block_out_channels=wide, layers_per_block=2, sample_size=256,
    ).save_pretrained(folder)  # fmt: skip
