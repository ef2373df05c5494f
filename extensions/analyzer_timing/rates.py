"""A GPU's peak rates: every time is a share of these figures.

1. Peaks are the dense figures of the vendor's data sheet (no sparsity), in operations a second: `tensor` by
   type on tensor cores, `vector` for float32 on ordinary ones. `bandwidth` is of device memory, bytes a
   second; `cache_bytes` the L2 cache.
2. A share of a peak was measured on the H100 (`table.py`), and on the H200 beside it. On another GPU the same
   share of its own peaks is taken, over its own multiprocessors: labelled so, and with a wider range.

Source: `analyzer/devices/rates.json`, which names each document.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from analyzer.devices import DeviceProfile, load
from analyzer.errors import OptionError

_FILE = resources.files("analyzer.devices") / "rates.json"
MEASURED = "h100"
# GPUs on which the table's calls were measured too (`beside.py`).
BESIDE = ("h200",)
# Bytes a second that the L2 cache of the H100 gave a copy within it (`clone` of 4 to 8 MiB in the table's
# measurements), beside
# its memory's 3.35 TB/s: the ratio is taken for all.
_CACHE_RATIO = 2.0
_TENSOR = {"bfloat16": "half", "float16": "half", "tf32": "tf32", "float32": "vector"}


@dataclass(frozen=True, slots=True)
class Rates:
    """One GPU. half, tf32, vector: operations a second (tf32 that of `vector` where the tensor cores
    have none); bandwidth: bytes a second; multiprocessors, cache_bytes: counts. measured: the table's calls
    were measured on this GPU. beside: its name, if the table is another's: figures are then that one's, but
    the cache's, and `beside.py` has what its calls take beside them; "" for others."""

    half: float
    tf32: float
    vector: float
    bandwidth: float
    multiprocessors: int
    cache_bytes: int
    measured: bool = False
    beside: str = ""

    def product(self, dtype: str) -> float:
        """Return operations a second of a product of this type ("tf32": rounded float32)."""
        return float(getattr(self, _TENSOR.get(dtype, "vector")))

    @property
    def cache_bandwidth(self) -> float:
        """Bytes a second of the L2 cache."""
        return self.bandwidth * _CACHE_RATIO


@cache
def _known() -> dict[str, dict[str, Any]]:
    content: dict[str, dict[str, Any]] = json.loads(_FILE.read_text(encoding="utf-8"))["gpus"]
    return content


def rates_of(profile: DeviceProfile) -> Rates | None:
    """Return the rates of a profile's GPU; None without data sheet figures (a size, a GPU's slice)."""
    name = profile.name
    if name not in _known() and profile.nvml_names:  # a calibrated profile has a name of its own
        with suppress(OptionError):
            name = load(profile.nvml_names[0]).name
    rates = _known().get(MEASURED if name in BESIDE else name)
    if rates is None:
        return None
    return Rates(
        half=rates["half"] * 1e12,
        tf32=rates["tf32"] * 1e12,
        vector=rates["vector"] * 1e12,
        bandwidth=rates["bandwidth"] * 1e9,
        multiprocessors=profile.sm_count,
        cache_bytes=int(profile.cudnn_device.get("l2CacheSize", 0)) or 4 << 20,
        measured=name == MEASURED or name in BESIDE,
        beside=name if name in BESIDE else "",
    )
