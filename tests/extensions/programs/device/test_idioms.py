"""Everyday idioms of programs, each as it is written in public ones: what they ask, where things are, what is held."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import analyzer  # noqa: E402
from analyzer import Estimate  # noqa: E402
from tests.forked import ran  # noqa: E402

MIB = 1 << 20


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Estimate]:
    """Follows a program given as text to its end, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def follow(text: str) -> Estimate:
        script = tmp_path / "program.py"
        script.write_text("import torch\nheld = torch.cuda.memory_allocated\n" + text)
        estimate = analyzer.run(script, device="h200")
        assert estimate.incomplete is None, estimate.incomplete
        return estimate

    return follow


MOVES = [
    "m = linear.to('cuda')",
    "m = linear.to(device='cuda')",
    "m = linear.to(device=torch.device('cuda:0'))",
    "m = linear.to(0)",
    "m = linear.to(torch.device(0))",
    "m = linear.to('cuda', non_blocking=True)",
    "m = linear.cuda(0)",
    "m = linear.cuda(device=0)",
    "m = linear.to('cuda', torch.float32)",
    "m = linear.to(dtype=torch.float32, device='cuda')",
    "m = linear.to(memory_format=torch.channels_last).to(device='cuda')",
    "m = linear.to(torch.zeros(0, device='cuda'))",
    "m = linear.type(torch.cuda.FloatTensor)",
]


@pytest.mark.parametrize("text", MOVES)
def test_a_module_is_on_the_gpu_however_it_is_said(followed: Callable[[str], Estimate], text: str) -> None:
    """A matrix of 1 MiB."""
    found = followed(
        f"linear = torch.nn.Linear(512, 512, bias=False)\n{text}\n"
        "assert m is linear and m.weight.device == torch.device('cuda', 0) and held() == 1 << 20\n"
    )
    assert found.peak_allocated == MIB


def test_tensors_by_every_form_of_to(followed: Callable[[str], Estimate]) -> None:
    followed(
        """
x = torch.zeros(256, 256)
for moved, size in (
    (x.to(0), 4), (x.to(device="cuda"), 4), (x.to("cuda", torch.float16), 2), (x.to("cuda", torch.float16, True), 2),
    (x.to(device="cuda", dtype=torch.float64, non_blocking=True, copy=True), 8), (x.to(float).to("cuda"), 8),
    (x.to(tensor=torch.zeros(1, device="cuda")), 4), (x.cuda(non_blocking=True), 4), (x.type(torch.cuda.HalfTensor), 2),
    (x.type("torch.cuda.DoubleTensor", non_blocking=True), 8),
):
    assert moved.is_cuda and moved.nbytes == 65536 * size
del moved
assert held() == 0
"""
    )


@pytest.mark.parametrize("back", ["m.cpu()", "m.to('cpu')", "m.to(device='cpu')", "m.half().cpu()"])
def test_a_module_taken_back_keeps_its_gradients(followed: Callable[[str], Estimate], back: str) -> None:
    """Nothing is left on the GPU but cuBLAS's workspaces; and it can go there again, with its gradients."""
    followed(
        f"""
m = torch.nn.Linear(512, 512)
m.cuda()(torch.randn(2, 512, device="cuda")).sum().backward()
workspaces = held() - 2 * (m.weight.nbytes + m.bias.nbytes)
{back}
assert m.weight.device.type == m.weight.grad.device.type == m.bias.grad.device.type == "cpu"
assert m.weight.grad.shape == (512, 512) and held() == workspaces
m.float().cuda()
assert m.weight.grad.is_cuda and held() == workspaces + 2 * (m.weight.nbytes + m.bias.nbytes)
m.zero_grad()
assert m.weight.grad is None and held() == workspaces + m.weight.nbytes + m.bias.nbytes
"""
    )


def test_data_replaced_while_there_are_gradients(followed: Callable[[str], Estimate]) -> None:
    followed(
        """
p = torch.nn.Parameter(torch.ones(1 << 18, device="cuda"))
(p * 2).sum().backward()
gradient = p.grad
p.data = p.data.cpu()
assert p.device.type == "cpu" and p.grad is gradient and gradient.is_cuda and held() == 1 << 20
p.grad = None
del gradient
assert p.grad is None and held() == 0
"""
    )


