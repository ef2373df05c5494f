"""Files a release of ONNX Runtime reads: no newer format, and no newer operator set of ONNX's own.

Source: its own sentences about a file of IR version 99 and one of operator set 99, by onnxruntime 1.20.1,
1.21.1, 1.22.1, 1.23.2, 1.24.4, 1.25.1, 1.26.0 to 1.32.0 (`core/graph/model.cc`); releases before and after
are taken for the nearest.
"""

from __future__ import annotations

from analyzer.releases import Release, written

# From this release on: the newest IR version and operator set.
_NEWEST: tuple[tuple[Release, int, int], ...] = (
    ((1, 20), 10, 21),
    ((1, 21), 10, 22),
    ((1, 23), 11, 23),
    ((1, 24), 13, 25),
    ((1, 25), 13, 26),
    ((1, 32), 14, 28),
)


def refusals(ir_version: int, opset: int, release: Release) -> tuple[str, ...]:
    """Return why a release does not read a file of this IR version and operator set; none where it does."""
    _, newest, last = next((row for row in reversed(_NEWEST) if row[0] <= release), _NEWEST[0])
    of_release = f"that ONNX Runtime {written(release)} reads"
    reasons = []
    if ir_version > newest:
        reasons.append(f"the file has IR version {ir_version}, the newest {of_release} is {newest}")
    if opset > last:
        reasons.append(f"the file has operator set {opset}, the newest {of_release} is {last}")
    return tuple(reasons)
