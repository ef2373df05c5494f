"""`--parallel`: what it does to a model, and that it is what a script does that says the same."""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

import analyzer
from analyzer import Estimate, TensorSpec
from analyzer.errors import CaptureError, OptionError
from analyzer.graph import Category
from analyzer.options import Options
from analyzer.pipeline import analysis
from tests.paths import MODELS


class Attention(nn.Module):
    """Heads counted as many models do."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            layer(x).view(batch, length, self.num_heads, -1).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        seen = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.o_proj(seen.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    """Pre-norm attention and perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Model(nn.Module):
    """A small language model."""

    def __init__(self, width: int = 64, heads: int = 4, depth: int = 3, words: int = 500) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)  # type: ignore[no-any-return]


TOKENS = TensorSpec((4, 32), "int64")


def estimate(parallel: str | None, model: nn.Module | None = None, **options: Any) -> Estimate:
    """A training step of the small model, spread."""
    said: dict[str, Any] = {"mode": "train", "optimizer": "adamw", "device": "h200", **options}
    return analyzer.analyze(model or Model(), inputs=(TOKENS,), targets=(TOKENS,), parallel=parallel, **said)


# What `--parallel` says, written out as the script that does the same (its model is imported from here).
HEAD = """
import os, torch, torch.distributed as dist
from torch.nn import functional as F
from tests.extensions.programs.world.test_wrapping import Model
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device("cuda", rank))
model = Model()
"""
STEPS = """
for _ in range(3):
    tokens, targets = (torch.zeros(4, 32, dtype=torch.long) for _ in range(2))
    tokens, targets = tokens.cuda(), targets.cuda()
    optimizer.zero_grad()
    output = model(tokens)
    loss = F.cross_entropy(output.reshape(-1, output.size(-1)), targets.reshape(-1))
    loss.backward()
    optimizer.step()
"""
SHARDED = """
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
for block in model.blocks:
    fully_shard(block{options})
fully_shard(model{options})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
"""
SCRIPTS = {
    "ddp:2": """
model = torch.nn.parallel.DistributedDataParallel(model.cuda(), device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
""",
    "ddp:2,gradient_as_bucket_view=true,bucket_cap_mb=1": """
model = torch.nn.parallel.DistributedDataParallel(
    model.cuda(), device_ids=[rank], gradient_as_bucket_view=True, bucket_cap_mb=1
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
""",
    "ddp:2,zero=true": """
from torch.distributed.optim import ZeroRedundancyOptimizer
model = torch.nn.parallel.DistributedDataParallel(model.cuda(), device_ids=[rank])
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3)
""",
    "fsdp2:2": SHARDED.format(options=""),
    "fsdp2:8,mixed=bf16": SHARDED.format(
        options=", mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)"
    ),
    "fsdp2:2,reshard_after_forward=false": SHARDED.format(options=", reshard_after_forward=False"),
    "fsdp2:4,offload=true": SHARDED.format(options=", offload_policy=CPUOffloadPolicy()"),
    "tp:2": """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
model, mesh = model.cuda(), init_device_mesh("cuda", (2,))
for block in model.blocks:
    block.attention.num_heads //= 2
    columns = ("attention.q_proj", "attention.k_proj", "attention.v_proj", "mlp.0")
    parallelize_module(
        block, mesh,
        {**{name: ColwiseParallel() for name in columns}, "attention.o_proj": RowwiseParallel(), "mlp.2": RowwiseParallel()},
    )
parameters = list(model.parameters())
split = [parameter for parameter in parameters if isinstance(parameter, DTensor)]
whole = [parameter for parameter in parameters if not isinstance(parameter, DTensor)]
optimizer = torch.optim.AdamW([{"params": split}, {"params": whole}], lr=1e-3)
""",
}  # fmt: skip


