"""What is run for `docs/evidence/EXPERIMENTS.md`: whole programs (as `analyze` takes them) and scripts, by document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PUBLISHED_WORKSPACE = ":4096:2:16:8"  # what older GPUs take: 8,519,680 bytes, as in documents 001 and 002


@dataclass(frozen=True, slots=True)
class Case:
    """name: also the data file's. target, options: as for `analyzer.analyze`. title: the row in the table."""

    name: str
    document: str
    title: str
    target: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Script:
    """A function of `scripts.py`. workspace: `CUBLAS_WORKSPACE_CONFIG`, None for the GPU's own default."""

    name: str
    document: str
    function: str
    workspace: str | None = None


def _case(document: str, name: str, title: str, model: str, **options: Any) -> Case:
    return Case(f"{document}_{name}", document, title, f"models/{model}", options)


_RETINANET = "retinanet_r50_fpn.py"
_WITH_CP = f"{_RETINANET}:make_model_checkpointed"
_SGD = {"batch": 2, "mode": "train", "optimizer": "momentum"}

CASES = (
    _case("000", "variable", "variable, 1 GiB", "variable.py"),
    _case("000", "cnn_infer", "CNN, batch 128", "cnn.py", batch=128),
    _case("000", "cnn_train", "CNN, batch 128, SGD", "cnn.py", batch=128, mode="train", optimizer="sgd"),
    _case("000", "resnet50_infer", "ResNet50, batch 32", "resnet50.py", batch=32),
    _case("000", "resnet50_train", "ResNet50, batch 32, Adam", "resnet50.py", batch=32, mode="train", optimizer="adam"),
    _case("000", "vit_infer", "ViT-B/16, batch 32", "vit_b_16.py", batch=32),
    _case("000", "vit_train", "ViT-B/16, batch 32, AdamW", "vit_b_16.py", batch=32, mode="train", optimizer="adamw"),
    _case("000", "unetr_infer", "UNETR, batch 2", "unetr.py", batch=2),
    _case("000", "unetr_train", "UNETR, batch 2, AdamW", "unetr.py", batch=2, mode="train", optimizer="adamw"),
    _case("002", "base", "base", _RETINANET, **_SGD),
    _case("002", "amp", "AMP", _RETINANET, **_SGD, amp="fp16"),
    _case("002", "accumulation", "accumulation x2", _RETINANET, **_SGD, grad_accumulation=2),
    _case("002", "checkpointing", "checkpointing", _WITH_CP, **_SGD),
    _case("002", "amp_accumulation", "AMP, accumulation x2", _RETINANET, **_SGD, amp="fp16", grad_accumulation=2),
    _case("002", "amp_checkpointing", "AMP, checkpointing", _WITH_CP, **_SGD, amp="fp16"),
    _case("002", "accumulation_checkpointing", "accumulation x2, checkpointing", _WITH_CP, **_SGD, grad_accumulation=2),
    _case("002", "all", "all three", _WITH_CP, **_SGD, amp="fp16", grad_accumulation=2),
    _case("004", "sgd", "SGD", "linear_mnist.py", batch=100, mode="train", optimizer="sgd",
          runtime_options={"cublas_workspace": ":0:0"}),
    _case("004", "adam", "Adam", "linear_mnist.py", batch=100, mode="train", optimizer="adam",
          runtime_options={"cublas_workspace": ":0:0"}),
)  # fmt: skip

SCRIPTS = (
    Script("000_variable_nvml", "000", "variable_nvml"),
    Script("001_reservation", "001", "reservation_released"),
    Script("001_dtypes", "001", "dtypes"),
    Script("001_sizes", "001", "sizes"),
    Script("001_linear", "001", "linear"),
    Script("001_linear_published_workspace", "001", "linear", PUBLISHED_WORKSPACE),
    Script("001_linear_no_workspace", "001", "linear", ":0:0"),
    Script("001_blocks_inference", "001", "blocks_inference", PUBLISHED_WORKSPACE),
    Script("001_blocks_training", "001", "blocks_training", PUBLISHED_WORKSPACE),
    Script("001_normalisation", "001", "normalisation"),
    Script("001_sgd", "001", "sgd", ":0:0"),
    Script("001_adam", "001", "adam", ":0:0"),
    Script("004_batches_nvml", "004", "batches_nvml"),
)

# Every file in models/. `tests/data/verify/NAME.json` is what `analyze verify` printed for it, on the same GPU.
MODELS = (
    ("variable", "models/variable.py", {}),
    ("cnn", "models/cnn.py", {"batch": 128, "mode": "train", "optimizer": "adam"}),
    ("resnet50", "models/resnet50.py", {"batch": 32, "mode": "train", "optimizer": "adam"}),
    ("vit_b_16", "models/vit_b_16.py", {"batch": 32, "mode": "train", "optimizer": "adam"}),
    ("unetr", "models/unetr.py", {"batch": 2, "mode": "train", "optimizer": "adam"}),
    ("linear", "models/linear.py", {"batch": 100, "mode": "train", "optimizer": "adam"}),
    ("feedforward", "models/feedforward.py", {"batch": 5, "mode": "train", "optimizer": "adam"}),
    ("retinanet_r50_fpn", "models/retinanet_r50_fpn.py", {"batch": 2, "mode": "train", "optimizer": "adam"}),
    ("linear_mnist", "models/linear_mnist.py", {"batch": 100, "mode": "train", "optimizer": "adam"}),
    ("gpt2", "models/gpt2.py", {"batch": 4, "mode": "train", "optimizer": "adam"}),
    ("gpt2_bf16", "models/gpt2.py", {"batch": 4, "mode": "train", "optimizer": "adamw", "amp": "bf16"}),
    ("llama", "models/llama.py", {"batch": 1}),
)
