"""The pictures of the documentation, drawn by the commands themselves: `python docs/pictures.py`."""

from __future__ import annotations

import sys
from pathlib import Path

from analyzer.cli import main

PICTURES = Path(__file__).parent / "pictures"
STEP = ["--mode", "train", "--optimizer", "adam", "--device", "rtx4090"]


def draw() -> None:
    """Write every picture anew."""
    quiet = ["-q", "-o", "/dev/null"]
    bars = str(PICTURES / "resnet50.svg")
    codes = [
        main(["models/resnet50.py", "--batch", "64", *STEP, "--plot", bars, *quiet]),
        main(
            [
                "sweep",
                "models/cnn.py",
                "--batch",
                "1:128",
                *STEP,
                "--format",
                "svg",
                "-o",
                str(PICTURES / "batch.svg"),
            ]
        ),
    ]
    assert not any(codes), codes


if __name__ == "__main__":
    sys.exit(draw())