@pytest.mark.parametrize("parallel", SCRIPTS)
@pytest.mark.sampled(3)
def test_it_is_what_a_script_does_that_says_the_same(parallel: str, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(HEAD + SCRIPTS[parallel] + STEPS)
    ranks = int(parallel.partition(",")[0].partition(":")[2])
    followed = analyzer.run(script, ranks=ranks, rank=int(parallel.startswith("tp")), device="h200")
    found = estimate(parallel)
    assert (found.peak_allocated, found.peak_reserved, found.device_used) == (
        followed.peak_allocated, followed.peak_reserved, followed.device_used,
    )  # fmt: skip
    assert any("the batch, and every figure, is one rank's" in note for note in found.notes)


def shares(parallel: str, model: nn.Module | None = None) -> Counter[Category]:
    """Bytes of the rank's storages by category, as requested in the first step, which makes all of them."""
    said: dict[str, Any] = {"mode": "train", "optimizer": "adamw", "device": "h200", "steps": 1}
    found = analysis(
        model or Model(), Options(inputs=(TOKENS,), targets=(TOKENS,), parallel=parallel, **said)
    )
    sums = Counter[Category]()
    for storage in found.graph.storages:
        if storage.on_device:
            sums[storage.category] += storage.nbytes
    return sums


@pytest.mark.parametrize("size", [2, 3])
def test_shards_sum_to_the_whole(size: int) -> None:
    """Rows of every parameter are divided, the last rank having what is left; storage is padded to the first rank's."""
    shapes = [tuple(parameter.shape) for parameter in Model(depth=1).parameters()]
    whole = sum(math.prod(shape) for shape in shapes) * 4
    rows = [
        [min(max(shape[0] - rank * -(-shape[0] // size), 0), -(-shape[0] // size)) for shape in shapes]
        for rank in range(size)
    ]
    states = 0
    for rank in range(size):
        shard = sum(count * math.prod(shape[1:]) for count, shape in zip(rows[rank], shapes, strict=True))
        padded = sum(-(-shape[0] // size) * math.prod(shape[1:]) for shape in shapes)
        found = shares(f"fsdp2:{size},rank={rank}", Model(depth=1))
        assert found[Category.PARAMETER] == 4 * padded
        states += (own := found[Category.OPTIMIZER_STATE])
        assert own == 2 * 4 * shard
    assert states == 2 * whole


def test_tensor_parallelism_divides_the_linear_layers() -> None:
    width, words, depth = 64, 500, 2
    split = depth * (4 * width * width + 3 * width + 8 * width * width + 4 * width)
    # Biases of the layers split by rows are whole on every rank, as norms, embedding and head are.
    whole = depth * (2 * width + 2 * width) + 2 * words * width
    for size in (2, 4):
        found = shares(f"tp:{size}", Model(depth=depth))
        assert found[Category.PARAMETER] == 4 * (split // size + whole)
        assert found[Category.OPTIMIZER_STATE] == 8 * (split // size + whole)


def test_ddp_holds_everything_and_zero_a_share_of_the_states() -> None:
    whole = sum(parameter.numel() for parameter in Model().parameters()) * 4
    found = shares("ddp:8")
    assert (found[Category.PARAMETER], found[Category.OPTIMIZER_STATE]) == (whole, 2 * whole)
    states = [shares(f"ddp:2,zero=true,rank={rank}")[Category.OPTIMIZER_STATE] for rank in (0, 1)]
    assert sum(states) == 2 * whole and all(0.4 < state / (2 * whole) < 0.6 for state in states)


def test_the_gradient_is_there_twice_under_ddp_unless_it_is_a_view() -> None:
    """Document 000's d: the formula's second weight gradient is the reducer's bucket."""
    alone, twice, view = (
        analyzer.analyze(MODELS / "cnn.py", batch=128, mode="train", device="h200", parallel=parallel)
        for parallel in (None, "ddp:2", "ddp:2,gradient_as_bucket_view=true")
    )
    weights = 3_943_656
    assert (alone.naive.weight_gradient, twice.naive.weight_gradient) == (weights, 2 * weights)
    assert twice.naive.total - alone.naive.total == weights
    assert twice.peak_allocated - alone.peak_allocated == -(-weights // 512) * 512
    assert 0 <= view.peak_allocated - alone.peak_allocated <= 512


def test_micro_batches_reduce_at_the_end_or_each() -> None:
    each = estimate("fsdp2:8", grad_accumulation=3, steps=2)
    last = estimate("fsdp2:8,no_sync=true", grad_accumulation=3, steps=2)
    whole = sum(parameter.numel() for parameter in Model().parameters()) * 4
    assert last.peak_allocated - each.peak_allocated > whole // 2


def test_a_pattern_says_what_is_sharded_together() -> None:
    found = estimate("fsdp2:2,wrap=blocks.?.mlp")
    assert any("fully_shard on 3 blocks (blocks.*.mlp)" in note for note in found.notes)
    alone = estimate("fsdp2:2", nn.Sequential(nn.Embedding(500, 64), nn.Linear(64, 500)))
    assert any("repeats no block" in note for note in alone.notes)


def test_in_inference_nothing_is_reduced() -> None:
    found = estimate("fsdp2:2", mode="infer")
    assert found.naive.mode == "infer" and found.peak_allocated > 0
    assert estimate("tp:2", mode="infer").peak_allocated < estimate(None, mode="infer").peak_allocated


@pytest.mark.parametrize(
    ("parallel", "model", "message"),
    [
        ("tp:3", None, "num_heads of blocks.0.attention is 4, which cannot be divided over 3 GPUs"),
        ("tp:3", Model(width=60, heads=3, depth=2), None),
        ("tp:7", nn.Sequential(nn.Embedding(9, 8), nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))), "the 32 columns"),
        ("tp:2", nn.Sequential(nn.Embedding(500, 64), nn.Linear(64, 500)), "no linear layers of the names"),
        ("fsdp2:2,wrap=layers.*", None, "no module matches the wrap pattern 'layers.*'"),
    ],
)  # fmt: skip
def test_what_cannot_be_spread_is_said(parallel: str, model: nn.Module | None, message: str | None) -> None:
    if message is None:
        assert estimate(parallel, model).peak_allocated > 0
        return
    with pytest.raises(OptionError) as error:
        estimate(parallel, model)
    assert message in error.value.message and error.value.hint


class Fixed(nn.Module):
    """Attention that knows its width by heart, as no split layer gives it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(500, 64)
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.up(self.embed(tokens)).view(4, 32, 256)
        return self.down(x)  # type: ignore[no-any-return]


def test_a_model_that_does_not_run_split_says_so_and_what_to_do() -> None:
    with pytest.raises(CaptureError) as error:
        estimate("tp:2", Fixed())
    assert error.value.message.startswith("spread by --parallel tp:2: ")
    assert "analyze run --nproc-per-node 2 SCRIPT" in error.value.hint


def test_frozen_models_need_no_ddp() -> None:
    with pytest.raises(OptionError, match="no parameter that is trained"):
        estimate("ddp:2", Model().requires_grad_(False), mode="infer")


def test_onnx_files_and_other_runtimes_are_for_one_gpu() -> None:
    with pytest.raises(OptionError, match="runs on one GPU: parallel is for PyTorch models"):
        analyzer.analyze(MODELS / "cnn.onnx", batch=1, parallel="ddp:2")
    with pytest.raises(OptionError, match="paddle runs one process"):
        estimate("ddp:2", runtime="paddle")


def test_the_process_is_left_as_it_was() -> None:
    hook = sys.excepthook
    estimate("ddp:2")
    assert sys.excepthook is hook and not torch.distributed.is_initialized()


@pytest.mark.parametrize("size", [1, 4096])
def test_worlds_no_two_gpus_can_check(size: int) -> None:
    """One rank holds everything; of 4,096 the last holds as much as any, where there are that many rows."""
    with torch.device("meta"):
        model = Model(width=4096, heads=32, depth=1, words=8192)
    whole = sum(parameter.numel() for parameter in model.parameters())
    found = shares(f"fsdp2:{size},rank={size - 1}", model)
    assert found[Category.PARAMETER] == 4 * whole // size
    assert found[Category.OPTIMIZER_STATE] == 8 * whole // size
