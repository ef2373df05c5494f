"""Packages without code for a GPU, and the release that has it."""

from __future__ import annotations

import pytest

from analyzer.cli import main
from analyzer.devices import loader
from analyzer.devices.builds import BUILDS, missing_code
from tests.paths import MODELS


@pytest.mark.parametrize(
    ("package", "release", "device", "instead"),
    [
        ("onnxruntime", "1.31", "v100", "onnxruntime-gpu==1.26"),
        ("onnxruntime", "1.26", "v100", None),
        ("onnxruntime", "1.20", "h100", None),  # by the PTX of 8.0
        ("onnxruntime", "1.28", "rtx5090", None),
        ("onnxruntime", "1.31", "b300", "onnxruntime-gpu==1.28"),  # code for 9.0 and 12.0 is none for 10.3
        ("onnxruntime", "1.21", "p100", None),  # not looked into
        ("torch", "2.11", "t4", None),
        ("torch", "2.11", "b300", None),
        ("torch", "2.13", "p100", "cu126"),
        ("torch", "2.7", "p100", None),
        ("cuda", "13.0", "p100", None),
    ],
)
def test_a_package_without_code(package: str, release: str, device: str, instead: str | None) -> None:
    sentence = missing_code({package: release}, loader.load(device))
    assert (sentence is None) == (instead is None) and (instead or "") in (sentence or "")


def test_every_card_has_a_build_that_runs_there() -> None:
    for name in loader.names():
        capability = loader.load(name).compute_capability
        assert any(build.runs_on(capability) for build in BUILDS["onnxruntime"])


def test_it_stands_below_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(MODELS / "cnn.onnx"), "--batch", "2", "--device", "v100", "-q"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("fits: ") and "ONNX Runtime 1.31 has no code for v100" in lines[1]
