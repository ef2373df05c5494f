"""One rank of a job that is not there: process groups, DDP's reducer, FSDP's streams, DTensor, NCCL's own memory.

Sizes are computed by hand. Exactness against two real H200 is `benchmarks/ranks`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

import analyzer
from analyzer.analysis import Analysis
from analyzer.capture.pytorch.patches import PATCHES
from analyzer.devices import load
from analyzer.errors import CaptureError, OptionError
from analyzer.libraries import nccl
from analyzer.options import Options
from analyzer.ranks import Rank
from analyzer.runtimes.events import Malloc
from analyzer_programs.program import follow
from tests.extensions.programs.world.ranks import JOIN, followed, program

MIB = 2**20


def sizes(found: Analysis, stream: bool = False) -> list[object]:
    """Bytes of every request, with its stream if asked for."""
    requests = [event for event in found.events if isinstance(event, Malloc) and event.nbytes]
    return [(event.nbytes, event.stream) if stream else event.nbytes for event in requests]


def test_a_rank_knows_its_place(tmp_path: Path) -> None:
    followed(
        tmp_path,
        """
assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (3, 4, "nccl")
assert torch.cuda.device_count() == 4 and torch.cuda.current_device() == 3
assert torch.empty(1, device="cuda").device == torch.device("cuda", 3)
everyone = [None] * 4
dist.all_gather_object(everyone, {"rank": 3})
assert everyone == [{"rank": 3}] * 4
half = dist.new_group([2, 3])
assert half.rank() == 1 and half.size() == 2
assert dist.new_group([0, 1]) is dist.GroupMember.NON_GROUP_MEMBER
dist.barrier()
""",
        ranks=4,
        rank=3,
    )


def test_what_nccl_makes_since_torch_2_15_is_there_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`_create_nccl2_process_group` makes it with options and a device, of which a build without CUDA has neither."""
    where = "torch.distributed.distributed_c10d.ProcessGroupNCCL2"
    monkeypatch.setitem(PATCHES, where, replace(PATCHES[where], since=None))
    followed(
        tmp_path,
        """
c10d = dist.distributed_c10d
options = c10d.ProcessGroupNCCL.Options()
options._timeout = options.group_name = None
made = c10d.ProcessGroupNCCL2(dist.HashStore(), 1, 2, options, torch.device("cuda", 0))
assert isinstance(made, c10d.ProcessGroupNCCL2) and (made.rank(), made.size()) == (1, 2)
""",
    )


def test_a_gathered_list_goes_through_a_flat_tensor(tmp_path: Path) -> None:
    found = followed(
        tmp_path,
        """
x = torch.zeros(2**18, device="cuda")
parts = [torch.empty_like(x) for _ in range(2)]
dist.all_gather(parts, x)
whole = torch.empty(2**19, device="cuda")
dist.all_gather_into_tensor(whole, x)
dist.reduce_scatter_tensor(x, whole)
dist.all_reduce(whole)
""",
    )
    assert sizes(found) == [MIB, MIB, MIB, 2 * MIB, 2 * MIB]
    assert found.estimate.peak_allocated == 5 * MIB


def test_ddp_keeps_its_buckets_besides_the_gradients(tmp_path: Path) -> None:
    found = followed(
        tmp_path,
        """
model = torch.nn.Linear(512, 512, bias=False).cuda()
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(64, 512, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    )
    # Once at construction, and once more when buckets are rebuilt in the second iteration: 1 MiB each.
    buckets = [e for e in found.events if isinstance(e, Malloc) and e.nbytes == MIB and "empty" in e.label]
    assert len(buckets) == 2
    assert found.estimate.peak_allocated >= 3 * MIB  # weight, gradient, bucket


SHORT_STEPS = """
import tempfile
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
torch.cuda.set_device(0)
net = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.BatchNorm1d(2048), nn.ReLU()) for _ in range(6)])
net = nn.SyncBatchNorm.convert_sync_batchnorm(net.cuda())
net = DistributedDataParallel(net, device_ids=[0], bucket_cap_mb=10)
opt = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=1e-3)
for step in range(2):
    with net.no_sync():
        net(torch.randn(1024, 2048, device="cuda")).mean().backward()
    net(torch.randn(1024, 2048, device="cuda")).mean().backward()
    opt.step()
    opt.zero_grad()
