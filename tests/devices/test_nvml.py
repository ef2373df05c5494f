"""Which GPU is the first visible one, by the rules CUDA reads CUDA_VISIBLE_DEVICES with; what is said where there is none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from analyzer import devices
from analyzer.devices import nvml
from tests.devices.fake_nvml import Card, FakeNvml, install

FIRST, SECOND, THIRD = (
    Card("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "NVIDIA H200"),
    Card("GPU-8932aaaa-0000-0000-0000-000000000000", b"NVIDIA L4"),
    Card("GPU-1f000000-0000-0000-0000-000000000000", "NVIDIA Something"),
)
INSTANCE = Card("MIG-c7384736-a75d-5afc-978f-d2f1294409fd", "NVIDIA H200 MIG 1g.18gb")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    return install(monkeypatch, FakeNvml(FIRST, SECOND, THIRD, instances=(INSTANCE,)))


@pytest.mark.parametrize(
    ("variable", "card"),
    [
        (None, FIRST),
        ("0", FIRST),
        ("1", SECOND),
        (" 2 , 0", THIRD),
        ("+1", SECOND),
        ("1gpu", SECOND),
        ("1,-1,2", SECOND),
        ("1,no", SECOND),
        (FIRST.uuid, FIRST),
        ("GPU-8932f", FIRST),
        ("GPU-1,GPU-8932a", THIRD),
        (f"{THIRD.uuid}, {FIRST.uuid}", THIRD),
        (INSTANCE.uuid, INSTANCE),
        (f"{INSTANCE.uuid},0", INSTANCE),
    ],
)
def test_the_first_visible_gpu(
    fake: FakeNvml, monkeypatch: pytest.MonkeyPatch, variable: str | None, card: Card
) -> None:
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    with nvml.first_visible() as handle:
        assert handle is card and fake.opened == 1
    assert fake.opened == 0


@pytest.mark.parametrize(
    "variable",
    [
        "",
        " ",
        "-1",
        "-1,0",
        "no",
        ",0",
        "3",
        "3,0",
        "0,0",
        "1,0,1",
        "GPU-8932",  # names two
        "GPU-7",  # names none
        f"{FIRST.uuid},{FIRST.uuid}",
        "gpu-8932f",
        "8932f937-d72c-4106-c12f-20bd9faed9f6",
        f" {FIRST.uuid}",  # indices may have spaces before them, UUIDs not: as seen on a machine with two H200
    ],
)
def test_nothing_visible(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    with pytest.raises(nvml.NoGpuError) as caught, nvml.first_visible():
        pass
    assert caught.value.message == f"CUDA_VISIBLE_DEVICES={variable} leaves none visible"
    assert fake.opened == 0 and nvml.name() is None
    profile, note = devices.resolve(None)
    assert profile.name == "h200" and "no NVIDIA GPU that NVML can see" in note


@pytest.mark.parametrize(
    "variable",
    [
        None,
        "",
        "-1",
        "0",
        "1",
        "2,1",
        "0,0",
        "x",
        "1x",
        "+1",
        "1,-1",
        "2,,1",
        ",1",
        " 2",
        "GPU-1,GPU-2",
        "GPU-1,GPU-1",
        " GPU-1",
    ],
)
def test_torch_reads_the_variable_alike(monkeypatch: pytest.MonkeyPatch, variable: str | None) -> None:
    """torch follows CUDA's rules to count devices without initialising CUDA."""
    torch = pytest.importorskip("torch")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    visible = torch.cuda._parse_visible_devices()
    assert nvml.first_entry(variable) == (visible[0] if visible else None)


@pytest.mark.parametrize(("variable", "profile"), [("0", "h200"), ("1", "l4"), (INSTANCE.uuid, "h200")])
def test_the_profile_is_that_of_the_first_visible_gpu(
    fake: FakeNvml, monkeypatch: pytest.MonkeyPatch, variable: str, profile: str
) -> None:
    """A part of a GPU is no GPU whose profile is known."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    found, note = devices.resolve(None)
    assert found.name == profile and fake.opened == 0
    assert ("no profile is known" in note) == (variable == INSTANCE.uuid)


def test_a_missing_instance(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-0")
    with pytest.raises(nvml.NoGpuError, match="the driver reports none: Not Found"), nvml.first_visible():
        pass
    assert fake.opened == 0


def test_a_driver_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, FakeNvml())
    with pytest.raises(nvml.NoGpuError, match=r"^the driver reports none$"), nvml.first_visible():
        pass
    assert fake.opened == 0


def test_what_is_missing(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.broken = fake.NVMLError_LibraryNotFound()
    with pytest.raises(nvml.NoGpuError, match=r"^no NVIDIA driver is installed here$"), nvml.first_visible():
        pass
    fake.broken = fake.NVMLError("Driver/library version mismatch")
    with pytest.raises(nvml.NoGpuError, match="reports none: Driver/library"), nvml.first_visible():
        pass
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(nvml.NoGpuError, match="package is not installed"), nvml.first_visible():
        pass
    monkeypatch.setattr(nvml, "_DRIVER_FILES", ())
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(nvml.NoGpuError, match=r"^no NVIDIA driver is installed here$"), nvml.first_visible():
        pass


def test_without_a_driver_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_DRIVER_FILES", ())
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    assert nvml.name() is None and "pynvml" not in sys.modules


def test_what_nvml_refuses_inside_is_the_same_error_and_closes_it(fake: FakeNvml) -> None:
    with pytest.raises(nvml.NoGpuError, match="Not Supported"), nvml.first_visible():
        raise fake.NVMLError("Not Supported")
    assert fake.opened == 0
    with pytest.raises(ZeroDivisionError), nvml.first_visible():
        raise ZeroDivisionError
    assert fake.opened == 0


_DEVICE_0 = """
import torch
from analyzer.devices import nvml
try:
    with nvml.first_visible() as handle:
        import pynvml
        mine = nvml.text(pynvml.nvmlDeviceGetUUID(handle))
except nvml.NoGpuError:
    mine = None
theirs = f"GPU-{torch.cuda.get_device_properties(0).uuid}" if torch.cuda.is_available() else None
print(mine == theirs, mine, theirs)
"""


@pytest.mark.gpu
@pytest.mark.skipif(nvml.name() is None, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize(
    "variable",
    [
        None, "", "0", "1", "1,0", " 1", "-1", "1,-1", "0,0", "7", "7,0", "0,7", "0x", "+0", "x", ",0", "GPU-zz", "GPU-",
        "{0}", "{0:.12}", "{0},{0}", "{0}, {0}", " {0}",
    ],
)  # fmt: skip
def test_a_real_machine(variable: str | None) -> None:
    """The GPU that is opened is torch's device 0, or neither sees one."""
    with nvml.first_visible() as handle:
        import pynvml

        uuid = nvml.text(pynvml.nvmlDeviceGetUUID(handle))
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    if variable is not None:
        environment["CUDA_VISIBLE_DEVICES"] = variable.format(uuid)
    command = [sys.executable, "-c", _DEVICE_0]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout.startswith("True"), ran.stdout