def test_the_types_that_name_the_device_too(followed: Callable[[str], Estimate]) -> None:
    followed(
        """
import numpy as np
Tensor, Long = torch.cuda.FloatTensor, torch.cuda.LongTensor
made = [Tensor(2, 3), Tensor(torch.Size([2, 3])), Tensor(np.ones((2, 3))), Tensor([[1.0, 2, 3]] * 2), Tensor(2, 3).fill_(1.0)]
assert all(t.is_cuda and t.shape == (2, 3) and t.dtype == torch.float32 and isinstance(t, Tensor) for t in made)
assert Tensor().shape == (0,) and Tensor(made[0]).data_ptr() == made[0].data_ptr()
assert Long([1, 2]).tolist() == [1, 2] and isinstance(Long(3), torch.cuda.LongTensor) and not isinstance(Long(3), Tensor)
assert not isinstance(torch.ones(1), Tensor) and isinstance(torch.ones(1), torch.FloatTensor)
assert torch.ones(2).type(Tensor).is_cuda and torch.ones(2, device="cuda").type() == "torch.cuda.FloatTensor"
torch.autograd.Variable(Tensor(4, 1).fill_(1.0), requires_grad=False)
torch.set_default_tensor_type(Tensor)
assert torch.ones(3).is_cuda and torch.tensor([1.0]).is_cuda and torch.nn.Linear(2, 2).weight.is_cuda
assert torch.Tensor(2, 3).is_cuda and torch.Tensor(np.ones((4, 2))).shape == (4, 2) and torch.Tensor([1, 2]).is_cuda
import torch._dynamo.polyfills.tensor
torch.set_default_tensor_type("torch.DoubleTensor")
assert torch.ones(3).device.type == "cpu" and torch.ones(3).dtype == torch.float64
"""
    )


def test_a_default_device(followed: Callable[[str], Estimate]) -> None:
    """Large ones too, which on the host would have no memory."""
    found = followed(
        """
torch.set_default_device("cuda")
x = torch.randn(1 << 20)
assert x.is_cuda and torch.tensor([1, 2]).is_cuda and torch.as_tensor([1.0]).is_cuda and held() == 4 << 20
with torch.device("cpu"):
    assert torch.tensor([1.0]).device.type == "cpu"
assert not torch.isnan(x).any() and x[:2].tolist() and torch.arange(3).max().item() == 2 and f"{x[0]:.1f}"
torch.set_default_device(None)
with torch.device("cuda"):
    assert torch.zeros(1).is_cuda and torch.tensor([1.0]).is_cuda
"""
    )
    assert found.peak_allocated >= 4 * MIB
    assert torch.get_default_device().type == "cpu"


def test_a_program_s_defaults_end_with_it(followed: Callable[[str], Estimate]) -> None:
    """What is analysed next in this process, by the library say, does not begin with them."""
    found = followed(
        """
torch.set_default_device("cuda")
torch.set_default_dtype(torch.float16)
x = torch.ones(1 << 20)
assert x.nbytes == held() == 2 << 20
"""
    )
    assert found.peak_allocated == 2 * MIB
    assert (torch.get_default_device().type, torch.get_default_dtype()) == ("cpu", torch.float32)
    assert torch.ones(1).device.type == "cpu"


def test_types_changed_in_inference_mode(followed: Callable[[str], Estimate]) -> None:
    """As YOLOv5's validation does, between steps."""
    followed(
        """
m = torch.nn.Linear(512, 512, bias=False).cuda()
with torch.inference_mode():
    m.half()
    m(torch.zeros(1, 512, device="cuda", dtype=torch.half))
    m.float()
assert m.weight.is_cuda and m.weight.dtype == torch.float32
m(torch.zeros(1, 512, device="cuda")).sum().backward()
assert m.weight.grad.is_cuda
"""
    )


def test_text_of_tensors(followed: Callable[[str], Estimate]) -> None:
    followed(
        """
loss = torch.ones((), device="cuda").mul(3)
assert f"{loss:.4f}" == f"{loss.item():.4f}" and "{:>8.2f}".format(loss).strip() == f"{loss.item():.2f}"
assert repr(torch.arange(3, device="cuda")) == "tensor([0, 1, 2], device='cuda:0')"
assert "device='cuda:0'" in str(torch.randn(3, device="cuda")) and "meta" not in str(torch.randn(3, device="cuda"))
assert repr(torch.arange(3)) == "tensor([0, 1, 2])" and f"{torch.ones(2)}" == "tensor([1., 1.])"
"""
    )


