"""torchtune's tables of memory, beside what its own recipes take here: `python -m benchmarks torchtune table PYTHON [FOLDER]`.

PYTHON is the interpreter of an environment with a CUDA build of torch 2.5.1, torchao 0.6.1, bitsandbytes and what torchtune needs; recipes that
compile anything run there, emulated (`analyze emulate`). The others are followed by `analyze run` in this environment, which then needs
torchao 0.6.1, omegaconf and what torchtune needs, too. FOLDER (default .public/torchtune) gets torchtune's source, by git; it is no part of this
project. Writes `docs/evidence/PUBLISHED_TORCHTUNE.md`.

Source: github.com/pytorch/torchtune, README.md: the table of techniques (pull request 2003, 2024-11-18), of Llama 3.1 (1664, 2024-09-24), of Llama
2 (955, 2024-05-09), each with the recipes and configurations as they were in that commit; pull request 961 (a figure beside the last).
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from benchmarks.harness.recorded import kept
from benchmarks.public.sources import bring

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "evidence" / "PUBLISHED_TORCHTUNE.md"
_PEAK = re.compile(r"^PEAK (\d+) (\d+) (\d+)$", re.M)
_KINDS = ("active", "allocated", "reserved")
_TECHNIQUES, _LLAMA_3, _LLAMA_2 = (
    "f31754f60e67a6e7dbfdb2f9c9213f166a35549a",
    "30b8519e86d2094879576e16ab1f8d21a6f6f9f7",
    "0217d44c2e1e372b34628767745c1f6538086a81",
)


@dataclass(frozen=True)
class Row:
    """A figure. packed: tokens of each sample that is packed (0: none); published: in units of `unit` bytes, of `kind`. ranks: of which the
    first is followed. counted: whether it stands in the table itself, and not beside it."""

    table: str
    title: str
    recipe: str
    config: str
    batch: int
    length: int
    packed: int
    said: str
    published: float
    kind: str = "active"
    emulated: bool = True
    device: str = "a100-80gb"
    ranks: int = 1
    counted: bool = True
    why: str = field(default="", repr=False)

    @property
    def unit(self) -> int:
        """Bytes of the published figure's unit: torchtune's logs were in GB until June 2024."""
        return 10**9 if self.table == _LLAMA_2 else 2**30


_FULL, _LORA = "full_finetune_single_device", "lora_finetune_single_device"
_ADAMW = "optimizer._component_=torch.optim.AdamW optimizer.fused=True"
_WHOLE, _CHUNKED = (
    f"loss._component_={name}"
    for name in ("torch.nn.CrossEntropyLoss", "torchtune.modules.loss.CEWithChunkedOutputLoss")
)
_KEPT, _AGAIN = "enable_activation_checkpointing=False", "enable_activation_checkpointing=True"
_AFTER, _INSIDE = "optimizer_in_bwd=False", "optimizer_in_bwd=True"
_ONE = "gradient_accumulation_steps=1"


def _technique(title: str, said: str, published: float, packed: int = 100, why: str = "") -> Row:
    compiled = "compile=True" in said
    return Row(
        _TECHNIQUES, title, _FULL, "llama3_2/3B_full_single_device", 2, 4096 if packed else 300, packed, said, published,
        emulated=compiled or bool(packed), why=why,
    )  # fmt: skip


def _adapters(title: str, config: str, published: float) -> Row:
    said = f"{_CHUNKED} {_AGAIN} enable_activation_offloading=True compile=True {_ONE}"
    why = (
        "about what Adam keeps of adapters of rank 64 (0.34) above; why that should be missing was not found"
    )
    return Row(_TECHNIQUES, title, _LORA, config, 2, 4096, 100, said, published, why=why)


def _llama_3(
    title: str, recipe: str, config: str, published: float, said: str = "", batch: int = 2, why: str = ""
) -> Row:
    told = f"compile=True {_ONE} {said}".strip()
    return Row(
        _LLAMA_3, title, recipe, config, batch, 2048, 100, told, published, counted=batch == 2, why=why
    )


def _llama_2(title: str, recipe: str, config: str, published: float, said: str = "", **more: object) -> Row:
    return Row(
        _LLAMA_2,
        title,
        recipe,
        config,
        4,
        2048,
        0,
        f"{_ONE} {said}".strip(),
        published,
        **{"kind": "reserved", "device": "rtx4090", "emulated": False, **more},
    )  # type: ignore[arg-type]


_HALF = "as with half the tokens (below): the note says batch 2 of all rows"
_8B = "llama3_1/8B_{}_single_device"
ROWS = (
    _technique("baseline", f"{_ADAMW} {_AFTER} {_KEPT} {_WHOLE} compile=False", 25.5, 0, "samples of 300 tokens: how long Alpaca's are in a batch is not said"),
    _technique("+ packed", f"{_ADAMW} {_AFTER} {_KEPT} {_WHOLE} compile=False", 60.0),
    _technique("+ compile", f"{_ADAMW} {_AFTER} {_KEPT} {_WHOLE} compile=True", 51.0),
    _technique("+ chunked cross entropy", f"{_ADAMW} {_AFTER} {_KEPT} {_CHUNKED} compile=True", 42.9),
    _technique("+ activation checkpointing", f"{_ADAMW} {_AFTER} {_AGAIN} {_CHUNKED} compile=True", 24.9),
    _technique("+ optimizer in backward", f"{_ADAMW} {_INSIDE} {_AGAIN} {_CHUNKED} compile=True", 23.1),
    _technique("+ activation offloading", f"{_ADAMW} {_INSIDE} {_AGAIN} enable_activation_offloading=True {_CHUNKED} compile=True", 21.8),
    _technique(
        "+ 8-bit AdamW",
        f"optimizer._component_=torchao.prototype.low_bit_optim.AdamW8bit {_INSIDE} {_AGAIN} enable_activation_offloading=True {_CHUNKED} compile=True",
        17.6,
    ),
    _adapters("LoRA", "llama3_2/3B_lora_single_device", 8.5),
    _adapters("QLoRA", "llama3_2/3B_qlora_single_device", 4.6),
    _llama_3("full, 4090", _FULL, _8B.format("full"), 18.9, why=_HALF),
    _llama_3("full, A6000", _FULL, _8B.format("full"), 37.4, _KEPT, why="without checkpointing"),
    _llama_3("LoRA, 4090", _LORA, _8B.format("lora"), 16.2, why=_HALF),
    _llama_3("LoRA, A6000", _LORA, _8B.format("lora"), 30.3, _KEPT, why="without checkpointing"),
    _llama_3("QLoRA, 4090", _LORA, _8B.format("qlora"), 7.4, why=_HALF),
    _llama_3("full, 4090, batch 1", _FULL, _8B.format("full"), 18.9, batch=1),
    _llama_3("LoRA, 4090, batch 1", _LORA, _8B.format("lora"), 16.2, batch=1),
    _llama_3("QLoRA, 4090, batch 1", _LORA, _8B.format("qlora"), 7.4, batch=1),
    _llama_2("QLoRA, 4090", _LORA, "llama2/7B_qlora_single_device", 12.3, "compile=True", emulated=True, why="compiled by a torch of May 2024; allocated here 11.85"),
    _llama_2("LoRA, 4090", _LORA, "llama2/7B_lora_single_device", 21.3),
    _llama_2("LoRA, 2 x 4090", "lora_finetune_distributed", "llama2/7B_lora", 16.2, _AGAIN, ranks=2, why="with checkpointing, without which it does not fit"),
    _llama_2("full, 4090", _FULL, "llama2/7B_full_low_memory", 24.1, why="its authors could not repeat it: pull request 961, below"),
    _llama_2("full, 4 x 4090", "full_finetune_distributed", "llama2/7B_full", 24.1, ranks=4, why="all that a card has: what is cached is given back at its end"),
    _llama_2("full, 961", _FULL, "llama2/7B_full_low_memory", 20.2, kind="allocated", counted=False),
)  # fmt: skip


def _ran(row: Row, python: str, checkout: Path) -> str:
    """What the recipe and the analysis printed. Raises RuntimeError where it does not get through two steps."""
    told = [str(HERE / "programs" / "torchtune_recipe.py"), str(checkout), row.recipe, row.config]
    told += [str(row.batch), str(row.length), str(row.packed), *row.said.split()]
    how = ["emulate", "--python", python] if row.emulated else ["run", "--release", "torch=2.6"]
    ranks = ["--nproc-per-node", str(row.ranks)] if row.ranks > 1 else []
    # torch 2.5.1's flex attention does not fit into the shared memory of a 4090; on an A100 it asks for the same memory of the device.
    device = "a100-80gb" if row.emulated else row.device
    own = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(HERE.parents[1])}
    command = [sys.executable, "-m", "analyzer", *how, *ranks, "--device", device, "--top", "0", *told]
    # What was compiled before is not timed again: with nothing kept, the first step has the copies that kernels are timed on.
    with tempfile.TemporaryDirectory() as nothing:
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{nothing}/inductor", "TRITON_CACHE_DIR": f"{nothing}/triton"}
        ran = subprocess.run(
            command, env={**os.environ, **own, **caches}, capture_output=True, text=True, check=False
        )
    printed = ran.stdout + "\n" + ran.stderr
    if ran.returncode not in (0, 1) or len(_PEAK.findall(printed)) < 2:
        raise RuntimeError(f"{row.title}: {printed[-2000:]}")
    return printed


def steps(printed: str) -> list[dict[str, int]]:
    """The peaks of each part of a run, in bytes: the model's making, the steps, the end."""
    return [dict(zip(_KINDS, map(int, found), strict=True)) for found in _PEAK.findall(printed)]


