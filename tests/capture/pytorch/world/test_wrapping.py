"""`--parallel`: what it does to a model, and that it is what a script does that says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn

import analyzer
from analyzer import Estimate, TensorSpec

MIB = 2**20


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
from tests.capture.pytorch.world.test_wrapping import Model
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
def test_it_is_what_a_script_does_that_says_the_same(parallel: str, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(HEAD + SCRIPTS[parallel] + STEPS)
    ranks = int(parallel.partition(",")[0].partition(":")[2])
    followed = analyzer.run(script, ranks=ranks, device="h200")
    found = estimate(parallel)
    assert (found.peak_allocated, found.peak_reserved, found.device_used) == (
        followed.peak_allocated, followed.peak_reserved, followed.device_used,
    )  # fmt: skip
    assert any("the batch, and every figure, is one rank's" in note for note in found.notes)