def test_pinned_memory_storages_and_what_is_shared(followed: Callable[[str], Estimate]) -> None:
    followed(
        """
x = torch.ones(3)
assert x.pin_memory().is_pinned() and not x.is_pinned() and torch.zeros(3, pin_memory=True).is_pinned()
assert torch.empty(1 << 20, pin_memory=True).is_pinned() and torch.tensor([1], pin_memory=True).pin_memory().is_pinned()
y = torch.ones(4, device="cuda")
assert y.untyped_storage().data_ptr() == y.data_ptr() == y[:2].data_ptr() != torch.ones(4, device="cuda").data_ptr()
assert y.untyped_storage().device == y.device and y.storage().device == y.device and y.share_memory_() is y
assert torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(y)).data_ptr() == torch.from_dlpack(y).data_ptr() == y.data_ptr()
face = y.__cuda_array_interface__
assert face["shape"] == (4,) and face["typestr"] == "<f4" and face["data"] == (y.data_ptr(), False)
try:
    y.pin_memory()
except RuntimeError as error:
    assert "cannot pin" in str(error)
else:
    raise AssertionError
"""
    )


def test_storages_that_are_shared_stay_so_in_a_file(followed: Callable[[str], Estimate]) -> None:
    """A flattened LSTM: 8 tensors of one storage of 26 MiB; wherever the file is loaded to."""
    followed(
        """
m = torch.nn.LSTM(650, 650, 2).cuda()
before = held()
torch.save(m, "m.pt")
torch.save({"a": m.weight_ih_l0.data, "b": m.weight_ih_l0.data.t()}, "tied.pt")
m = torch.load("m.pt", weights_only=False)
assert held() == before
m.flatten_parameters()
assert held() == before
del m
for where in (None, "cuda", "cuda:0", torch.device("cuda"), lambda storage, location: storage.cuda(), {"cuda:0": "cuda:0"}):
    tied = torch.load("tied.pt", map_location=where)
    assert tied["a"].is_cuda and tied["a"].data_ptr() == tied["b"].data_ptr() and held() == before
for where in ("cpu", lambda storage, location: storage, {"cuda:0": "cpu"}):
    assert torch.load("tied.pt", map_location=where)["a"].device.type == "cpu"
"""
    )


def test_captured_graphs_have_memory_of_their_own(followed: Callable[[str], Estimate]) -> None:
    """What is made in a graph is not served from what was free before; graphs of one pool share."""
    followed(
        """
graph, static = torch.cuda.CUDAGraph(), torch.zeros(4, device="cuda")
assert torch.cuda.memory_reserved() == 2 << 20  # all but 512 bytes of it free
with torch.cuda.graph(graph):
    assert torch.cuda.is_current_stream_capturing()
    made = torch.zeros(1 << 18, device="cuda")
assert torch.cuda.memory_reserved() == 6 << 20  # the seed's segment, of the capturing stream, and the pool's
assert held() == 512 + 1024 + (1 << 20)
other = torch.cuda.CUDAGraph()
with torch.cuda.graph(other, pool=graph.pool()):
    more = torch.zeros(1 << 18, device="cuda")
assert torch.cuda.memory_reserved() == 6 << 20
graph.reset()
other.reset()
assert held() == 512 + 1024 + (2 << 20)
graph.replay()
model = torch.nn.Linear(64, 64).cuda()
graphed = torch.cuda.make_graphed_callables(model, (torch.randn(8, 64, device="cuda"),))
graphed(torch.randn(8, 64, device="cuda")).sum().backward()
assert not torch.cuda.is_current_stream_capturing()
"""
    )


