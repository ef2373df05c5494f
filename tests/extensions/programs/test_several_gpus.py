"""Several GPUs in one process: each mechanism by sizes worked out by hand. MIB: 2**18 elements of float32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import analyzer
from analyzer.errors import OptionError
from analyzer.graph import Category, Moment, Operator, Run, TensorMeta
from analyzer.options import Options
from analyzer.report import formats
from analyzer.report.json import loads
from analyzer.runtimes.events import Malloc
from analyzer_programs.gpus import LiveGpus, graph_of
from analyzer_programs.program import watched

MIB = 2**20
Sizes = list[tuple[int, int]]


def requests(folder: Path, text: str, gpus: int = 2, device: str = "h200") -> list[Sizes]:
    """MiB and stream of every request of each GPU; of libraries' workspaces none, nor what is smaller."""
    script = folder / "program.py"
    script.write_text("import torch\nfrom torch import nn\nx = torch.zeros(2**18)\n" + text)
    found = watched(script, [], Options(device=device), {}, gpus=gpus)
    if found.ran.error is not None:
        raise found.ran.error
    return [
        [
            (event.nbytes // MIB, event.stream)
            for event in live.prediction(graph_of(found.ran.graph, gpu)).events
            if isinstance(event, Malloc) and event.nbytes >= MIB and event.category is not Category.WORKSPACE
        ]
        for gpu, live in enumerate(found.lives)
    ]


def test_a_tensor_lies_where_it_is_put_and_results_where_their_inputs_do(tmp_path: Path) -> None:
    first, second = requests(
        tmp_path,
        """
a = x.to("cuda:1")
b = torch.empty(2**19, device=torch.device("cuda", 1))
c = a + 1
d = torch.zeros_like(c)
e = c.new_empty(3 * 2**18)
f = torch.cat([a, b])
g = torch.ones(2**18, device="cuda")
assert {t.device.index for t in (a, b, c, d, e, f)} == {1} and g.device.index == 0
assert [t.get_device() for t in (x, g, a)] == [-1, 0, 1]
assert c.untyped_storage().device == torch.device("cuda:1")
assert "cuda:1" in repr(a) and "device='cuda:0'" in repr(g)
""",
    )
    assert [size for size, _ in first] == [1]
    assert [size for size, _ in second] == [1, 2, 1, 1, 3, 3]


def test_the_current_gpu_is_the_threads(tmp_path: Path) -> None:
    first, second = requests(
        tmp_path,
        """
import threading
with torch.cuda.device(1):
    a = x.cuda()
    assert torch.cuda.current_device() == 1
    with torch.cuda.device("cuda:0"):
        b = torch.zeros(2**19, device="cuda")
    with torch.cuda.device_of(b):
        assert torch.cuda.current_device() == 0
torch.cuda.set_device(1)
seen = []
thread = threading.Thread(target=lambda: seen.append((torch.cuda.current_device(), x.cuda())))
thread.start(); thread.join()
c = torch.empty(3 * 2**18, device="cuda")
assert seen[0][0] == 0 and torch.cuda.current_device() == 1
""",
    )
    assert [size for size, _ in first] == [2, 1]
    assert [size for size, _ in second] == [1, 3]


def test_a_copy_between_gpus_takes_its_result_alone_and_its_gradient_goes_back(tmp_path: Path) -> None:
    first, second = requests(
        tmp_path,
        """
a = torch.zeros(2**18, device="cuda:0", requires_grad=True)
b = torch.zeros(2**18, device="cuda:1", requires_grad=True)
c = (a * 2).to("cuda:1")
(c * b).sum().backward()
assert a.grad.device == a.device and b.grad.device == b.device
assert c.to("cuda:1") is c and c.to("cuda:1", copy=True) is not c
""",
    )
    # a, its product, the copied gradient and that of the product (not in place: both are on their own)
    assert [size for size, _ in first] == [1, 1, 1, 1]
    # b, the copy, the product, both gradients, and the copy on the GPU itself
    assert [size for size, _ in second] == [1, 1, 1, 1, 1, 1]


def test_a_copy_converts_types_on_its_way_and_writes_into_views(tmp_path: Path) -> None:
    first, second = requests(
        tmp_path,
        """
a = torch.zeros(2, 2**18, device="cuda:0")
b = a.half().to("cuda:1", torch.float64)
c = torch.zeros(2**18, 4, device="cuda:1")
c[:, ::2].copy_(a.t())
d = a.t().to("cuda:1")
assert d.stride() == (1, 2**18)
""",
    )
    assert [size for size, _ in first] == [2, 1]
    assert [size for size, _ in second] == [4, 4, 2]


def test_gpus_that_do_not_reach_each_other_copy_through_contiguous_tensors(tmp_path: Path) -> None:
    text = """
assert not torch.cuda.can_device_access_peer(0, 1)
a = torch.zeros(2, 2**18, device="cuda:0")
b = a.to("cuda:1")
c = a.to("cuda:1", torch.float64)
d = a.to("cuda:1", torch.float64, non_blocking=True)
b[:, ::2].copy_(a[:, ::2])
"""
    first, second = requests(tmp_path, text, device="rtx4090")
    # Converted behind a copy that waits, before one that does not; a view's elements side by side.
    assert [size for size, _ in first] == [2, 4, 1]
    assert [size for size, _ in second] == [2, 4, 2, 4, 1]


def test_streams_are_numbered_on_each_gpu(tmp_path: Path) -> None:
    first, second = requests(
        tmp_path,
        """
s, t = torch.cuda.Stream(), torch.cuda.Stream(device="cuda:1")
assert s.device.index == 0 and t.device.index == 1 and s != t
with torch.cuda.stream(t):
    assert torch.cuda.current_device() == 1 and torch.cuda.current_stream() == t
    a = x.cuda()
    b = torch.zeros(2**19, device="cuda:0")
with torch.cuda.stream(s):
    c = torch.zeros(2**19, device="cuda:0")
    assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1)
assert torch.cuda.current_device() == 0
event = torch.cuda.Event()
event.record(t)
torch.cuda.current_stream().wait_event(event)
a.record_stream(torch.cuda.current_stream(0))
torch.cuda.synchronize(1)
""",
    )
    assert first == [(2, 0), (2, 1)]
    assert second == [(1, 1)]


def test_memory_used_by_another_gpus_stream_is_not_free_before_that_is_waited_for(tmp_path: Path) -> None:
    text = """
a = torch.zeros(2**24, device="cuda:1")
a.record_stream(torch.cuda.current_stream("cuda:0"))
WAIT
del a
b = torch.zeros(2**24, device="cuda:1")
assert torch.cuda.memory_reserved(1) == RESERVED and torch.cuda.memory_reserved(0) == 0
"""
    requests(tmp_path, text.replace("WAIT", "").replace("RESERVED", "2**27"))
    after = text.replace("WAIT\ndel a", "del a\ntorch.cuda.synchronize(0)")
    requests(tmp_path, after.replace("RESERVED", "2**26"))


def test_each_gpu_answers_for_its_own_memory(tmp_path: Path) -> None:
    requests(
        tmp_path,
        """
a = torch.zeros(2**20, device="cuda:1")
assert [torch.cuda.memory_allocated(i) for i in range(2)] == [0, 2**22]
assert torch.cuda.memory_stats("cuda:1")["allocated_bytes.all.peak"] == 2**22
free = [torch.cuda.mem_get_info(i)[0] for i in range(2)]
assert free[1] < free[0] and torch.cuda.device_count() == 2
assert torch.cuda.can_device_access_peer(0, 1)
del a
torch.cuda.reset_peak_memory_stats(1)
assert torch.cuda.max_memory_allocated(1) == 0 and torch.cuda.memory_reserved(1) > 0
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved(1) == 0
torch.cuda.set_per_process_memory_fraction(0.01, 1)
assert torch.cuda.get_per_process_memory_fraction(0) == 1.0
b = torch.zeros(2**29, device="cuda:0")
try:
    torch.zeros(2**29, device="cuda:1")
except torch.OutOfMemoryError as error:
    assert "GPU 1 has" in str(error)
else:
    raise AssertionError
""",
    )


def test_optimizers_treat_the_tensors_of_each_gpu_by_themselves(tmp_path: Path) -> None:
    first, second = requests(
        tmp_path,
        """
parameters = [nn.Parameter(torch.zeros(n * 2**18, device=f"cuda:{i}")) for i, n in ((0, 1), (1, 2), (0, 1))]
optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
for p in parameters:
    p.grad = torch.ones_like(p)
nn.utils.clip_grad_norm_(parameters, 1.0)
optimizer.step()
assert all(optimizer.state[p]["momentum_buffer"].device == p.device for p in parameters)
""",
    )
    assert [size for size, _ in first] == [1, 1, 1, 1, 1, 1]
    assert [size for size, _ in second] == [2, 2, 2]


def test_coalesced_broadcasts_send_buffers_that_end_at_their_size(tmp_path: Path) -> None:
    first, second = requests(
        tmp_path,
        """
from torch.cuda import comm
parts = [torch.zeros(n * 2**18, device="cuda:0") for n in (1, 3, 2)]
parts.append(torch.zeros(2**19, dtype=torch.half, device="cuda:0"))
copies = comm.broadcast_coalesced(parts, [0, 1], buffer_size=4 * 2**20)[1]
assert [c.dtype for c in copies] == [p.dtype for p in parts]
assert copies[0].untyped_storage().data_ptr() == copies[1].untyped_storage().data_ptr()
assert [c.device.index for c in copies] == [1] * 4 and not any(c._is_view() for c in copies)
copies[0].set_(torch.zeros(0, device="cuda:1"))
copies[1].set_(torch.zeros(0, device="cuda:1"))
assert torch.cuda.memory_allocated(1) == 3 * 2**20  # the first buffer is gone
""",
    )
    # Joined are the first two, which have 4 MiB; what lies alone is sent as it is.
    assert [size for size, _ in first] == [1, 3, 2, 1, 4]
    assert [size for size, _ in second] == [4, 2, 1]


def test_scatter_gather_and_reduction(tmp_path: Path) -> None:
    first, second = requests(
        tmp_path,
        """
from torch.cuda import comm
a = torch.zeros(3, 2**18, device="cuda:0")
parts = comm.scatter(a, [0, 1], dim=0)
assert [p.shape[0] for p in parts] == [2, 1] and parts[0].data_ptr() == a.data_ptr()
whole = comm.gather(parts, dim=0, destination=1)
sums = comm.reduce_add([a[:1], parts[1]], destination=0)
assert whole.device.index == 1 and sums.device.index == 0
""",
    )
    assert [size for size, _ in first] == [3, 1]
    assert [size for size, _ in second] == [1, 3]


def test_replicas_take_weights_inputs_and_results_and_leave_their_handles_to_autograd(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        """
import torch
from torch import nn
model = nn.DataParallel(nn.Linear(1024, 1024, bias=False).cuda())
for _ in range(3):
    loss = model(torch.zeros(513, 1024, device="cuda")).sum()
    model.zero_grad()
    loss.backward()
"""
    )
    found = watched(script, [], Options(device="h200"), {}, gpus=2)
    assert found.ran.error is None
    asked = []
    for gpu, live in enumerate(found.lives):
        events = live.prediction(graph_of(found.ran.graph, gpu)).events
        mallocs = [event for event in events if isinstance(event, Malloc)]
        asked.append([event.nbytes // MIB for event in mallocs if event.category is not Category.WORKSPACE])
        # A handle of the first replica's, which autograd takes over, and one of every later replica's.
        assert [event.nbytes for event in mallocs if event.category is Category.WORKSPACE] == [32 * MIB] * 2
    first, second = asked
    assert first[:4] == [4, 2, 1, 2]  # the weight, the batch, half of the results, and all of them
    assert second[:3] == [1, 4, 1]  # 256 rows, the replica, its results


def test_replicas_cast_as_their_thread_is_told(tmp_path: Path) -> None:
    first, second = requests(
        tmp_path,
        """
class Net(nn.Linear):
    @torch.autocast("cuda", dtype=torch.bfloat16)
    def forward(self, x):
        y = super().forward(x)
        assert y.dtype is torch.bfloat16 and torch.is_autocast_enabled("cuda")
        return y
model = nn.DataParallel(Net(512, 1024, bias=False).cuda())
with torch.no_grad():
    y = model(torch.zeros(1024, 512, device="cuda"))
assert y.dtype is torch.bfloat16 and not torch.is_autocast_enabled("cuda")
""",
    )
    # The weight and the batch; the weight in bfloat16, half of the results, and all of them.
    assert [size for size, _ in first] == [2, 2, 1, 1, 2]
    assert [size for size, _ in second] == [1, 2, 1, 1]


def test_generators_and_offloaded_weights(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    first, second = requests(
        tmp_path,
        """
from accelerate import dispatch_model
assert len(torch.cuda.default_generators) == 2
assert torch.Generator("cuda:1").device == torch.device("cuda:1")
model = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(3))).eval()
model = dispatch_model(model, device_map={"0": 0, "1": 1, "2": "cpu"}, main_device=0)
with torch.no_grad():
    y = model(torch.zeros(512, 512))
assert y.device.type == "cpu"
""",
    )
    # A weight, the input and its product; then the offloaded weight comes, what it reads, and its product.
    assert [size for size, _ in first] == [1, 1, 1, 1, 1, 1]
    assert [size for size, _ in second] == [1, 1, 1]


class Followed:
    """A memory that says which operators it has followed."""

    def __init__(self) -> None:
        self.operators: list[int] = []

    def follow(self, moment: Moment) -> None:
        if isinstance(moment, Run):
            self.operators.append(moment.operator)


def test_a_gradient_that_comes_back_waits_for_the_other_gpus_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Autograd here runs the second GPU's node, which sends its result, and then the first's own one. There the
    first GPU's thread is done with its own before that result comes."""

    def operator(number: int, gpu: int, reads: tuple[int, ...], writes: int) -> Operator:
        metas = {one: TensorMeta(one, (1,), (1,), "float32") for one in (*reads, writes)}
        return Operator(number, "aten::mul", tuple(metas[one] for one in reads), (metas[writes],), gpu=gpu)

    operators = [operator(0, 1, (), 0), operator(1, 0, (0,), 1), operator(2, 0, (), 2)]
    operators.append(operator(3, 0, (1, 2), 3))
    lives = [Followed(), Followed()]
    memory = LiveGpus(lives)  # type: ignore[arg-type]
    memory._operators = operators
    numbers = iter((1, 1, 0, 0))  # whose threads run them: the copy the second's
    monkeypatch.setattr(memory, "_thread_of", lambda _: next(numbers))
    memory.passes = 1
    for number in range(4):
        memory.follow(Run(number))
    assert lives[0].operators == []
    memory.settle()
    assert lives[0].operators == [2, 1, 3] and lives[1].operators == [0]


TWO = """
import torch
a = torch.zeros(2**20, device="cuda:0")
b = torch.zeros(2**28, device="cuda:1")
"""


def test_every_gpu_has_a_row_and_the_fullest_decides(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO)
    found = analyzer.run(script, device="h200", gpus=2)
    assert [(row.number, row.peak_allocated) for row in found.devices] == [(0, 2**22), (1, 2**30)]
    assert found.peak_allocated == 2**30 and found.fullest is not None and found.fullest.number == 1
    assert loads(found.to_json()).devices == found.devices
    assert [row["number"] for row in json.loads(found.to_json())["devices"]] == [0, 1]
    text = formats.render("estimate", "text", found)
    assert "cuda:0: 4.0 MiB allocated" in text and "all else is of cuda:1" in text
    assert "<td>cuda:1</td>" in formats.render("estimate", "html", found)


def test_as_many_gpus_as_the_program_names(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO)
    found = analyzer.run(script, device="h200", engine="trace")
    assert len(found.devices) == 2 and found.incomplete is None
    assert any("followed with 2 GPUs (--gpus 2)" in note for note in found.notes)
    one = analyzer.run(script, device="h200", gpus=1, engine="trace")
    assert one.devices == () and "cuda:1" in str(one.incomplete)


def test_one_gpu_that_runs_out_decides(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO.replace("2**20", "2**29"))
    found = analyzer.run(script, device="2GiB", gpus=2)
    assert found.fullest is not None and found.fullest.number == 0 and found.fullest.out_of_memory
    assert not found.fits() and found.out_of_memory is not None


def test_ranks_have_one_gpu_each(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO)
    with pytest.raises(OptionError, match="ranks"):
        analyzer.run(script, device="h200", gpus=2, ranks=2)
