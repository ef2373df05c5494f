"""`analyze run --nproc-per-node N --rank R|all`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytest.importorskip("torch")

from tests.paths import MODELS, ROOT

pytestmark = pytest.mark.usefixtures("forked_ranks")

# What its two ranks do apart (`tests/extensions/programs/test_order.py`) is no error: they call the same collectives in the same order.
UNEVEN = """
import torch, torch.distributed as dist

def together():
    weights = torch.zeros(1000, device=f'cuda:{rank}')
    names = ['a'] if rank == 0 else [None]
    dist.broadcast_object_list(names, src=0)
    known = [3]
    dist.broadcast_object_list(known, src=0)
    gathered = [torch.zeros_like(weights) for _ in range(2)] if rank == 0 else None
    dist.gather(weights, gathered, dst=0)
    dist.all_reduce(weights)
    if rank == 0:
        print(names)

dist.init_process_group('nccl')
rank = dist.get_rank()
together()
x = torch.zeros(2**20 * (1 + 100 * rank), device='cuda')
"""


def test_the_worst_rank_stands_for_the_job(run: Callable[..., Any], tmp_path: Path) -> None:
    script = tmp_path / "uneven.py"
    script.write_text(UNEVEN)
    ran = run("run", "--nproc-per-node", "2", "--rank", "all", "--format", "json", "-q", script)
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["target"].endswith("uneven.py (rank 1 of 2)")
    assert [note for note in found["notes"] if note.startswith("rank 0: peak allocated 4,194,304 bytes")]
    jsonschema.validate(found, json.loads((ROOT / "analyzer/report/schema.json").read_text()))
    small, large = found["ranks"]
    assert (small["rank"], small["peak_allocated"], max(small["course"])) == (0, 4 << 20, 4 << 20)
    assert (large["peak_allocated"], large["course"][-1], len(large["course"])) == (404 << 20, 404 << 20, 500)

    saved = tmp_path / "ranks.json"
    saved.write_text(ran.out)
    page = run("report", saved, "--format", "html")
    data = json.loads(page.out.partition('id="data">')[2].partition("</script>")[0])
    assert [line["name"] for line in data["charts"][0]["lines"]] == ["rank 0", "rank 1"]
    assert data["charts"][0]["lines"][1]["values"] == large["course"]
    assert page.out.index("Course</h2>") < page.out.index("<h2>Ranks</h2>")  # the chart first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nproc-per-node", "2", "--rank", "2"], "there is no rank 2 among 2"),
        (["--rank", "some"], "Invalid value for '--rank'"),
        (["--nproc-per-node", "0"], "Invalid value for '--nproc-per-node'"),
        (["--nproc-per-node", "gpu"], "Invalid value for '--nproc-per-node'"),
        (["--rdzv-backend=c10d"], "analyze run has no option --rdzv-backend\n  hint: leave it out"),
        (["--nproc_per_node", "2"], "no option --nproc_per_node\n  hint: did you mean '--nproc-per-node'"),
    ],
)
def test_a_rank_that_is_not_there(
    run: Callable[..., Any], options: list[str], message: str, tmp_path: Path
) -> None:
    script = tmp_path / "empty.py"
    script.write_text("")
    ran = run("run", *options, script)
    assert ran.code == 2 and message in ran.err


def test_a_model_on_several_gpus(run: Callable[..., Any]) -> None:
    spread = ("--mode", "train", "--parallel", "fsdp2:8,mixed=bf16", "--device", "h200")
    ran = run(MODELS / "feedforward.py", "--batch", "8", *spread, "-q")
    assert ran.code == 0 and ran.out.startswith("fits: ")
    said = " ".join(ran.out.split())
    assert "FSDP2 on 8 GPUs: the batch, and every figure, is one rank's" in said
    assert "NCCL bounded" in said


@pytest.mark.parametrize(
    ("target", "parallel", "message"),
    [
        ("feedforward.py", "fsdp3:8", "unknown way to spread a model 'fsdp3'"),
        ("feedforward.py", "ddp:8,warp=1", "ddp has no setting 'warp'"),
        ("vit_b_16.py", "tp:5", "cannot be divided over 5 GPUs"),
        ("cnn.onnx", "ddp:2", "is an ONNX file, which runs on one GPU"),
    ],
)
def test_a_model_that_cannot_be_spread(
    run: Callable[..., Any], target: str, parallel: str, message: str
) -> None:
    ran = run(MODELS / target, "--batch", "2", "--mode", "train", "--parallel", parallel)
    assert ran.code == 2 and ran.out == ""
    assert message in " ".join(ran.err.split()) and "Traceback" not in ran.err