def test_compiled_code_runs_as_it_is_which_is_said(followed: Callable[[str], Estimate]) -> None:
    text = """
model = torch.nn.Linear(64, 64).cuda()
{}
net(torch.zeros(8, 64, device="cuda")).sum().backward()
"""
    eager = followed(text.format("net = model"))
    compiled = followed(
        text.format(
            "net = torch.compile(model, mode='max-autotune')\n"
            "assert net._orig_mod is model and list(net.state_dict())[0] == '_orig_mod.weight' and net.in_features == 64\n"
            "net.eval(); assert not model.training and not net.training; net.train(); assert model.training\n"
            "net.scale = 2; assert model.scale == 2\n"
            "double = torch.compile(lambda x: x * 2); double(torch.zeros(1, device='cuda'))\n"
            "@torch.compile(fullgraph=True)\ndef half(x): return x / 2\n"
            "model.compile()"
        )
    )
    unused = followed(text.format("torch.compile(lambda x: x * 2), torch.compile(model)\nnet = model"))
    assert compiled.peak_allocated == eager.peak_allocated and eager.caveats == unused.caveats == ()
    assert "torch.compile is not followed" in compiled.caveats[0] and compiled.caveats[0] in compiled.notes


def test_what_is_traced_runs_as_often_as_it_would(followed: Callable[[str], Estimate]) -> None:
    """Once to trace, once more to check that, three times to compare; and the graph can be looked at."""
    found = followed(
        """
calls = 0
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)
    def forward(self, x):
        global calls
        calls += x.is_cuda
        return self.layer(x).relu()
net, x = Net().cuda(), torch.randn(8, 64, device="cuda")
traced = torch.jit.trace(net, x)
assert calls == 5 and "aten::relu" in str(traced.graph) and traced.layer is net.layer
traced(x).sum().backward()
assert torch.jit.trace(net, (x,), check_trace=False)(x).is_cuda and calls == 8
assert torch.jit.trace(lambda x: x * 2, x)(x).shape == x.shape
assert torch.jit.script(net.layer)(x).is_cuda
"""
    )
    assert found.caveats[0].startswith("TorchScript is assumed to take what eager code does")
    assert found.caveats[0] in found.notes


@pytest.mark.parametrize("called", ["scripted(x)", "module(x)"])
def test_what_torchscript_runs_is_said_where_it_is_called(
    followed: Callable[[str], Estimate], called: str
) -> None:
    text = """
@torch.jit.script
def scripted(x: torch.Tensor):
    return x * 2 + 1
module = torch.jit.script(torch.nn.Linear(8, 8).cuda())
x = torch.ones(8, 8, device="cuda")
"""
    assert followed(text).caveats == ()
    (caveat,) = followed(text + called).caveats
    assert caveat.startswith("TorchScript is assumed")


def test_what_is_compiled_may_ask_whether_it_is(followed: Callable[[str], Estimate]) -> None:
    """`torch.jit.is_scripting` is another function while a program is followed, in figures of torch 2.11."""
    followed(
        """
@torch.jit.script
def doubled(x: torch.Tensor):
    if torch.jit.is_scripting():
        return x * 2
    return x
assert doubled(torch.ones(2)).tolist() == [2, 2] and not torch.jit.is_scripting()
"""
    )


def test_script_modules_are_followed_as_the_eager_code_they_are(followed: Callable[[str], Estimate]) -> None:
    """With a trace made of them, whose constants are folded; what else is a module is no script module."""
    text = """
class Block(BASE):
    def __init__(self, p):
        super().__init__()
        self.p, self.layers = p, torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8))
    DECORATOR
    def forward(self, x):
        return self.layers(x) * self.p + x
net = torch.nn.Sequential(Block(0.25), Block(0.5)).cuda()
x = torch.randn(4, 8, 16, 16, device="cuda")
graph = torch.jit.trace(net, x).graph
torch._C._jit_pass_inline(graph)
assert "aten::mul" in str(graph) and isinstance(net[0], BASE)
assert not isinstance(net, torch.jit.ScriptModule)
assert isinstance(torch.jit.script(torch.nn.Linear(2, 2)), torch.jit.ScriptModule)
net(x).sum().backward()
"""
    scripted = followed(
        text.replace("BASE", "torch.jit.ScriptModule").replace("DECORATOR", "@torch.jit.script_method")
    )
    eager = followed(text.replace("BASE", "torch.nn.Module").replace("DECORATOR", ""))
    assert scripted.peak_allocated == eager.peak_allocated
    assert scripted.caveats[0].startswith("TorchScript is assumed")


def test_arrays_of_more_values_than_anyone_looks_at(followed: Callable[[str], Estimate]) -> None:
    followed(
        """
table = torch.nn.Embedding(1 << 20, 16).cuda().weight.detach().cpu().numpy()
assert table.shape == (1 << 20, 16) and table.dtype == "float32"
"""
    )


