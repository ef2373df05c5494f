"""Profiles: every one is sound and sourced, the loader and the schema agree, and mistakes are explained."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from analyzer import devices
from analyzer.devices import loader, nvml
from analyzer.errors import OptionError
from benchmarks import gpu_profiles

GIB = 2**30
SCHEMA = json.loads((Path(loader.__file__).parent / "schema.json").read_text())
H200 = json.loads((loader.PROFILES / "h200.json").read_text())


def test_names() -> None:
    assert set(devices.names()) >= {
        "h200", "a100-40gb", "a100-80gb", "h100", "l4", "t4", "v100", "rtx3090", "rtx4090", "rtx5090", "b200",
    }  # fmt: skip


@pytest.mark.parametrize("name", devices.names())
def test_every_profile(name: str) -> None:
    """It follows the schema, has a source for every figure, and its workspace is what PyTorch takes."""
    content = json.loads((loader.PROFILES / f"{name}.json").read_text())
    jsonschema.validate(content, SCHEMA)
    profile = devices.load(name)
    assert profile.name == name
    figures = set(loader.CHECKS) - {
        "name",
        "sources",
        "measured",
        "nvml_names",
        "releases",
        "modules_off_bytes",
        "host_factor",
    }
    # What was measured has no range.
    lacking = {"context_range_bytes"} if profile.measured else {"nccl"}
    smallest, largest = profile.capacity_range_bytes
    if smallest == largest:
        lacking |= {"capacity_range_bytes"}
    assert set(profile.sources) == figures - lacking
    # CUDA has less than nvidia-smi lists: 16 MiB on a V100, some hundreds elsewhere, 1.1 GiB at most.
    assert smallest <= profile.capacity_bytes <= largest <= profile.listed_bytes
    assert profile.listed_bytes - smallest <= max(0.02 * profile.listed_bytes, 560 * 2**20)
    least, most = profile.context_range_bytes
    assert least <= profile.context_bytes <= most and (least == most) == (name in ("h100", "h200"))
    assert most - least <= 0.51 * profile.context_bytes
    assert set(profile.per_thread_modules) <= set(profile.modules_bytes)
    big = profile.compute_capability[0] in (9, 10, 12)
    assert profile.cublas_workspace_bytes == (32 * 2**20 if big else 8_519_680)


def test_profiles_are_as_their_command_writes_them() -> None:
    written = gpu_profiles.profiles()
    assert set(written) == set(devices.names()) - {"h100", "h200"}
    for name, content in written.items():
        assert json.loads((loader.PROFILES / f"{name}.json").read_text()) == content, (
            "python -m benchmarks gpu_profiles table"
        )


def test_slices() -> None:
    """NVIDIA lists 19,968 MiB and 28 multiprocessors for two of an A100's seven slices."""
    found = devices.load("a100-80gb:2g.20gb")
    assert (found.capacity_bytes, found.sm_count, found.name) == (19968 * 2**20, 28, "a100-80gb:2g.20gb")
    assert devices.load("A100-40GB:1g.5gb").capacity_bytes == 4864 * 2**20
    assert devices.load("a100-80gb:7g.80gb").capacity_bytes == 80384 * 2**20
    # The same share less of a whole H200: 143,771 MiB x 157 / 160.
    assert devices.load("h200:7g").capacity_bytes == 141075 * 2**20
    # One seventh of the multiprocessors with a quarter of the memory.
    wide = devices.load("a100-40gb:1g.10gb")
    assert (wide.capacity_bytes, wide.sm_count) == (9856 * 2**20, 14)
    assert devices.load("h200:1g.35gb").capacity_bytes == devices.load("h200:2g.35gb").capacity_bytes
    assert devices.load("h200:1g.18gb").capacity_bytes == devices.load("h200:1g").capacity_bytes
    assert not devices.load("h200:3g.71gb").measured
    least, most = found.context_range_bytes
    assert least <= found.context_bytes <= most
    for said, words in (
        ("rtx4090:1g", "has no slices"),
        ("a100-80gb:5g", "has no slice '5g'"),
        ("a30:7g", "1g, 2g, 4g"),
    ):
        with pytest.raises(OptionError) as caught:
            devices.load(said)
        assert words in f"{caught.value.message} {caught.value.hint}"


def test_h200_is_measured() -> None:
    profile = devices.load("h200")
    assert (profile.capacity_bytes, profile.listed_bytes) == (150_109_880_320, 143771 * 2**20)
    assert (profile.sm_count, profile.compute_capability) == (132, (9, 0))
    assert profile.measured
    assert profile.context_bytes == 610 * 2**20


def test_schema_has_the_loaders_fields() -> None:
    assert set(SCHEMA["properties"]) == set(loader.CHECKS)
    assert set(loader.CHECKS) == {field.name for field in dataclasses.fields(devices.DeviceProfile)}
    assert set(SCHEMA["required"]) == set(loader.CHECKS) - loader.OPTIONAL
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


