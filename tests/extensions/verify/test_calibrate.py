"""Calibration on a made-up GPU: a profile that is valid, loads and is used; stages that resume."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytest.importorskip("torch")

from analyzer import releases
from analyzer.devices import load
from analyzer.devices.loader import PROFILES, from_dict
from analyzer.errors import RunError
from analyzer_timing import host
from analyzer_verify import calibrate
from analyzer_verify.calibrate import predicted_checks
from analyzer_verify.runs import checks, communicators, machine
from analyzer_verify.runs.probes import PRODUCT_BYTES
from tests.paths import DATA, MODELS, ROOT

MIB = 2**20


class FakeGpu:
    """Answers probes as a GPU with 24 GiB and a workspace of 8,519,680 bytes would."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fail_at = ""
        self.torch, self.with_bias_bytes = "2.11.0", 8_519_680 + MIB

    def probe(self, description: Mapping[str, Any]) -> dict[str, Any]:
        name = " ".join(str(description[key]) for key in ("name", "family") if key in description)
        self.asked.append(name)
        if name == self.fail_at:
            raise RunError(f"{name} failed", "")
        if description["name"] == "device":
            return {
                "nvml_name": "NVIDIA Pretend 24", "driver": "580.1", "capacity_bytes": 23 << 30, "listed_bytes": 24 << 30,
                "driver_bytes": 9 * MIB, "first_kernel_bytes": 90 * MIB,
                "compute_capability": [8, 9], "sm_count": 60, "max_threads_per_sm": 1536, "context_bytes": 300 * MIB, "cudnn_device": '{"deviceVer": 890}',
                "versions": {"torch": self.torch, "cuda": "13.0", "cudnn": "9.19.0"},
            }  # fmt: skip
        if description["name"] == "host":
            return {"seconds": {name: 1.5 * seconds for name, seconds in host.LOOPS.items()}}
        if description["name"] == "library":
            return {
                "cublas": {
                    "outside_bytes": [60 * MIB, 58 * MIB],
                    "peak_bytes": [PRODUCT_BYTES + 8_519_680] * 2,
                },
                "cublaslt": {
                    "outside_bytes": [60 * MIB, 0],
                    "peak_bytes": [PRODUCT_BYTES + self.with_bias_bytes] * 2,
                },
                "cudnn": {"outside_bytes": [10 * MIB, 2 * MIB], "peak_bytes": [0, 0]},
                "cusolver": {"outside_bytes": [90 * MIB, 0], "peak_bytes": [0, 0]},
                "cufft": {"outside_bytes": [0, 0], "peak_bytes": [0, 0]},
                "kernels": {"outside_bytes": [132 * MIB, 0], "peak_bytes": [0, 0]},
            }[description["family"]]
        # As a GPU of its compute capability and size does, whose sorts are other ones than an H200's.
        own = replace(load("h200"), compute_capability=(8, 9), sm_count=60, max_threads_per_sm=1536)
        predicted = predicted_checks(own)
        return {
            "marks": [
                [event, allocated, peak + MIB * (event == "15.sort")] for event, allocated, peak in predicted
            ]
        }


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    monkeypatch.setattr(calibrate, "probe", fake.probe)
    monkeypatch.setattr(machine, "require_cuda", lambda *_: None)
    return fake