def test_what_is_asserted_holds(followed: Callable[[str], Estimate]) -> None:
    followed("x = torch.rand(4, device='cuda')\nassert (x >= 0).all()\nassert not (x > 2).any(), x\n")


def test_what_is_checked_before_an_error_is_raised_holds(followed: Callable[[str], Estimate]) -> None:
    """As torchmetrics' and ignite's metrics do with what they are given (MONAI's a subclass of tensors); larger than what is computed beside."""
    followed(
        """
class Meta(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs or {})

x = torch.randn(1 << 20, 256, device="cuda").sigmoid().round()
if not torch.equal(x, x**2):
    raise ValueError("neither 0 nor 1")
meta = x.as_subclass(Meta)
if not torch.equal(meta, meta**2):
    raise ValueError("neither 0 nor 1")
if torch.equal(meta, x + 1):
    raise ValueError("all the same")
if (x < 0).any():
    raise ValueError("below 0")
"""
    )


def test_memory_by_nvml(followed: Callable[[str], Estimate]) -> None:
    pytest.importorskip("pynvml")
    followed(
        """
import os, pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
before = pynvml.nvmlDeviceGetMemoryInfo(handle).used
x = torch.zeros(1 << 28, device="cuda")
info, (free, total) = pynvml.nvmlDeviceGetMemoryInfo(handle), torch.cuda.mem_get_info()
first_kernel, kept, driver = 92 << 20, 150754820096 - 150109880320, 9240576
assert info.used == before + x.nbytes + first_kernel == info.total - free and info.total == total + kept and info.free == free
assert pynvml.nvmlDeviceGetMemoryInfo(handle, version=2).used == total - free
process, = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
assert (process.pid, process.usedGpuMemory) == (os.getpid(), total - free - driver) and torch.cuda.device_memory_used() == info.used
assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA H200" and torch.cuda.utilization() == 0
try:
    pynvml.nvmlDeviceGetBrand(handle)
except pynvml.NVMLError:
    pass
else:
    raise AssertionError
"""
    )
    with pytest.raises(Exception, match=r"Uninitialized|Not Found|NotFound"):  # its own again
        importlib.import_module("pynvml").nvmlDeviceGetCount()


def test_detection_with_a_torchvision_that_cannot_load_its_library(tmp_path: Path) -> None:
    """In a process of its own: other tests bring torchvision in without its operators."""
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    script = tmp_path / "program.py"
    script.write_text(
        """
import torch
from torchvision.ops import batched_nms, deform_conv2d, nms, roi_align, roi_pool
boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 30, 30]])
assert nms(boxes, torch.tensor([0.5, 0.9, 0.1]), 0.5).tolist() == [1, 2]
assert nms(boxes.cuda(), torch.rand(3).cuda(), 0.5).shape == (3,)  # as many as there can be
x = torch.randn(2, 8, 32, 32, device="cuda", requires_grad=True)
regions = torch.tensor([[0, 0, 0, 5, 5.0], [1, 1, 1, 9, 9]], device="cuda")
roi_align(x, regions, (7, 7), 1.0, 2).sum().backward()
roi_pool(x, regions, (7, 7)).sum().backward()
with torch.autocast("cuda", torch.float16):
    assert roi_align(x.half(), regions, (7, 7)).dtype == torch.float16
weight, offset = (torch.randn(*s, device="cuda", requires_grad=True) for s in ((16, 8, 3, 3), (2, 18, 30, 30)))
deform_conv2d(x, offset, weight).sum().backward()
assert x.grad.shape == x.shape and weight.grad.shape == weight.shape and offset.grad.shape == offset.shape
"""
    )
    done = ran("-m", "analyzer", "run", "-q", "--device", "h200", str(script))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("copy", "gathered"),
    [
        ("x.cpu()", 0),
        ("x.to('cpu', torch.uint8)", 0),
        ("x.permute(1, 2, 0).cpu()", 0),
        ("x.permute(1, 2, 0).to('cpu', torch.uint8)", 12 * MIB),  # as save_image does
        ("x[:, ::2].cpu()", 6 * MIB),
        ("torch.empty(1024, 1024, 3).copy_(x.permute(1, 2, 0))", 12 * MIB),
        ("torch.empty(3, 1024, 1024).copy_(x)", 0),
    ],
)
def test_a_copy_to_the_host_that_is_no_plain_one(
    followed: Callable[[str], Estimate], copy: str, gathered: int
) -> None:
    """By hand from Copy.cu: 12 MiB of float32, made contiguous on the device where memory cannot be copied as it lies."""
    found = followed(f"x = torch.zeros(3, 1024, 1024, device='cuda')\n{copy}\nassert held() == 12 << 20\n")
    assert found.peak_allocated == 12 * MIB + gathered


