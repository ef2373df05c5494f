"""What `--parallel` predicts beside what two H200 took: python -m benchmarks ranks targets

Measured: `tests/data/h200/ranks_targets.json`, by `measure.py --jobs targets.json` (its rows say with which versions). Targets
need timm and transformers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from analyzer import analyze
from analyzer.parallelism import KINDS
from benchmarks import ROOT
from benchmarks.ranks.score import cells

PAGE = ROOT / "docs/PARALLEL.md"
ROWS = ROOT / "tests/data/h200/ranks_targets.json"
_HEAD = """# A model on several GPUs

```sh
analyze models/gpt2.py --batch 8 --mode train --optimizer adamw --parallel ddp:8
analyze models/llama.py --batch 1 --mode train --optimizer adamw --parallel fsdp2:64,mixed=bf16 --checkpoint 'model.layers.*'
analyze fit models/gpt2.py --mode train --device 24GiB --parallel fsdp2:2,mixed=bf16
```

`--parallel KIND:GPUS[,NAME=VALUE...]` spreads a module target as PyTorch's tutorials do, and shows one rank of the job: the batch,
and every figure, is that rank's. It is PyTorch's own code that wraps the model and runs, with nobody at the other end: byte for
byte what `analyze run --nproc-per-node` finds of the script that says the same, which is where anything of your own belongs.

| kind | what it does | settings |
|---|---|---|
| `ddp` | the whole model on every rank, in `DistributedDataParallel`; micro-batches but the last under `no_sync` | {ddp} |
| `fsdp2` | `fully_shard` on every block the model repeats, or those `wrap` matches, and on the model | {fsdp2} |
| `tp` | `parallelize_module` on pairs of linear layers of known names: by columns, then by rows, whole heads to a rank | {tp} |

Settings are called what PyTorch calls them. `mixed=bf16` gathers parameters in that type and reduces gradients in float32
(`reduce_dtype` says another); `offload=true` keeps shards and optimizer on the host; `zero=true` is `ZeroRedundancyOptimizer`;
`no_sync=true` under `fsdp2` keeps whole gradients until the last micro-batch; `rank` shows another rank than the one that
takes the most. The notes name the blocks that are sharded together and the layers that are split. `what-if` offers FSDP2 on 8
GPUs. What NCCL takes is measured for two H200; for other numbers of ranks the output says "NCCL bounded", until `analyze
calibrate --ranks N` has measured a machine.

Measured on two H200 (torch 2.11.0+cu130, NCCL 2.28.9, NVLink, 22 November 2026), each model spread by the same function and
really run; predicted with the torch that is installed, 2.13 here. Made by `python -m benchmarks ranks targets`.
MiB measured, and how far the prediction is from it:

| target | `--parallel` | other options | rank | allocated | | reserved | | device | |
|---|---|---|---|---|---|---|---|---|---|
"""
_TAIL = """
Where allocated is too low, DDP's replaced buckets lived on until NCCL's watchdog looked, every 100 ms: these steps are shorter,
and the estimate says so. The device's figure of DDP lacks 4 to
10 MiB of kernels' code.
"""


def rows(names: Sequence[str] = ()) -> Iterator[tuple[dict[str, Any], list[tuple[int, int]]]]:
    """A measured row, and (predicted, measured) bytes: allocated, reserved, device."""
    for row in json.loads(ROWS.read_text()):
        if names and row["name"] not in names:
            continue
        options = {**row["options"], "parallel": f"{row['options']['parallel']},rank={row['rank']}"}
        found = analyze(ROOT / row["target"], device="h200", **options)
        pairs = [
            (found.peak_allocated, row["peak_allocated"]),
            (found.peak_reserved, row["peak_reserved"]),
            (found.device_used, row["nvml_peak"]),
        ]
        yield row, pairs


@click.command()
@click.argument("names", nargs=-1)
def targets(names: tuple[str, ...]) -> None:
    """Predict every target's ranks and write the page; of those named, print their rows."""
    lines = []
    for row, pairs in rows(names):
        said = ", ".join(
            f"{name} {value}"
            for name, value in row["options"].items()
            if name not in ("mode", "parallel") and (name, value) != ("optimizer", "adamw")
        )
        lines.append(
            f"| {Path(row['target']).stem} | {row['options']['parallel']} | {said} | {row['rank']} | {cells(pairs)} |"
        )
    if names:
        print("\n".join(lines))
        return
    settings = {kind: ", ".join(f"`{name}`" for name in known) for kind, known in KINDS.items()}
    PAGE.write_text(_HEAD.format(**settings) + "\n".join(lines) + "\n" + _TAIL)
