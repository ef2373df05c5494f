"""torchtune's tables of memory, beside what its own recipes take here: `python -m benchmarks torchtune table PYTHON [FOLDER]`.

PYTHON is the interpreter of an environment with a CUDA build of torch 2.5.1, torchao 0.6.1, bitsandbytes 0.43.3 and what torchtune needs; recipes that
compile anything run there, emulated (`analyze emulate`). The others are followed by `analyze run` in this environment, which then needs
torchao 0.6.1, omegaconf and what torchtune needs, too. FOLDER (default .public/torchtune) gets torchtune's source, by git; it is no part of this
project. Writes `docs/evidence/PUBLISHED_TORCHTUNE.md`.

Source: github.com/pytorch/torchtune, README.md: the table of techniques (pull request 2003, 2024-11-18), of Llama 3.1 (1664, 2024-09-24), of Llama
2 (955, 2024-05-09), each with the recipes and configurations as they were in that commit; what stood in those pull requests before they were
merged, and the discussion of pull request 961. bitsandbytes is the one of the day: since 0.44 (2024-09-24) its 8-bit states keep a scale for every
256 values instead of 2,048, 0.24 GiB of an 8B model.
"""

from __future__ import annotations

import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from benchmarks.harness.recorded import kept
from benchmarks.public.sources import bring

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "evidence" / "PUBLISHED_TORCHTUNE.md"
_PEAK = re.compile(r"^PEAK (\d+) (\d+) (\d+)$", re.M)
_HELD = re.compile(r"^pytorch: reserved +([\d,]+) ", re.M)
_KINDS = ("active", "allocated", "reserved")
_TECHNIQUES, _LLAMA_3, _LLAMA_2 = (
    "f31754f60e67a6e7dbfdb2f9c9213f166a35549a",
    "30b8519e86d2094879576e16ab1f8d21a6f6f9f7",
    "0217d44c2e1e372b34628767745c1f6538086a81",
)


@dataclass(frozen=True)
class Row:
    """A figure. packed: tokens of each sample that is packed (0: none); published: in units of `unit` bytes, of `kind`. ranks: of which the
    first is followed. counted: whether it stands in the table itself, and not beside it. known: whether all kernels were compiled and timed
    before. first: whether the figure is of the first step, and not of all. by: the title of the row beside the table that explains this one."""

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
    known: bool = field(default=False, repr=False)
    first: bool = field(default=False, repr=False)
    by: str = field(default="", repr=False)

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


def _adapters(title: str, config: str, published: float, **more: Any) -> Row:
    said = f"{_CHUNKED} {_AGAIN} enable_activation_offloading=True compile=True {_ONE}"
    batch, length = (5, 2048) if "5 x" in title else (2, 4096)
    return Row(_TECHNIQUES, title, _LORA, config, batch, length, 100, said, published, **more)


def _llama_3(
    title: str,
    recipe: str,
    config: str,
    published: float,
    said: str = "",
    batch: int = 2,
    why: str = "",
    counted: bool = True,
) -> Row:
    told = f"compile=True {_ONE} {said}".strip()
    return Row(
        _LLAMA_3,
        title,
        recipe,
        config,
        batch,
        2048,
        100,
        told,
        published,
        counted=counted and batch == 2,
        why=why,
    )


def _llama_2(title: str, recipe: str, config: str, published: float, said: str = "", **more: Any) -> Row:
    told = f"{_ONE} {said}".strip()
    other: dict[str, Any] = {"kind": "reserved", "device": "rtx4090", "emulated": False, **more}
    return Row(_LLAMA_2, title, recipe, config, 4, 2048, 0, told, published, **other)