def test_adaptive_solvers_accept_their_steps(followed: Callable[[str], Estimate], tmp_path: Path) -> None:
    """A solver as torchdiffeq writes it: a step for each point in time where gradients are wanted, and no end otherwise."""
    solver = tmp_path / "torchdiffeq/_impl/rk_common.py"
    solver.parent.mkdir(parents=True)
    solver.write_text(
        """
class Solver:
    def __init__(self, t): self.rk_state, self.steps = self, 0; self.t1 = t
    def advance(self, next_t):
        while next_t > self.rk_state.t1:
            error_ratio = next_t.exp()
            accept_step = error_ratio <= 1
            if accept_step:
                self.steps += 1
                self.t1 = self.t1 + error_ratio
"""
    )
    found = followed(
        """
from torchdiffeq._impl.rk_common import Solver
times = torch.rand(3, device="cuda")
solver = Solver(times[0])
for t in times:
    solver.advance(t)
assert solver.steps == 3
with torch.no_grad():
    solver.advance(times[1])
assert solver.steps == 3
"""
    )
    assert any("accept every step" in note for note in found.notes)


def test_a_layout_does_not_move_a_module(followed: Callable[[str], Estimate]) -> None:
    """Weights of 4.5 MiB on the host, whose values nobody keeps."""
    followed(
        "m = torch.nn.Conv2d(256, 512, 3, bias=False).to(memory_format=torch.channels_last)\n"
        "assert not held() and m.weight.device.type == 'cpu' and m.weight.stride()[1] == 1\n"
        "m.to('cuda')\n"
        "assert held() == 4 * 512 * 256 * 9 and m.weight.stride()[1] == 1\n"
    )


# The code after `x` of 5,000 x 8, a mask and an index on both sides; the requests it makes, as recorded (H200, torch 2.11,
# `tests/data/h200/operators_masks.json.gz`: "indices on the host", "mask (5000,) () 3").
SELECTIONS = [
    ("y = x[i]", [800, 3200]),
    ("y = x[mask]", [20000, 80000]),
    ("x[i] = 0", [4, 800]),
    ("x[j] = 0", [4]),
    ("x[mask] = 0", [4, 20000]),
    ("x[on_gpu] = 0", []),
    ("x[on_gpu, 1] = 2", []),
    ("x[mask, 1] = 2", [4, 20000]),
    ("y = x[on_gpu]", [4, 21503, 20000, 1023, 80000]),
    ("x[on_gpu] = value", [4, 21503, 20000, 1023]),
    ("y = x.isinf()", [160000, 40000]),
    ("y = torch.nn.functional.one_hot(j, 100)", [80000]),
]


@pytest.mark.parametrize(("code", "requests"), SELECTIONS)
def test_selection_takes_what_was_recorded(
    followed: Callable[[str], Estimate], code: str, requests: list[int]
) -> None:
    found = followed(
        "x, i, mask = torch.zeros(5000, 8, device='cuda'), torch.arange(100), torch.arange(5000) % 2 == 0\n"
        "j, on_gpu, value = i.cuda(), mask.cuda(), torch.ones(2500, 8, device='cuda')\n" + code
    )
    assert list(found.allocations.requested[4:]) == requests


