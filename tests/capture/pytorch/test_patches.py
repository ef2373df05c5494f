"""What is replaced in PyTorch is there to be replaced, stands in the table, and is PyTorch's own again afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from analyzer import child  # noqa: E402
from analyzer.capture.pytorch import patches  # noqa: E402
from analyzer.capture.pytorch.capture import capture_script  # noqa: E402
from analyzer.capture.pytorch.kernels import autocast, decisions  # noqa: E402
from analyzer.capture.pytorch.patches import PATCHES, RELIED_ON, look_up, registered, replaced  # noqa: E402
from analyzer.capture.pytorch.recording.compatible import CompatibleDevices  # noqa: E402
from analyzer.devices import load  # noqa: E402
from tests.paths import PACKAGE  # noqa: E402

H200 = load("h200")


@pytest.mark.parametrize(
    "where", [name for name, patch in PATCHES.items() if patch.needed and not patch.cuda_only]
)
def test_the_installed_torch_has_every_name_that_is_replaced(where: str) -> None:
    owner, name = look_up(where)
    assert hasattr(owner, name)


@pytest.mark.parametrize("where", RELIED_ON)
def test_the_installed_torch_has_every_private_name_that_is_read(where: str) -> None:
    owner, name = look_up(where)
    assert hasattr(owner, name)


def test_the_installed_torch_has_every_operator_with_a_kernel_of_ours() -> None:
    names = [name for listed in autocast.POLICIES.values() for name in listed]
    assert len(names) > 100 and all(autocast.overload(name) for name in names)
    assert all(
        isinstance(entry, torch._ops.OpOverload) for entry in decisions.choices(CompatibleDevices(H200))
    )


def test_every_entry_of_the_table_is_used() -> None:
    """During a capture each name is something else than before."""
    seen: dict[str, Any] = {}
    before = {where: getattr(*look_up(where), None) for where in PATCHES}

    def script(_: Any) -> None:
        seen.update({where: getattr(*look_up(where), None) for where in PATCHES})

    capture_script(script, H200)
    same = {where for where in PATCHES if seen[where] is before[where]}
    only_in_a_step_a_program_or_a_real_run = {
        "torch.nn.Module.__call__",
        "torch.autograd.backward",
        "torch.optim.Optimizer.__init__",
        "torch.autograd._engine_run_backward",
        "threading.Thread.start",
        "threading.Thread.join",
        "torch.accelerator.memory_stats",
        "torch.cuda.caching_allocator_alloc",
        "torch.cuda.caching_allocator_delete",
        "torch.cuda.memory_stats",
        "torch.cuda.memory_stats_as_nested_dict",
        "torch.cuda.memory_summary",
        "torch.cuda.set_per_process_memory_fraction",
        "torch.compile",
        "torch.Tensor.__new__",
        "torch.jit.trace",
        "torch.jit.ScriptModule",
        "torch.jit.ScriptFunction.__call__",
        "torch.UntypedStorage._set_from_file",
        "torch.jit.script_method",
        "torch.Tensor._reduce_ex_internal",
        "torch.Tensor.normal_",
        "torch.Tensor.uniform_",
        "torch.amp.GradScaler._maybe_opt_step",
        "torch.multiprocessing.spawn",
        "torch.multiprocessing.start_processes",
        "multiprocessing.process.BaseProcess.start",
        "torch.nn.parallel.distributed._verify_param_shape_across_processes",
        "torch.export.export",
        "torch.utils.data.dataloader._BaseDataLoaderIter._next_index",
        "torch._C._distributed_c10d.Logger.set_runtime_stats_and_log",
        "torch._C._distributed_c10d.FakeProcessGroup._set_sequence_number_for_group",
        *(where for where in PATCHES if where.startswith("torch.distributed.")),
    } - {"torch.distributed.is_nccl_available"}
    assert same == only_in_a_step_a_program_or_a_real_run
    # Equal: a method of an object (`torch.ops.load_library`) is another one each time.
    assert all(getattr(*look_up(where), None) == before[where] for where in PATCHES)


def test_a_name_that_torch_no_longer_has_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PATCHES, "torch.cuda.renamed", patches.Patch("a test"))
    with pytest.raises(AttributeError, match="renamed"), replaced({"torch.cuda.renamed": None}):
        pass


def test_a_name_that_is_not_in_the_table_is_an_error() -> None:
    with pytest.raises(KeyError), replaced({"torch.add": None}):
        pass


def test_a_patch_for_other_versions_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PATCHES, "torch.add", patches.Patch("a test", until=(2, 10)))
    before = torch.add
    with replaced({"torch.add": None}):
        assert torch.add is before


def test_everything_is_back_after_an_error() -> None:
    before = torch.cuda.is_available, torch.nn.Module.__call__

    class Inherits(torch.nn.Linear):
        """Has no `__call__` of its own."""

    def failing() -> None:
        with replaced({"torch.cuda.is_available": lambda: "yes"}):
            assert torch.cuda.is_available() == "yes"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert (torch.cuda.is_available, torch.nn.Module.__call__) == before
    assert "__call__" not in vars(Inherits)


def test_a_kernel_is_registered_for_the_time_being() -> None:
    meta = torch.empty(3, device="meta")
    calls: list[Callable[..., Any]] = []

    def softmax(x: Any, *_: Any, **__: Any) -> Any:
        calls.append(softmax)
        return torch.empty_like(x)

    with registered("AutogradMeta", {torch.ops.aten.softmax.int: softmax}):
        torch.softmax(meta, 0)
    torch.softmax(meta, 0)
    assert len(calls) == 1


def test_nothing_is_replaced_in_any_other_way() -> None:
    """No mock in the product, no assignment to a module of torch, no kernel registered elsewhere; what runs in an emulated process
    is a program of its own, and this process never imports it."""
    own = PACKAGE / "analyzer"
    files = {file for package in child.packages() for file in package.rglob("*.py")}
    for file in (file for file in files if file.parent.name != "inside"):
        text = file.read_text()
        assert "unittest" not in text, file
        if file != own / "capture" / "pytorch" / "patches.py":
            assert "setattr(torch" not in text and "library.Library(" not in text, file
    assert Path(patches.__file__).is_relative_to(own)


def test_a_setting_of_a_module_s_class_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `torch.backends.cudnn.benchmark_limit` of a build with CUDA, a descriptor that nobody can delete."""

    class Setting:
        value = 10

        def __get__(self, *_: object) -> int:
            return self.value

        def __set__(self, _: object, value: int) -> None:
            self.value = value

    class Backend(ModuleType):
        limit = Setting()

    backend = Backend("torch.backends.made_up")
    monkeypatch.setattr(torch.backends, "made_up", backend, raising=False)
    monkeypatch.setitem(PATCHES, "torch.backends.made_up.limit", patches.Patch("a test"))
    with replaced({"torch.backends.made_up.limit": 3}):
        assert backend.limit == 3
    assert backend.limit == 10