@pytest.mark.usefixtures("gpu")
def test_the_profile_is_valid_and_used(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    told: list[tuple[str, float]] = []
    calibrate.calibrate(path, progress=lambda stage, share: told.append((stage, share)))
    document = json.loads(path.read_text())
    jsonschema.validate(document, json.loads((PROFILES.parent / "schema.json").read_text()))
    profile = load(path)
    assert (profile.name, profile.capacity_bytes, profile.sm_count) == ("nvidia-pretend-24", 23 << 30, 60)
    assert (profile.driver_bytes, profile.first_kernel_bytes) == (9 * MIB, 90 * MIB)
    assert (profile.listed_bytes, profile.capacity_range_bytes) == (24 << 30, (23 << 30, 23 << 30))
    assert profile.modules_bytes == {
        "cublas": 58 * MIB, "cudnn": 10 * MIB, "cusolver": 90 * MIB, "cufft": 0, "kernels": 6 * MIB,
    }  # fmt: skip
    assert profile.per_thread_modules == ("cublas",)
    assert (profile.cublas_workspace_bytes, profile.cublaslt_workspace_bytes) == (8_519_680, MIB)
    assert profile.host_factor == 1.5  # every loop took half as long again
    assert profile.measured and profile.cudnn_device == {"deviceVer": 890}
    assert not (tmp_path / "mine.json.partial").exists()
    assert [share for _, share in told] == sorted(share for _, share in told) and told[-1] == ("done", 1.0)

    from analyzer import analyze

    estimate = analyze(MODELS / "linear.py", batch=1, device=str(path))
    assert estimate.device == "nvidia-pretend-24"
    assert estimate.breakdown["workspace"] == 8_519_680 + MIB


@pytest.mark.parametrize(
    ("version", "with_bias", "how"),
    [
        ("2.8.0", 8_519_680 + MIB, "measured"),  # kept, and one of the call beside it
        ("2.13.0", 8_519_680, "assumed"),  # in cuBLAS's own
        ("2.15.0", MIB, "measured"),  # each call its own, nothing is kept
    ],
)
def test_workspaces_of_every_release_are_seen(
    gpu: FakeGpu, tmp_path: Path, version: str, with_bias: int, how: str
) -> None:
    gpu.torch, gpu.with_bias_bytes = version, with_bias
    calibrate.calibrate(tmp_path / "p.json")
    profile = load(tmp_path / "p.json")
    assert (profile.cublas_workspace_bytes, profile.cublaslt_workspace_bytes) == (8_519_680, MIB)
    assert profile.sources["cublaslt_workspace_bytes"].startswith(how)
    assert (profile.releases["torch"], profile.releases["cuda"]) == (releases.parse(version), (13, 0))


@pytest.mark.usefixtures("gpu")
def test_checks_say_what_differs_from_the_rules(tmp_path: Path) -> None:
    found = calibrate.calibrate(tmp_path / "p.json")
    assert {check.name for check in found.checks} == set(checks.CASES)
    sort = next(check for check in found.checks if check.name == "sort")
    assert sort.measured_bytes == sort.predicted_bytes + MIB


def test_an_interrupted_calibration_goes_on_where_it_stopped(gpu: FakeGpu, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    gpu.fail_at = "library cusolver"
    with pytest.raises(RunError):
        calibrate.calibrate(path)
    assert not path.exists() and (tmp_path / "p.json.partial").exists()
    gpu.fail_at, gpu.asked = "", []
    calibrate.calibrate(path)
    assert gpu.asked == ["library cusolver", "library cufft", "library kernels", "host", "checks"]


def test_the_profile_it_wrote_on_the_h200_predicts_no_worse_than_the_shipped_one() -> None:
    """`python -m benchmarks accuracy calibrated`, 180 measured cases; the shipped profile is the one of that day."""
    found = json.loads((ROOT / "benchmarks/accuracy/calibrated.json").read_text())
    assert found["seconds"] < 480
    for place in range(3):
        own, theirs = (
            [
                1.0 if case[place] is None else abs(case[place])
                for cases in sets.values()
                for case in cases.values()
            ]
            for sets in (found["sets"], found["shipped"])
        )
        assert len(own) == len(theirs) == 180
        assert sum(own) <= sum(theirs) + 1e-6
    profile = from_dict(found["profile"])
    like = load("h200")
    for figure in (
        "context_bytes",
        "per_thread_modules",
        "cublas_workspace_bytes",
        "sm_count",
    ):
        assert getattr(profile, figure) == getattr(like, figure)
    # What kernels of benchmark mode leave behind is no part of calibrating.
    modules = {name: n for name, n in like.modules_bytes.items() if not name.startswith("local_memory")}
    assert profile.modules_bytes == modules


def found_communicators() -> list[dict[str, Any]]:
    """What two ranks on two H200 found: NVLink SHARP off, and on."""
    found = json.loads((DATA / "h200" / "communicators.json").read_text())["runs"]
    assert len(found) == 2
    return list(found)


def alone() -> dict[str, Any]:
    """What a rank alone found."""
    (found,) = json.loads((DATA / "h200" / "communicators_alone.json").read_text())["runs"]
    return dict(found)


def test_what_nccl_takes_is_told_by_a_second_communicator() -> None:
    off, on = map(calibrate.topology, found_communicators())
    assert off == {
        "ranks": 2, "link": "NVLink, NCCL_NVLS_ENABLE=0", "nccl": "2.28.9", "code_bytes": 354 * MIB,
        "communicator_bytes": 198 * MIB, "ring_bytes": 288 * MIB, "exchange_code_bytes": 58 * MIB, "send_bytes": 64 * MIB,
        "receive_bytes": 320 * MIB,
    }  # fmt: skip
    assert on == {**off, "link": "NVLink", "communicator_bytes": 232 * MIB}
    assert calibrate.topology(alone()) == dataclasses.asdict(load("h200").nccl[1])
    # What the H200's profile has from NCCL's own log and eleven programs.
    shipped = load("h200").nccl[0]
    assert shipped.code_bytes + shipped.communicator_bytes + shipped.ring_bytes == (354 + 198 + 288) * MIB
    assert abs(shipped.communicator_bytes - off["communicator_bytes"]) == 2 * MIB


@pytest.mark.usefixtures("gpu")
def test_a_calibrated_topology_gives_other_programs_within_one_percent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models that were measured on the same two GPUs, and are not among those the figures were made with."""
    monkeypatch.setattr(
        communicators, "measured", lambda ranks: found_communicators()[0] if ranks == 2 else alone()
    )
    path = tmp_path / "pair.json"
    calibrate.calibrate(path, ranks=2)
    calibrated = json.loads(path.read_text())
    jsonschema.validate(calibrated, json.loads((PROFILES.parent / "schema.json").read_text()))
    assert "NCCL 2.28.9" in calibrated["sources"]["nccl"]
    profile = json.loads((PROFILES / "h200.json").read_text())
    profile |= {"nccl": calibrated["nccl"], "name": "pair"}
    path.write_text(json.dumps(profile))
    from analyzer import analyze
    from benchmarks.ranks.score_targets import target

    for row in json.loads((DATA / "h200" / "ranks_targets.json").read_text()):
        if row["name"] not in ("llama_tp", "llama_fsdp2_offload") or row["rank"] != 1:
            continue
        options = {**row["options"], "parallel": f"{row['options']['parallel']},rank=1"}
        found = analyze(target(row), device=str(path), **options)
        assert found.device_used == pytest.approx(row["nvml_peak"], rel=0.01)
        assert not [note for note in found.notes if note.startswith("NCCL bounded")]
