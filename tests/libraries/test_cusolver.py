"""cuSOLVER's work areas: formulas beside what the library said on an H100."""

from __future__ import annotations

import collections
import gzip
import json

from analyzer.libraries.cusolver import ELEMENTS, ROUTINES
from tests.paths import DATA

SIZES = DATA / "h100" / "solver_sizes.json.gz"
GEEV_WITHIN_BYTES = 2048
LARGEST_JACOBI = 2048


def test_every_size_that_cusolver_gave_to_the_byte() -> None:
    """Seventeen routines, four types: bytes of the newer interface, elements of the older one."""
    rows = json.loads(gzip.decompress(SIZES.read_bytes()))["rows"]
    asked = collections.Counter[str]()
    for name, letter, *numbers in rows:
        if name not in ROUTINES or (name == "syevj" and numbers[2] > LARGEST_JACOBI):
            continue
        element = ELEMENTS[letter]
        newer = name.startswith("X")
        status, size = numbers[-3 if newer else -2 :][:2]
        assert status == 0
        of = numbers[: -3 if newer else -2]
        if name == "ormqr":
            del of[1]  # transposed or not takes the same
        nbytes, wanted = ROUTINES[name](element, *of), size * (1 if newer else element.nbytes)
        assert abs(nbytes - wanted) <= (GEEV_WITHIN_BYTES if name == "Xgeev" else 0), (name, letter, of)
        asked[name] += 1
    assert asked.keys() == ROUTINES.keys() and min(asked.values()) > 100
