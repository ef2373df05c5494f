"""What NVML showed at the end of 70 recorded runs, from the reservation and the libraries each run used."""

from __future__ import annotations

import json
import tarfile
from typing import Any

from analyzer.devices import load
from analyzer.runtimes.pytorch.outside import device_used
from tests.paths import DATA

MIB = 2**20
TRACES = DATA / "h200" / "traces.tgz"
# Models without convolutions or recurrent layers use no cuDNN, except for its attention in half precision; two
# convolutional networks have no matrix multiplication.
WITHOUT_CUDNN = {"mnist_fc", "seed_ff", "encoder", "ckpt_mlp", "llama_tiny", "gpt2", "bert"}
WITHOUT_GEMM = {"squeezenet1_1", "unet"}


def libraries(case: dict[str, Any]) -> set[str]:
    found = set() if case["model"] in WITHOUT_GEMM else {"cublas"}
    if case["model"] not in WITHOUT_CUDNN or case.get("amp") or case.get("dtype"):
        found.add("cudnn")
    return found | {f"{family}@autograd" for family in found if case["mode"] == "train"}


def test_recorded_runs() -> None:
    """Exact in 43 runs, and within 4 MiB, two pages, in all but UNETR's, where each cuBLAS handle took 32 MiB less."""
    profile = load("h200")
    off: dict[str, int] = {}
    exact_count = 0
    with tarfile.open(TRACES) as archive:
        for number in range(70):
            file = archive.extractfile(f"truth/{number:03d}.json")
            assert file is not None
            run = json.load(file)
            reserved = run["marks"][-1][3]
            difference = (
                device_used(reserved, libraries(run["case"]), profile) - run["nvml_process"]["end"][0]
            )
            exact_count += difference == 0
            if abs(difference) > 4 * MIB:
                off[f"{run['case']['model']} {run['case']['batch']} {run['case']['mode']}"] = (
                    difference // MIB
                )
    assert off == {"unetr 1 train": 62, "unetr 2 train": 62, "unetr 1 infer": 32}
    assert exact_count == 43


def test_a_family_counts_once_unless_it_is_per_thread() -> None:
    profile = load("h200")
    once = device_used(0, {"cufft"}, profile)
    assert device_used(0, {"cufft", "cufft@autograd"}, profile) == once
    assert (
        device_used(0, {"cublas", "cublas@autograd"}, profile) == profile.context_bytes + (4 + 2 * 64) * MIB
    )
    assert device_used(7, (), profile) == profile.context_bytes + 7
    assert device_used(7, {"unknown"}, profile) == profile.context_bytes + 4 * MIB + 7
