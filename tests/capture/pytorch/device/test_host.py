"""What a program does among host tensors costs what it costs, and what it does besides is still seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes

from analyzer.capture.pytorch.environment import cuda_environment, watching
from analyzer.capture.pytorch.recording.recorder import Recorder
from analyzer.devices import load
from analyzer.graph import Run
from tests.capture.pytorch.counting import calls_of

H200 = load("h200")
SHAPE = (400, 1, 1000)  # 1.6 MB: without memory until it is looked into


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Follows the test as a whole program."""
    with cuda_environment(H200) as recorder:
        recorder.whole_program(())
        with watching(recorder, whole=True):
            yield recorder


def operators(recorder: Recorder) -> list[str]:
    return [
        recorder.operators[moment.operator].name
        for moment in recorder.storages.program
        if isinstance(moment, Run)
    ]


def test_samples_made_one_by_one_on_the_host(recorder: Recorder) -> None:
    """The adding problem. Before, every line was several operators, one of them on the device: 512 bytes."""
    numbers, mask, sums = torch.rand(SHAPE), torch.zeros(SHAPE), torch.zeros(400, 1)
    for i in range(4):
        a, b = numpy.int64(i), numpy.int64(i + 7)
        mask[i, 0, a] = 1
        mask[i, 0, b] = 1
        sums[i, 0] = numbers[i, 0, a] + numbers[i, 0, b]
    assert not operators(recorder)
    assert float(mask.sum()) == 8
    assert float(sums[3]) == float(numbers[3, 0, 3] + numbers[3, 0, 10])
    assert numbers.device.type == "cpu" and not numbers.is_meta


@pytest.mark.parametrize(
    ("what", "most"),
    [
        (lambda x: x + x, 15),
        (lambda x: x[3, 0, 2], 15),
        (lambda x: x.__setitem__((3, 0, 2), 1), 15),
        (lambda x: torch.cat([x, x]), 20),
        (torch.nn.functional.relu, 42),
    ],
)  # fmt: skip
def test_an_operator_among_host_tensors_is_cheap(
    what: Callable[[torch.Tensor], Any], most: int, recorder: Recorder
) -> None:
    """30 to 121 calls before, of the recorder's and of everyone it asks."""
    assert not operators(recorder)
    x = torch.zeros(5, 2, 4)
    what(x)
    assert calls_of(lambda: what(x)) <= most


def test_the_programs_own_random_numbers_stay(recorder: Recorder) -> None:
    del recorder
    torch.manual_seed(5)
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        torch.randn(SHAPE)
    expected = torch.rand(3)
    torch.manual_seed(5)
    data = torch.randn(SHAPE)
    assert data[0].shape == SHAPE[1:]
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("other", ["a view", "written", "weights", "a slice", "too large"])
def test_a_tensor_that_stays_without_memory(other: str, recorder: Recorder) -> None:
    """One whose memory others look at, that was written, that nobody filled, of which a part is taken, or there is no room for."""
    shape = (70_000, 1, 1000) if other == "too large" else SHAPE
    x = torch.empty(shape) if other == "weights" else torch.zeros(shape)
    kept = x.view(-1) if other == "a view" else None
    if other == "written":
        x.add_(1)
    x[1:3] if other == "a slice" else x[0]
    del kept
    with torch._C.DisableTorchFunction():
        assert x.is_meta
    assert x.device.type == "cpu"
    assert not operators(recorder)


def test_calls_that_lead_to_the_device_are_seen(recorder: Recorder) -> None:
    x = torch.ones(4)
    assert x.new_zeros(3, device="cuda").is_cuda
    assert torch.zeros_like(x, device="cuda").is_cuda
    with torch.device("cuda"):
        assert torch.zeros(3).is_cuda
    y = x.cuda()
    assert torch.stack([y, y]).is_cuda
    assert (x.sum() * y).is_cuda
    assert len(operators(recorder)) == 6


def test_the_default_device_is_where_factories_go_that_are_given_host_tensors(recorder: Recorder) -> None:
    number = torch.tensor(2.0)
    torch.set_default_device("cuda")
    try:
        assert torch.full((3,), number).is_cuda
    finally:
        torch.set_default_device(None)
    assert operators(recorder)
    assert torch.full((3,), number).device.type == "cpu"


def test_hooks_on_what_a_host_operator_saves_are_followed(recorder: Recorder) -> None:
    """Activations that are kept on the device: the hook runs inside the operator."""
    kept = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.to("cuda"))
        return kept[-1]

    x = torch.ones(4, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor.to("cpu")):
        y = x * x
    assert kept and all(tensor.is_cuda for tensor in kept)
    assert operators(recorder) == ["aten::_to_copy.default"] * len(kept)
    assert y.device.type == "cpu"


@pytest.mark.usefixtures("recorder")
def test_a_tensor_read_whole_has_its_values() -> None:
    assert torch.ones(512, 512).sum().item() == 512 * 512
    assert torch.zeros(600, 600).max() == 0 and 0.49 < torch.rand(1000, 1000).mean().item() < 0.51