def page(found: Sequence[tuple[Row, Sequence[Mapping[str, int]]]]) -> str:
    """The page, from each row with its peaks."""
    errors: dict[str, list[float]] = {table: [] for table in (_TECHNIQUES, _LLAMA_3, _LLAMA_2)}
    lines: dict[str, list[str]] = {table: [] for table in errors}
    for row, peaks in found:
        first, most = peaks[1][row.kind] / row.unit, max(part[row.kind] for part in peaks[1:]) / row.unit
        off = 100 * (most / row.published - 1)
        if row.counted:
            errors[row.table].append(abs(off))
        how = "emulated" if row.emulated else "followed"
        lines[row.table].append(
            f"| {row.title} | {row.kind} | {how} | {row.published:.1f} | {first:.2f} | {most:.2f} | {off:+.1f} % | {row.why} |"
        )
    parts = list[str]()
    for table, (title, said) in _TABLES.items():
        of = errors[table]
        parts += ["", f"## {title}", "", *said, ""]
        parts += [
            f"{len(of)} figures, median error {statistics.median(of):.1f} %, largest {max(of):.1f} %, "
            f"{sum(one <= 3 for one in of)} within 3 %.",
            "",
            *_COLUMNS,
            *lines[table],
        ]
    return "\n".join((*_HEAD, *parts, "", *_LEFT, ""))