def test_a_cumulative_product_of_what_is_not_zero(followed: Callable[[str], Estimate]) -> None:
    """As recorded of `nerf_blender` (`histories_public.xz`): weighted, compared with zero, summed up from the end, divided."""
    found = followed(
        "x = torch.rand(512, 65, device='cuda', requires_grad=True)\ny = x.cumprod(-1)\ny.backward(torch.ones_like(y))"
    )
    full = 4 * 512 * 65
    assert list(found.allocations.requested[3:]) == [full, full // 4, 1, full, full, full, full]


def test_a_pickled_tensor_is_read_into_the_memory_it_gets(followed: Callable[[str], Estimate]) -> None:
    """Pickles hold tensors in the format before zip files: storages come first, what they hold afterwards."""
    followed(
        """
import copy, io, pickle
x = torch.zeros(1 << 20, device="cuda")
back = pickle.loads(pickle.dumps({"a": x, "b": [x[:10], 7]}))
assert back["b"][1] == 7 and back["a"].is_cuda and back["a"].shape == x.shape
assert held() == 12 << 20 and torch.cuda.max_memory_allocated() == 12 << 20  # views are pickled with all of their storage
file = io.BytesIO()
torch.save(x, file, _use_new_zipfile_serialization=False)
file.seek(0)
again = torch.load(file)
assert held() == torch.cuda.max_memory_allocated() == 16 << 20
"""
    )


def test_a_wrapper_without_parts_it_names_has_no_memory(followed: Callable[[str], Estimate]) -> None:
    """Its own `__torch_dispatch__` says what operators do (int8 weights that are made floats when they are used)."""
    followed(
        """
class Int8(torch.Tensor):
    @staticmethod
    def __new__(cls, values, scale):
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=torch.float32, device=values.device)

    def __init__(self, values, scale):
        self.values_, self.scale = values, scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return Int8(args[0].values_, args[0].scale)
        plain = lambda t: t.values_.float() * t.scale if isinstance(t, Int8) else t
        return func(*map(plain, args), **(kwargs or {}))

weight = torch.nn.Parameter(
    Int8(torch.zeros(1024, 1024, dtype=torch.int8, device="cuda"), torch.ones(1024, 1, device="cuda")), requires_grad=False
)
assert held() == (1 << 20) + 4096
out = torch.nn.functional.linear(torch.ones(8, 1024, device="cuda", requires_grad=True), weight)
assert out.shape == (8, 1024) and out.is_cuda
"""
    )


def test_masks_of_all_triplets_of_labels_are_computed(followed: Callable[[str], Estimate]) -> None:
    """Integers that a program's own constants decide are known, though there are many of them."""
    found = followed(
        """
labels = torch.arange(384, device="cuda") % 24
same = labels[:, None, None] == labels[None, :, None]
mask = same & (labels[None, None, :] != labels[:, None, None])
assert mask.nonzero().shape == (384 * 16 * 368, 3)
"""
    )
    assert not any("depend" in note for note in found.notes)


def test_rows_written_through_a_mask_say_how_many_of_it_are_true(followed: Callable[[str], Estimate]) -> None:
    followed(
        """
rows = torch.randn(480, 64, device="cuda", requires_grad=True)
mask = torch.randn(1000, 64, device="cuda").sum(1) > 0
out = torch.zeros(1000, 64, device="cuda").index_put((mask,), rows)
out.sum().backward()
assert rows.grad.shape == (480, 64) and out[mask].shape == (480, 64)
mask.logical_not_()
assert out[mask].shape == (1000, 64)  # another mask, of which nobody knows
"""
    )


def test_a_parameter_moved_to_where_it_is_stays_one(followed: Callable[[str], Estimate]) -> None:
    """accelerate makes a parameter anew by its type, after each layer, on the meta device."""
    followed(
        """
parameter = torch.nn.Parameter(torch.nn.Linear(3, 3).weight.to("meta"), requires_grad=False)
assert parameter.to("meta") is parameter and parameter.to("meta", non_blocking=True) is parameter
assert type(parameter.to("meta", torch.float16)) is torch.Tensor
"""
    )


def test_the_decoder_of_one_image_converts_as_on_the_gpu(followed: Callable[[str], Estimate]) -> None:
    """After the attention of a decoder a batch of one lies so that nothing takes it to be channels-last: its
    upsampling copies it, and its convolution works on contiguous tensors (diffusers' AutoencoderKL, whose
    decoder took 102,170,112 bytes more than foretold on an H200)."""
    estimate = followed(
        """
x = torch.zeros(1, 256, 64, device="cuda").transpose(-1, -2).reshape(1, 64, 16, 16)
x = (x + torch.zeros(1, 64, 16, 16, device="cuda")) / 1.0
before = held()
y = torch.nn.functional.interpolate(x, scale_factor=2.0)
assert x.stride() == (64, 1, 1024, 64), x.stride()
assert y.stride() == (65536, 1024, 32, 1), y.stride()
"""
    )
    assert estimate.fits()