MISTAKES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "missing": lambda content: content.pop("sm_count"),
    "no sources": lambda content: content.pop("sources"),
    "unknown": lambda content: content.update(sm_cuont=3),
    "text for bytes": lambda content: content.update(capacity_bytes="24GiB"),
    "truth for a count": lambda content: content.update(sm_count=True),
    "zero": lambda content: content.update(capacity_bytes=0),
    "negative": lambda content: content.update(context_bytes=-1),
    "fraction": lambda content: content.update(sm_count=1.5),
    "one part": lambda content: content.update(compute_capability=[9]),
    "three parts": lambda content: content.update(compute_capability=[9, 0, 0]),
    "list for an object": lambda content: content.update(modules_bytes=[1]),
    "text inside": lambda content: content["modules_bytes"].update(cublas="64"),
    "source without a kind": lambda content: content["sources"].update(sm_count="somewhere"),
    "source of nothing": lambda content: content["sources"].update(speed="measured: by hand"),
    "number for truth": lambda content: content.update(measured=1),
    "empty name": lambda content: content.update(name=""),
    "empty nvml name": lambda content: content.update(nvml_names=[""]),
    "no version": lambda content: content.update(cudnn_device={"deviceName": "x"}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_loader_and_schema_refuse_the_same(mistake: str, tmp_path: Path) -> None:
    content = copy.deepcopy(H200)
    MISTAKES[mistake](content)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, SCHEMA)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(content))
    with pytest.raises(OptionError, match=r"device profile .*mine\.json: "):
        devices.load(path)


def test_load_by_path(tmp_path: Path) -> None:
    content = {**H200, "name": "mine"}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(content))
    assert dataclasses.replace(devices.load(str(path)), name="h200") == devices.load("h200")


def test_faulty_files(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot read"):
        devices.load(tmp_path / "none.json")
    for text in ("{", "[1]"):
        path = tmp_path / "bad.json"
        path.write_text(text)
        with pytest.raises(OptionError):
            devices.load(path)


@pytest.mark.parametrize("spelling", ["rtx4090", "RTX 4090", "rtx_4090", "RTX-4090"])
def test_spelling_of_names(spelling: str) -> None:
    assert devices.load(spelling).name == "rtx4090"


def test_unknown_device() -> None:
    with pytest.raises(OptionError, match="unknown device 'rtx4091'") as caught:
        devices.resolve("rtx4091")
    assert "did you mean 'rtx4090'" in caught.value.hint
    assert "near it: rtx5090, rtx4080, rtx4070, rtx4060; all: analyze devices" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("24GiB", 24 * GIB),
        ("24GB", 24 * 10**9),
        ("8192MiB", 8 * GIB),
        ("24G", 24 * GIB),
        ("24 GiB", 24 * GIB),
        ("24 GB", 24 * 10**9),
        ("24gb", 24 * 10**9),
        ("512m", GIB // 2),
        ("1.5 gib", 3 * GIB // 2),
        ("0.1GB", 10**8),
        ("4194304", 4194304),
        ("512B", 512),
        ("2TiB", 2048 * GIB),
        ("3kb", 3000),
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert devices.parse_size(text) == nbytes
    profile, note = devices.resolve(text)
    of_a_maker = text.lower().replace(" ", "") == "24gb"  # tests/devices/test_loader.py
    assert (devices.capacity_of(text) == nbytes) != of_a_maker
    assert profile.sm_count == devices.load("h200").sm_count
    assert "behaves like h200" in note


@pytest.mark.parametrize("text", ["24X", "GiB", "-1GiB", "", "0.1B", "1e9", "0GiB"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(OptionError):
        devices.parse_size(text)


def test_capacity_of() -> None:
    """What CUDA has, not what nvidia-smi lists: read on an H100 and an H200, 14.56 GiB in messages of T4s (which list 15,360 MiB)."""
    h100 = devices.load("h100")
    assert (h100.capacity_bytes, h100.listed_bytes) == (85_017_493_504, 81559 * 2**20)
    assert devices.load("h200").capacity_bytes == 150_109_880_320
    assert round(devices.load("t4").capacity_bytes / GIB, 2) == 14.56
    # Of a fresh process 543,162,368 bytes are NVML's, and mem_get_info has 84,465,090,560 free.
    assert devices.capacity_of("h100") == 84_465_090_560 + 543_162_368
    assert devices.capacity_of(5) == 5
    with pytest.raises(OptionError):
        devices.capacity_of(0)


@pytest.mark.parametrize(
    ("nvml_name", "profile", "note"),
    [
        ("NVIDIA GeForce RTX 4090", "rtx4090", "this machine's GPU (NVIDIA GeForce RTX 4090)"),
        ("NVIDIA Something", "h200", "no profile is known for this machine's GPU (NVIDIA Something)"),
        (None, "h200", "no NVIDIA GPU"),
    ],
)
def test_this_machine(
    monkeypatch: pytest.MonkeyPatch, nvml_name: str | None, profile: str, note: str
) -> None:
    monkeypatch.setattr(nvml, "name", lambda: nvml_name)
    found, why = devices.resolve(None)
    assert found.name == profile
    assert note in why


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("GeForce RTX 4090", "rtx4090"),
        ("4090", "rtx4090"),
        ("3090 Ti", "rtx3090ti"),
        ("Tesla T4", "t4"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("A100-80G", "a100-80gb"),
        ("h100 80gb", "h100"),
        ("NVIDIA A10G", "a10g"),
        ("rtx 4070 super", "rtx4070super"),
        ("4096", "4096"),
    ],
)
def test_a_gpu_has_many_names(said: str, name: str) -> None:
    """4096 is no GPU: a number alone is bytes, and so few are questioned."""
    if said == "4096":
        with pytest.raises(OptionError, match="would be 4096 bytes"):
            devices.resolve(said)
    else:
        assert devices.resolve(said)[0].name == name