dist.destroy_process_group()
"""


def test_buckets_that_the_watchdog_keeps_longer_are_within_the_range(tmp_path: Path) -> None:
    """An H100 (torch 2.11, 26 November 2026) held 866 MiB, the first buckets among them in the second step."""
    script = tmp_path / "short_steps.py"
    script.write_text(SHORT_STEPS)
    found, error = follow(script, [], Options(device="h100", release={"torch": "2.11"}), {})
    assert error is None
    assert found.estimate.reserved_range == (found.estimate.peak_reserved, 866 * MIB)
    assert any("longer than the pauses of NCCL's watchdog" in note for note in found.estimate.notes)


SYNCHRONISED = """
model = torch.nn.Sequential(torch.nn.Conv2d(64, 64, 3, padding=1, bias=False), torch.nn.BatchNorm2d(64)).cuda()
model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
x = torch.randn(32, 64, 32, 32, device="cuda")
for _ in range(2):
    model(x).sum().backward()
"""


def test_batch_norm_over_all_ranks(tmp_path: Path) -> None:
    """Of a rank's 64 channels, 129 floats go to the other one (means, deviations, a count), and come from both."""
    found = followed(tmp_path, SYNCHRONISED)
    made = [event for event in found.events if isinstance(event, Malloc) and event.nbytes]
    labels = [event.label.partition(".")[0] for event in made]
    start = labels.index("aten::batch_norm_stats")
    assert [event.nbytes for event in made[start : start + 5]] == [256, 256, 4, 4 * 129, 2 * 4 * 129]
    normalised = next(event for event in made if event.label.startswith("aten::batch_norm_elemt"))
    assert normalised.nbytes == 32 * 64 * 32 * 32 * 4
    assert "aten::batch_norm_backward_elemt" in labels and "aten::cudnn_batch_norm" not in labels
    assert not any("depends on data" in note for note in found.estimate.notes)
    assert not found.prediction.unknown


def test_a_job_of_one_rank_knows_its_place(tmp_path: Path) -> None:
    followed(
        tmp_path, "assert (rank, dist.get_world_size(), os.environ['WORLD_SIZE']) == (0, 1, '1')", ranks=1
    )


def test_batch_norm_of_a_world_of_one_is_cudnns(tmp_path: Path) -> None:
    found = followed(tmp_path, SYNCHRONISED, ranks=1)
    labels = {event.label.partition(".")[0] for event in found.events if isinstance(event, Malloc)}
    assert "aten::cudnn_batch_norm" in labels and "aten::batch_norm_stats" not in labels


def test_fsdp2_gathers_and_reduces_on_streams_of_its_own(tmp_path: Path) -> None:
    found = followed(
        tmp_path,
        """
from torch.distributed.fsdp import fully_shard
model = torch.nn.Linear(512, 1024, bias=False)
fully_shard(model)
model(torch.randn(8, 512, device="cuda")).sum().backward()
assert model.weight.to_local().shape == (512, 512)
assert model.weight.grad.to_local().shape == (512, 512)
""",
    )
    requests = sizes(found, stream=True)
    gathered = [(size, stream) for size, stream in requests if stream]  # type: ignore[misc]
    # The gathered parameter on the copy-in stream (once: a root is not sharded again after its forward pass), the shard of
    # its gradient on the third.
    assert gathered == [(2 * MIB, 33), (MIB, 35)]


def test_random_numbers_fill_what_a_rank_holds(tmp_path: Path) -> None:
    """Layers made without memory initialise themselves once they are split."""
    followed(
        tmp_path,
        """
from torch.distributed.fsdp import fully_shard
torch.manual_seed(0)
with torch.device("meta"):
    model = torch.nn.Sequential(torch.nn.Embedding(64, 16), torch.nn.Linear(16, 64), torch.nn.LSTM(16, 16))
fully_shard(model)
model.to_empty(device="cuda")
before = torch.cuda.max_memory_allocated()
for part in model:
    part.reset_parameters()
weight = model[1].weight
for fill in ("uniform_", "normal_", "trunc_normal_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_"):
    getattr(torch.nn.init, fill)(weight)
for fill in ("uniform_", "normal_", "bernoulli_", "exponential_", "log_normal_", "cauchy_"):
    assert getattr(weight.data, fill)().to_local().shape == (32, 16)
# Halves of four matrices of 64 x 16 floats and of three biases, in blocks of 512 bytes; numbers filled in take nothing.
assert torch.cuda.memory_allocated() == 4 * 2048 + 3 * 512
assert torch.rand_like(weight).to_local().shape == (32, 16)
""",
    )


def test_dtensor_is_recorded_by_what_a_rank_holds(tmp_path: Path) -> None:
    found = followed(
        tmp_path,
        """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
mesh = init_device_mesh("cuda", (2,))
x = distribute_tensor(torch.zeros(1024, 1024, device="cuda"), mesh, [Shard(0)])
y = x * 2
z = y.full_tensor()
""",
    )
    assert sizes(found) == [4 * MIB, 2 * MIB, 2 * MIB, 4 * MIB]