_STEP: dict[str, Any] = {"counted": False, "known": True, "first": True}
_3B = "llama3_2/3B_{}_single_device"
_WITHOUT = "with Adam's states no step is so small (below); the first step, before it has any, is"
_BEFORE = "what stood in pull request 2003 until its last day (commit c43584cba)"
_OFFLOADED = "enable_activation_offloading=True"
_HALF = "as with half the tokens (below): the note says batch 2 of all rows"
_EITHER = "less than what must be there with its checkpoints on the card (below); as if offloaded, or with half the tokens: which, is not said"
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
    _adapters("LoRA", _3B.format("lora"), 8.5, why=_WITHOUT, by="LoRA, first step"),
    _adapters("QLoRA", _3B.format("qlora"), 4.6, why=_WITHOUT, by="QLoRA, first step"),
    _adapters("LoRA, first step", _3B.format("lora"), 8.5, **_STEP),
    _adapters("QLoRA, first step", _3B.format("qlora"), 4.6, **_STEP),
    _adapters("LoRA, 5 x 2,048 tokens, first step", _3B.format("lora"), 9.16, **_STEP, why=_BEFORE),
    _adapters("QLoRA, 5 x 2,048 tokens, first step", _3B.format("qlora"), 5.28, **_STEP, why=_BEFORE),
    _llama_3("full, 4090", _FULL, _8B.format("full"), 18.9, why=_HALF),
    _llama_3("full, A6000", _FULL, _8B.format("full"), 37.4, _KEPT, why="without checkpointing"),
    _llama_3("LoRA, 4090", _LORA, _8B.format("lora"), 16.2, why=_EITHER),
    _llama_3("LoRA, A6000", _LORA, _8B.format("lora"), 30.3, _KEPT, why="without checkpointing"),
    _llama_3("QLoRA, 4090", _LORA, _8B.format("qlora"), 7.4, why=_EITHER),
    _llama_3("full, 4090, batch 1", _FULL, _8B.format("full"), 18.9, batch=1),
    _llama_3("LoRA, 4090, batch 1", _LORA, _8B.format("lora"), 16.2, batch=1),
    _llama_3("QLoRA, 4090, batch 1", _LORA, _8B.format("qlora"), 7.4, batch=1),
    _llama_3("LoRA, 4090, offloaded", _LORA, _8B.format("lora"), 16.2, _OFFLOADED, counted=False),
    _llama_3("QLoRA, 4090, offloaded", _LORA, _8B.format("qlora"), 7.4, _OFFLOADED, counted=False),
    _llama_2("QLoRA, 4090", _LORA, "llama2/7B_qlora_single_device", 12.3, "compile=True", emulated=True, why="the figure is older than the row's compiling (below); allocated here 11.85"),
    _llama_2("LoRA, 4090", _LORA, "llama2/7B_lora_single_device", 21.3),
    _llama_2("LoRA, 2 x 4090", "lora_finetune_distributed", "llama2/7B_lora", 16.2, _AGAIN, ranks=2, why="with checkpointing, without which it does not fit"),
    _llama_2("full, 4090", _FULL, "llama2/7B_full_low_memory", 24.1, why="torchtune's authors could not repeat it: pull request 961, below", by="full, repeated"),
    _llama_2("full, 4 x 4090", "full_finetune_distributed", "llama2/7B_full", 24.1, ranks=4, why="all that a card has: what is cached is given back at its end"),
    _llama_2("full, 961", _FULL, "llama2/7B_full_low_memory", 20.2, kind="allocated", counted=False, why="pull request 961 itself"),
    _llama_2("full, repeated", _FULL, "llama2/7B_full_low_memory", 22.3, counted=False, why="the table's author on an A100, answering it"),
    _llama_2("QLoRA, not compiled", _LORA, "llama2/7B_qlora_single_device", 12.3, "compile=False", emulated=True, counted=False, why="allocated here 10.57"),
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
        for _ in range(2 if row.known else 1):
            ran = subprocess.run(
                command, env={**os.environ, **own, **caches}, capture_output=True, text=True, check=False
            )
    printed = ran.stdout + "\n" + ran.stderr
    if ran.returncode not in (0, 1) or len(_PEAK.findall(printed)) < 2:
        raise RuntimeError(f"{row.title}: {printed[-2000:]}")
    return printed


def steps(printed: str) -> list[dict[str, int]]:
    """The peaks of each part of a run, in bytes: the model's making, the steps, the end.

    A program that is followed is told what would be held if its card had room; the estimate behind it knows where the card ends."""
    held = min((int(found.replace(",", "")) for found in _HELD.findall(printed)), default=0)
    found = [dict(zip(_KINDS, map(int, one), strict=True)) for one in _PEAK.findall(printed)]
    return [{**one, "reserved": min(one["reserved"], held or one["reserved"])} for one in found]


def said_of(row: Row, peaks: Sequence[Mapping[str, int]]) -> tuple[float, float]:
    """The first step's peak and the most of all steps, in the published figure's unit."""
    return peaks[1][row.kind] / row.unit, max(part[row.kind] for part in peaks[1:]) / row.unit


