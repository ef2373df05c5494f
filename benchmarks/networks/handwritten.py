"""Networks that people write by hand, from papers and their best-known implementations: no package lists them.

`shapes.py handwritten` traces them at usual sizes: generators and critics, autoencoders, diffusion U-Nets, detectors,
segmentation, super-resolution, small classifiers (`handwritten_images.py`), video, sound, series and control
(`handwritten_others.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.networks.handwritten_images import IMAGES
from benchmarks.networks.handwritten_others import OTHERS
from benchmarks.networks.handwritten_parts import Made


def handwritten() -> Iterator[Made]:
    """(name, how it is made, the shape of one sample)."""
    for kind in (*IMAGES, *OTHERS):
        yield from kind()