# NCCL's code, of sends and receives too; 98 pages of 2 MiB; 24 channels of 12 MiB round the ring; 32 of 2 MiB to whom it
# sends, of 10 MiB to whom it receives from. A communicator of one rank has 64 channels: 194 pages.
CODE, EXCHANGE, PAGES, RING, SEND, RECEIVE, ALONE = 356, 62, 196, 288, 64, 320, 388
MESH = "from torch.distributed.device_mesh import init_device_mesh\ninit_device_mesh('cuda', (2, 1))"


@pytest.mark.parametrize(
    ("text", "eager_mib", "lazy_mib"),
    [
        # Bound to a device, a process group has its communicator at once; otherwise with the first use.
        ("", CODE + PAGES, 0),
        ("dist.all_reduce(x)", CODE + PAGES + RING, CODE + PAGES + RING),
        ("dist.send(x, 1)", CODE + EXCHANGE + PAGES + SEND, CODE + EXCHANGE + PAGES + SEND),
        ("dist.recv(x, 1)", CODE + EXCHANGE + PAGES + RECEIVE, CODE + EXCHANGE + PAGES + RECEIVE),
        # Not bound, a message by itself goes through a communicator of the two ranks.
        (
            "dist.all_reduce(x)\ndist.send(x, 1)",
            CODE + EXCHANGE + PAGES + RING + SEND,
            CODE + EXCHANGE + 2 * PAGES + RING + SEND,
        ),
        # A mesh's dimension of all ranks is the world's own group, that of a single rank is another.
        (MESH, CODE + PAGES + ALONE, 0),
    ],
    ids=["joined", "collective", "send", "receive", "both", "mesh"],
)
def test_nccl_takes_what_was_measured_of_two_gpus(
    tmp_path: Path, text: str, eager_mib: int, lazy_mib: int
) -> None:
    tensor = "x = torch.zeros(2**18, device='cuda')\n"
    alone = program(tmp_path, f"import torch\n{tensor}")
    for join, nccl_mib in ((JOIN, eager_mib), (JOIN.replace(", device_id=", ") #"), lazy_mib)):
        found = program(tmp_path, f"{join}{tensor}{text}\n")
        assert found.estimate.device_used is not None and alone.estimate.device_used is not None
        assert found.estimate.device_used - alone.estimate.device_used == nccl_mib * MIB
        assert not any("NCCL bounded" in note for note in found.estimate.notes)


def test_other_numbers_of_ranks_are_said_to_be_bounded(tmp_path: Path) -> None:
    found = followed(tmp_path, "dist.all_reduce(torch.zeros(2**18, device='cuda'))\n", ranks=16, rank=9)
    assert any(note.startswith("NCCL bounded") for note in found.estimate.notes)
    assert nccl.memory_of({}, load("h200")) == nccl.Memory(0)


def test_shards_of_a_world_sum_to_the_whole(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = """
from torch.distributed.fsdp import fully_shard
model = torch.nn.Linear(96, 1000, bias=False)
fully_shard(model)
print(model.weight.to_local().numel() * 4)
"""
    script = tmp_path / "program.py"
    script.write_text(JOIN + text)
    held = []
    for rank in range(3):
        follow(script, [], Options(device="h200"), {}, "end", 3, rank)
        held.append(int(capfd.readouterr().out.split()[-1]) // 4)
    assert held == [334 * 96, 334 * 96, 332 * 96] and sum(held) == 96_000


@pytest.mark.parametrize(
    ("rank", "ranks", "local", "message"),
    [
        (2, 2, 2, "there is no rank 2 among 2"),
        (-1, 2, 2, "there is no rank -1 among 2"),
        (0, 0, 1, "0 ranks"),
        (0, 6, 4, "6 ranks cannot be spread"),
    ],
)
def test_a_job_that_cannot_be(rank: int, ranks: int, local: int, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Rank(rank, ranks, local)


def test_machines_of_eight() -> None:
    assert Rank.of(9, 64) == Rank(9, 64, 8)
    assert (Rank.of(9, 64).local_rank, Rank.of(9, 64).node) == (1, 1)
    assert Rank.of(2, 6).local_world_size == 6
    assert Rank().environment() == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dist.distributed_c10d._get_default_store().get('written by another')", "reads '"),
        (
            "from torch.distributed.device_mesh import init_device_mesh\ninit_device_mesh('cuda', (3,))",
            "program.py:7",
        ),
        ("import torch.multiprocessing as mp\nmp.spawn(print, nprocs=4)", "spawns 4 processes, but 2 are"),
    ],
)
def test_what_cannot_be_followed_is_said_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CaptureError) as error:
        followed(tmp_path, text)
    assert message in str(error.value)