def page(found: Sequence[tuple[Row, Sequence[Mapping[str, int]]]]) -> str:
    """The page, from each row with its peaks."""
    lines: dict[str, list[str]] = {table: [] for table in _TABLES}
    off, ours = dict[tuple[str, str], float](), dict[tuple[str, str], float]()
    for row, peaks in found:
        at = row.table, row.title
        first, most = said_of(row, peaks)
        ours[at] = first if row.first else most
        off[at] = 100 * (ours[at] / row.published - 1)
        how = "emulated" if row.emulated else "followed"
        lines[row.table].append(
            f"| {row.title} | {row.kind} | {how} | {row.published} | {first:.2f} | {most:.2f} "
            f"| {off[at]:+.1f} % | {row.why} |"
        )
    parts, count = list[str](), [0, 0, 0, 0]
    for table, (title, said) in _TABLES.items():
        of = [row for row, _ in found if row.counted and row.table == table]
        errors = [abs(off[table, row.title]) for row in of]
        missed = [row for row, error in zip(of, errors, strict=True) if error > 3]
        told = [row for row in missed if abs(off.get((table, row.by), math.inf)) <= 3]
        count = [
            a + b
            for a, b in zip(
                count, (len(of), len(of) - len(missed), len(told), len(missed) - len(told)), strict=True
            )
        ]
        explained = "".join(
            f"; {row.title}: {ours[table, row.by]:.2f} ({off[table, row.by]:+.1f} %)" for row in told
        )
        unexplained = "".join(f"; {row.title}" for row in missed if row not in told)
        parts += ["", f"## {title}", "", *said, ""]
        parts += [
            f"{len(of)} figures, median error {statistics.median(errors):.1f} %, largest {max(errors):.1f} %: {len(of) - len(missed)} within 3 %, "
            f"{len(told)} explained{explained.replace(';', ':', 1)}; {len(missed) - len(told)} not explained{unexplained.replace(';', ':', 1)}.",
            "",
            *_COLUMNS,
            *lines[table],
        ]
        parts += ["", *_BELOW[table]]
    parts = ["", "{} figures: {} within 3 %, {} explained, {} not explained.".format(*count), *parts]
    return "\n".join((*_HEAD, *parts, "", *_LEFT, ""))


_HEAD = (
    "# torchtune's tables of memory",
    "",
    "[torchtune](https://github.com/pytorch/torchtune)'s own recipes and configurations, as they were when the tables of its README were written,",
    "beside what they take here; `python -m benchmarks torchtune table` writes this page. What compiles anything is emulated: PyTorch 2.5.1's own binary",
    "(cu124) with Inductor, FlexAttention and Triton's compiler, on a machine without a GPU. The rest is followed by `analyze run`, as of torch 2.6.",
    "Published is what torchtune logs of a step. The first step has no state of an optimizer yet, but what Inductor times kernels on (nothing was",
    "compiled before): a copy of all that they overwrite, and 256 MB. The most is of all steps, and the error is the most's; in rows of a first step",
    "it is that step's, and everything was compiled before. Nothing is tuned for a figure.",
    "",
    "Rows behind a table are not counted in it. Explained is a figure that cannot be what its table says, where a row behind the table says within",
    "3 % what it is.",
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
_BELOW = {
    _TECHNIQUES: (
        "LoRA and QLoRA: with Adam's states (0.34 GiB for adapters of rank 64, which these configurations always had) the model, all logits in bfloat16",
        "(1.96 GiB) and the gradient of one chunk of them (0.24) are 8.75 and 4.87 GiB already. The README's command is the one that is run here. Until",
        "2024-11-18 the pull request had other figures, of batch 5 with 2,048 tokens, with two decimals; both are a first step's, to the second",
        "decimal, and what is missing beside all other steps is 0.34 GiB there too. Rank 8, 16 and 32 would be 9.06, 9.12 and 9.25 for the 9.16. Adapters",
        "that leave out the MLP would be 9.16 and 5.28 too, but the configurations have them. Why these two rows are of the first step and others of later ones, nobody wrote.",
    ),
    _LLAMA_3: (
        "A model that is not quantized is 15.03 GiB, quantized 5.41; with batch 2 its 32 checkpoints are 1.00, the logits 0.98 and a chunk's gradient 0.12:",
        "17.1 and 7.5, more than 16.2 and 7.4. So the figures of LoRA and QLoRA are of other settings than the note's. torchtune's recipe of both could",
        "offload checkpoints since a week before (pull request 1443); that of full training could not. Pull request 1664 has no command.",
    ),
    _LLAMA_2: (
        'QLoRA: pull request 955 first had 12.3 GB with 1,856 tokens a second (commit e932cf2a4), and an hour later 3,155 and "uses torch compile" with the',
        "same 12.3 (a0e2c214c): the memory was not written anew, and is of neither run within 3 %. The full row: it had the 24.1 of the row below, and their speeds were exchanged",
        '(c4b3d900a). Pull request 961 says "Can\'t reproduce 24.1GB on a single device full finetune and instead seeing 20.2 peak memory allocated"; the',
        "table's author answers \"On my A100, I'm getting 22.3\".",
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
