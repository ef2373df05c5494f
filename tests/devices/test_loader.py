"""Sizes, paths and the fields of a profile, each at the edge of what it may be; the room's values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analyzer import devices
from analyzer.devices import loader
from analyzer.devices.sizes import UNITS
from analyzer.errors import OptionError
from tests.values import not_values


def test_units() -> None:
    assert UNITS == {
        "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
        "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
    }  # fmt: skip
    assert devices.parse_size("1.75KiB") == 1792
    assert devices.parse_size("1B") == devices.parse_size("0.001kB") == 1


def test_a_size_is_a_device_of_that_size() -> None:
    profile, note = devices.resolve(" 24GiB ")
    assert (profile.name, profile.capacity_bytes, profile.nvml_names) == ("24GiB", 24 * 2**30, ())
    assert note.startswith("a GPU of 24GiB that behaves like h200 in everything else; a GPU's name instead")
    profile, note = devices.resolve(1)
    assert (profile.name, profile.capacity_bytes) == ("1 bytes", 1)
    assert devices.resolve("t4")[1] == ""
    with pytest.raises(OptionError, match="-1 bytes is no device's memory"):
        devices.resolve(-1)


def test_gigabytes_on_a_card_are_its_makers() -> None:
    """An RTX 4090 is sold with 24 GB, lists 24,564 MiB, and PyTorch sees 24,045 to 24,217 of them."""
    profile, note = devices.resolve("24GB")
    known = devices.load("rtx4090")
    least, most = profile.capacity_range_bytes
    assert (
        least
        <= known.capacity_range_bytes[0]
        < known.listed_bytes
        <= most
        == profile.listed_bytes
        == 24 << 30
    )
    assert profile.capacity_bytes == least > 24 * 10**9
    assert "as its maker counts (24 GiB, of which CUDA has some 23.5)" in note
    assert devices.resolve("24GiB")[0].capacity_range_bytes == (24 << 30, 24 << 30)
    assert devices.parse_size("24GB") == 24 * 10**9  # of a budget


def test_a_profile_without_what_nvidia_smi_lists() -> None:
    """One calibrated before both figures were read has NVML's, of which CUDA may have less."""
    older = loader.from_dict({**H200, "capacity_bytes": 24 << 30})
    assert older.capacity_range_bytes == ((24 << 30) - (560 << 20), 24 << 30)
    both = loader.from_dict({**H200, "capacity_bytes": 23 << 30, "listed_bytes": 24 << 30})
    assert both.capacity_range_bytes == (23 << 30, 23 << 30)
    with pytest.raises(OptionError, match="does not hold"):
        loader.from_dict({**H200, "capacity_range_bytes": [2, 3]})


def test_paths_are_told_from_names(tmp_path: Path) -> None:
    for path in (tmp_path / "none", str(tmp_path / "none"), "none.json"):
        with pytest.raises(OptionError, match="cannot read the device profile"):
            devices.load(path)
    with pytest.raises(OptionError, match="unknown device 'none'"):
        devices.load("none")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(OptionError, match="is not JSON"):
        devices.load(broken)


H200: dict[str, Any] = {
    "name": "x", "capacity_bytes": 1, "compute_capability": [9, 0], "sm_count": 1, "max_threads_per_sm": 1,
    "context_bytes": 0, "modules_bytes": {}, "cublas_workspace_bytes": 0, "cublaslt_workspace_bytes": 0,
    "sources": {},
}  # fmt: skip


def test_a_profile_may_name_tables_nobody_reads_any_more() -> None:
    older = {**H200, "data": {"convolution": "x.convolutions.npz"}, "sources": {"data": "measured: before"}}
    assert loader.from_dict(older).name == "x"


def test_the_least_a_profile_may_say() -> None:
    profile = loader.from_dict(H200)
    assert (profile.capacity_bytes, profile.sm_count, profile.compute_capability) == (1, 1, (9, 0))
    assert (profile.measured, profile.per_thread_modules, profile.nvml_names) == (False, (), ())
    whole = loader.from_dict({**H200, "per_thread_modules": ["a"], "nvml_names": ["b"], "measured": True})
    assert (whole.measured, whole.per_thread_modules, whole.nvml_names) == (True, ("a",), ("b",))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("capacity_bytes", 0),
        ("capacity_bytes", True),
        ("sm_count", 0),
        ("max_threads_per_sm", 0),
        ("context_bytes", -1),
        ("context_bytes", 1.5),
        ("compute_capability", [9]),
        ("compute_capability", [9, 0, 0]),
        ("compute_capability", [9, -1]),
        ("compute_capability", "90"),
        ("modules_bytes", {"a": 1, "b": -1}),
        ("modules_bytes", [1]),
        ("sources", {"name": "guessed"}),
        ("sources", {"name": 1}),
        ("nvml_names", "x"),
        ("nvml_names", ["x", 1]),
        ("per_thread_modules", ["x", ""]),
        ("name", 5),
    ],
)
def test_each_field_is_checked_by_itself(field: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"the field {field!r} is") as caught:
        loader.from_dict({**H200, field: value})
    assert caught.value.hint.startswith(f"it must be {loader.CHECKS[field][0]}")
    assert ("which begins with" in caught.value.hint) == (field == "sources")


def test_values_cannot_be_changed() -> None:
    assert not_values("analyzer.devices") == set()