def test_more_ranks_than_were_started(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo', init_method='tcp://localhost:1', rank=0, world_size=4)\n"
    )
    found, _ = follow(script, [], Options(device="h200"), {})
    assert "waits for 4 ranks, but 1 is started" in (found.estimate.incomplete or "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dist.new_group([0, 1], backend='carrier-pigeon')", "carrier-pigeon"),
        ("dist.new_group([0, 5])", "5"),
        ("dist.all_reduce(torch.zeros(1))", "No backend type associated with device type cpu"),
        ("dist.monitored_barrier()", "only implemented for GLOO"),
    ],
    ids=["backend", "rank beyond", "host tensor", "barrier"],
)
def test_what_pytorch_refuses_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CaptureError, match=r"^program\.py:6") as error:
        followed(tmp_path, text)
    assert message in str(error.value)


@pytest.mark.parametrize("world", [8, 64, 512, 4096])
def test_a_rank_of_any_world_holds_what_the_sharding_says(tmp_path: Path, world: int) -> None:
    """Rows are dealt out in blocks of ceil(rows / world): parameter, and two moments of Adam, of 1,000 rows of 96."""
    rows = -(-1000 // world)
    for rank in (0, 999 // rows, world - 1):
        found = followed(
            tmp_path,
            f"""
from torch.distributed.fsdp import fully_shard
model = torch.nn.Linear(96, 1000, bias=False)
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters())
model(torch.randn(2, 96, device="cuda")).sum().backward()
optimizer.step()
held = min(max(1000 - {rank} * {rows}, 0), {rows}) * 96
state = optimizer.state[model.weight]
assert model.weight.to_local().numel() == held
assert [state[name].to_local().numel() for name in ("exp_avg", "exp_avg_sq")] == [held, held]
""",
            ranks=world,
            rank=rank,
        )
        assert any(note.startswith("NCCL bounded") for note in found.estimate.notes)


SHARDED = """
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1024, 1024))
    def forward(self, x):
        return x * self.weight
model = torch.nn.Sequential(*[Scale() for _ in range(4)])
model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Scale}), device_id=rank, SETTINGS)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(2):
    model(torch.randn(1, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("settings", "held"),
    [
        # Halves of four layers and of their momentum. Where parameters keep their form, their flat one keeps its gradient.
        ("sharding_strategy=ShardingStrategy.FULL_SHARD, use_orig_params=False", 4),
        ("sharding_strategy=ShardingStrategy.FULL_SHARD, use_orig_params=True", 6),
        ("sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=False", 4),
        ("sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True", 6),
        ("sharding_strategy=ShardingStrategy.NO_SHARD, use_orig_params=False", 8),
        ("sharding_strategy=ShardingStrategy.NO_SHARD, use_orig_params=True", 12),
        ("cpu_offload=CPUOffload(offload_params=True), use_orig_params=False", 0),
        ("cpu_offload=CPUOffload(offload_params=True), use_orig_params=True", 0),
    ],
)
def test_fsdp1_keeps_what_its_strategy_says(tmp_path: Path, settings: str, held: int) -> None:
    ends = f"assert 0 <= torch.cuda.memory_allocated() - {held * 4 * MIB} < 2**14"
    followed(tmp_path, SHARDED.replace("SETTINGS", settings) + ends)


def test_what_runs_behind_a_node_does_not_take_its_backward_along(tmp_path: Path) -> None:
    """A layer is gathered on a stream of its own, behind the products of the layer before it: their backward is not there."""
    found = followed(
        tmp_path,
        SHARDED.replace("return x * self.weight", "return x @ self.weight").replace(
            "SETTINGS", "use_orig_params=True"
        ),
    )
    workspaces = [event for event in found.events if isinstance(event, Malloc) and event.label == "cublas"]
    assert {event.stream for event in workspaces} == {0}


def test_gradient_buckets_are_gradients(tmp_path: Path) -> None:
    """DDP's bucket of 2 x (2,048 x 2,048 + 2,048) floats was a buffer in the first step, and saved for backward from the second on, where
    it is made anew before the forward pass (`reducer.cpp`, rebuild_buckets)."""
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.distributed as dist\nfrom torch import nn\ndist.init_process_group('nccl')\n"
        "layers = [nn.Linear(2048, 2048), nn.Linear(2048, 2048)]\n"
        "model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).cuda())\n"
        "for _ in range(3):\n    model(torch.randn(4, 2048, device='cuda')).sum().backward()\n    model.zero_grad()\n"
    )
    estimate = analyzer.run(str(script), ranks=2, device="h200")
    weights = 2 * (2048 * 2048 + 2048) * 4
    buckets = [row for row in estimate.tensors if row.name == "gradient bucket"]
    assert [(row.category, row.nbytes) for row in buckets] == [("gradients", weights)]
    assert estimate.breakdown["gradients"] >= 2 * weights
    assert max(estimate.breakdown["buffers"], estimate.breakdown["saved for backward"]) < 2**20