def test_a_sparse_tensor_of_real_places_and_large_values(recorder: Recorder) -> None:
    """Places are real, values have no memory until they meet: 300,000 entries, of which two are the same."""
    places = torch.arange(300_000).remainder(299_999).expand(2, -1)
    matrix = torch.sparse_coo_tensor(places, torch.ones(300_000), (300_000, 300_000)).coalesce()
    assert matrix._nnz() == 299_999 and matrix.values().sum().item() == 300_000
    assert matrix.cuda()._nnz() == 299_999 and "aten::_coalesce" not in operators(recorder)


@pytest.mark.parametrize("index", [slice(None, None, 2), (slice(None), 0), "mask", torch.tensor([1, 3])])
def test_a_number_assigned_on_the_host_takes_no_memory_of_the_device(index: Any, recorder: Recorder) -> None:
    """Before, it was a scalar on the device, and what it was written to was gathered there."""
    x = torch.empty(SHAPE)
    x[x > 1 if index == "mask" else index] = 3.0
    assert x.device.type == "cpu"
    assert not operators(recorder)


def _pruned() -> torch.Tensor:
    x = torch.randn(600, 600)
    x[x.abs() < 1.5] = 0
    return x


@pytest.mark.parametrize(
    ("make", "least", "most"),
    [
        (lambda: torch.rand(600, 600).lt(0.1).float(), 30_000, 42_000),
        (_pruned, 40_000, 56_000),
        (lambda: torch.randn(600, 600).relu(), 170_000, 190_000),
    ],
)
def test_entries_of_a_matrix_that_was_made_on_the_host(
    make: Callable[[], torch.Tensor], least: int, most: int, recorder: Recorder
) -> None:
    """Sparse on the device with so many entries, not with one in each of 360,000 places."""
    assert least < make().cuda().to_sparse()._nnz() < most
    assert not any("depends on data" in note for note in recorder.notes)


def test_numbers_assigned_to_parts_of_a_host_tensor_are_there(recorder: Recorder) -> None:
    x = torch.zeros(600, 600)
    x[::10, ::10] = 2.0
    assert x.sum().item() == 7200
    assert x.cuda().to_sparse()._nnz() == 3600
    assert not any("a value only a real run has" in note for note in recorder.notes)


@pytest.mark.parametrize(
    ("make", "refusal"),
    [
        (lambda: torch.zeros(3, device="cuda").numpy(), "can't convert cuda:0 device type tensor to numpy"),
        (lambda: numpy.asarray(torch.zeros(3, device="cuda")), "can't convert cuda:0 device type tensor"),
        (
            lambda: torch.zeros(3, requires_grad=True).numpy(),
            "Can't call numpy\\(\\) on Tensor that requires",
        ),
    ],
)
def test_arrays_that_pytorch_refuses_are_refused(
    make: Callable[[], Any], refusal: str, recorder: Recorder
) -> None:
    """A program that ends there on a GPU was said to fit."""
    del recorder
    with pytest.raises((TypeError, RuntimeError), match=refusal):
        make()


def test_arrays_that_pytorch_makes_are_made(recorder: Recorder) -> None:
    del recorder
    x = torch.ones(3, device="cuda", requires_grad=True)
    assert x.numpy(force=True).tolist() == x.detach().cpu().numpy().tolist() == [1, 1, 1]
    assert numpy.asarray(torch.arange(3, device="cuda").cpu(), dtype="float32").tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_a_host_copy_of_what_has_a_gradient_has_one(dtype: Any, recorder: Recorder) -> None:
    """Before, it had none: `backward` ended the program."""
    layer = torch.nn.Linear(8, 4).cuda()
    x = torch.randn(512, 8, device="cuda")
    copy = layer(x).to("cpu", dtype) if dtype else layer(x).cpu()
    assert (
        copy.requires_grad and copy.device.type == "cpu" and type(copy.grad_fn).__name__ == "ToCopyBackward0"
    )
    with pytest.raises(RuntimeError, match="Can't call numpy"):
        copy.numpy()
    assert copy.detach().numpy().shape == (512, 4) and len(copy.tolist()) == 512
    assert "grad_fn=" in repr(copy)
    assert isinstance(copy.sum().item(), float)
    copy.sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.is_cuda
    with torch.no_grad():
        assert not layer(x).cpu().requires_grad
    del recorder


def test_outputs_kept_on_the_host_keep_what_their_gradient_needs(recorder: Recorder) -> None:
    """Each keeps 1024 x 2048 activations of 4 bytes, 8 MiB."""
    net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)).cuda()
    x = torch.randn(1024, 512, device="cuda")
    alive = recorder.storages.all
    kept = [net(x).cpu() for _ in range(3)]
    sizes = [storage.nbytes for storage in alive]
    assert sizes.count(1024 * 2048 * 4) >= 3 and all(copy.requires_grad for copy in kept)
