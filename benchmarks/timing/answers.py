"""How long an answer of `analyze advise` takes on this machine: the wall's seconds and the processor's, of a command each.

GPT-2 as `advise.py` asks it, under half of what it takes; Llama 3 8B (training, batch 4, 2,048 tokens) by its configuration, and as a
module with the same shapes (`models/llama.py`), on an H100 that neither fits as it is.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from benchmarks import ROOT
from benchmarks.harness.files import read, write
from benchmarks.timing.advise import DEVICE, PROGRAMS, target_of

RECORD = ROOT / "tests/data/h100/timing/answers.json.gz"
GPT2, CONFIGURATION, MODULE = "gpt2.py", "Llama 3 8B, its configuration", "Llama 3 8B, a module"
_HALF_OF_GPT2 = "8.5GiB"
_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0, "max_position_embeddings": 8192, "hidden_act": "silu", "torch_dtype": "bfloat16",
    "tie_word_embeddings": False, "bos_token_id": 128000, "eos_token_id": 128001,
}  # fmt: skip
_PROGRAM = """import torch
from llama import Config, loss, make_model as made

def make_model():
    return made(Config(vocabulary_size=128256, width=4096, hidden=14336, depth=32, head_count=32, key_value_head_count=8))

def make_batch(batch):
    return (torch.randint(0, 128256, (batch, 2048)),), (torch.randint(0, 128256, (batch, 2048)),)
"""


def questions(folder: Path) -> dict[str, list[str]]:
    """Name -> what the command line is given. folder: where the models' files may be written."""
    (folder / "config.json").write_text(json.dumps(_CONFIG), "utf-8")
    (folder / "llama.py").write_text((ROOT / "models/llama.py").read_text("utf-8"), "utf-8")
    (folder / "llama8b.py").write_text(_PROGRAM, "utf-8")
    own = PROGRAMS[GPT2]
    train = ["--mode", "train", "--device", DEVICE]
    return {
        GPT2: [target_of(GPT2), *train, "--batch", str(own["batch"]), "--optimizer", own["optimizer"], "--budget", _HALF_OF_GPT2],
        CONFIGURATION: [str(folder / "config.json"), *train, "--batch", "4", "--length", "2048"],
        MODULE: [str(folder / "llama8b.py"), *train, "--batch", "4", "--optimizer", "sgd"],
    }  # fmt: skip


def asked(words: list[str]) -> dict[str, Any]:
    """Seconds of one answer, and its first lines."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from analyzer.cli import main; sys.exit(main())",
            "advise",
            *words,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if found.returncode not in (0, 1):
        raise click.ClickException(found.stderr[-600:])
    return {"wall": round(wall, 1), "processor": round(processor, 1), "said": found.stdout.splitlines()[:3]}


def sentence(answers: Mapping[str, Mapping[str, Any]]) -> str:
    """What the page says of them."""
    parts = [
        f"{row['wall']:.0f} s for {name} ({row['processor']:.0f} s of the processor)"
        for name, row in answers.items()
    ]
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


@click.command("answers")
def main() -> None:
    """Ask each question in a process of its own, and record how long the answer takes."""
    with tempfile.TemporaryDirectory() as folder:
        rows = {name: asked(words) for name, words in questions(Path(folder)).items()}
    write(RECORD, {"date": time.strftime("%Y-%m-%d"), "processors": os.cpu_count(), "answers": rows})
    click.echo(json.dumps(rows, indent=1))


def recorded() -> str:
    """What the page says of the record."""
    return sentence(read(RECORD)["answers"])