_HEAD = (
    "# torchtune's tables of memory",
    "",
    "[torchtune](https://github.com/pytorch/torchtune)'s own recipes and configurations, as they were when the tables of its README were written,",
    "beside what they take here; `python -m benchmarks torchtune table` writes this page. What compiles anything is emulated: PyTorch 2.5.1's own binary",
    "(cu124) with Inductor, FlexAttention and Triton's compiler, on a machine without a GPU. The rest is followed by `analyze run`, as of torch 2.6.",
    "Published is what torchtune logs of a step. The first step has no state of an optimizer yet, but what Inductor times kernels on (nothing was",
    "compiled before): a copy of all that they overwrite, and 256 MB. The most is of all steps. Nothing is tuned for a figure.",
)
_TABLES = {
    _TECHNIQUES: (
        "Techniques: Llama 3.2 3B, batch 2, 4,096 tokens, A100 (GiB active)",
        (
            "README of 2024-11-18. AdamW is fused, as torchtune's own configurations say of it; 8-bit AdamW is torchao's. Packed samples have 100",
            "tokens each.",
        ),
    ),
    _LLAMA_3: (
        "Llama 3.1 8B, batch 2, packed to 2,048 tokens, compiled (GiB)",
        ("README of 2024-09-24, of a nightly build; all are emulated as an A100.",),
    ),
    _LLAMA_2: (
        "Llama 2 7B, batch 4, 2,048 tokens (GB)",
        (
            "README of 2024-05-09, PyTorch 2.3 or its nightly build. Which peak it is, is not said: reserved, as in torchtune's tutorials of these",
            "weeks.",
        ),
    ),
}
_COLUMNS = (
    "| recipe | peak | how | published | first step | most | error | |",
    "|---|---|---|--:|--:|--:|--:|---|",
)
_LEFT = (
    "Left out: 70B on eight A100s with LoRA (26.4 GB with batch 4 of 4,096 tokens: a rank's share of the weights, 17.2 GB, and 80 checkpoints of",
    "0.27 GB are 38.7 already; followed, it is 52.1 allocated) and in full (no configuration of it was there), the distributed figures of Llama 3.1",
    "70B and 405B, and the tutorials' (how long Alpaca's samples were is not said; of the LoRA tutorial's 13.96 GB allocated and 13.98 reserved when",
    "the model is made, followed is 13.96 and 13.98).",
)


@click.command("table")
@click.argument("python")
@click.argument("folder", type=click.Path(path_type=Path), default=Path(".public/torchtune"))
def main(python: str, folder: Path) -> None:
    """Run every row and write the page. PYTHON has PyTorch 2.5.1's CUDA build, FOLDER gets torchtune's source."""

    def peaks(row: Row) -> list[dict[str, int]]:
        source = bring("pytorch/torchtune", {"commit": row.table}, folder / row.table[:9])
        return steps(_ran(row, python, source))

    PAGE.write_text(page(kept(folder / "peaks.json", ROWS, peaks)), encoding="utf-8")
