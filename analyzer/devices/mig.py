"""Slices of a GPU (MIG): "a100-80gb:2g.20gb" is two of the seven slices of an A100, with a quarter of its
memory.

1. A slice's share of the memory and of the multiprocessors are those of NVIDIA's tables. The number behind
   the dot, its memory in GB as NVIDIA rounds it, tells a slice of one seventh with a quarter of the memory
   ("1g.20gb") from the one with an eighth.
2. NVML lists less than the share, and CUDA has what is listed: 9,728 MiB of an A100's eighth in both; 2 %
   less where it is assumed to be in doubt. Of the A100s what it lists is known: 4,864, 9,856, 19,968 and
   40,192 MiB of 40 GB, 9,728, 19,968, 40,192 and 80,384 of 80 GB (a newer driver has 9,856 for the first). Of
   the others, taken from that: a twentieth less of an eighth, a fortieth of a quarter, a fiftieth of a half,
   3/160 of the whole.
3. Everything else is the whole GPU's, less what its context holds for other slices' threads (`contexts.py`,
   rule 1), and assumed.

Source: NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles" (fractions); `MemorySizeMB` and
`MultiprocessorCount` of NVML's GPU instance profiles in NVIDIA/go-nvml at 2f9e261, pkg/nvml/mock/gpus
(a100.go, a30.go: 14 multiprocessors a slice; h100.go and h200.go: 16; b200.go: 18). Its sizes for an A30
(5,836, 11,672 and 23,344 MiB) and the round numbers for H100 and later are not used: no other source has
them. Not modelled: slices with media extensions; those of RTX PRO GPUs, whose multiprocessors are unknown.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from fractions import Fraction

from analyzer.devices.contexts import THREAD_BYTES
from analyzer.devices.profile import DeviceProfile
from analyzer.errors import OptionError, did_you_mean

_MIB = 1 << 20
_EIGHTHS = {
    "1g": Fraction(1, 8),
    "2g": Fraction(1, 4),
    "3g": Fraction(1, 2),
    "4g": Fraction(1, 2),
    "7g": Fraction(1),
}
_HELD_BACK = {
    Fraction(1, 8): Fraction(1, 20),
    Fraction(1, 4): Fraction(1, 40),
    Fraction(1, 2): Fraction(1, 50),
    Fraction(1): Fraction(3, 160),
}
# Sizes NVML lists, MiB.
_LISTED = {
    "a100-40gb": {Fraction(1, 8): 4864, Fraction(1, 4): 9856, Fraction(1, 2): 19968, Fraction(1): 40192},
    "a100-80gb": {Fraction(1, 8): 9728, Fraction(1, 4): 19968, Fraction(1, 2): 40192, Fraction(1): 80384},
}
_QUARTERS = {"1g": Fraction(1, 4), "2g": Fraction(1, 2), "4g": Fraction(1)}
# GPU -> (multiprocessors of one slice, slice -> share of the memory).
_SLICED = {
    "a30": (14, _QUARTERS),
    **dict.fromkeys(("a100-40gb", "a100-80gb"), (14, _EIGHTHS)),
    **dict.fromkeys(("h100", "h100-pcie", "h100-nvl", "gh200", "h200"), (16, _EIGHTHS)),
    **dict.fromkeys(("b200", "b300"), (18, _EIGHTHS)),
}


def slice_of(profile: DeviceProfile, slice_name: str) -> DeviceProfile:
    """Return the profile of a slice named "2g.20gb" or "2g". Raises OptionError for an unknown one."""
    sms, shares = _SLICED.get(profile.name, (0, {}))
    name, _, memory = slice_name.lower().partition(".")
    if not shares:
        raise OptionError(f"{profile.name} has no slices", f"GPUs with slices: {', '.join(sorted(_SLICED))}")
    if name not in shares:
        raise OptionError(
            f"{profile.name} has no slice {slice_name!r}",
            f"{did_you_mean(name, shares)}its slices: {', '.join(shares)}",
        )
    share = _share(profile, name, memory, shares)
    listed = int(profile.listed_bytes * share * (1 - _HELD_BACK[share])) // _MIB
    nbytes = _LISTED.get(profile.name, {}).get(share, listed) * _MIB
    count = min(int(name[:-1]) * sms, profile.sm_count)
    others = (profile.sm_count - count) * profile.max_threads_per_sm * THREAD_BYTES
    least, most = profile.context_range_bytes
    quarter = (profile.context_bytes - others) // 4
    kept = {figure: source for figure, source in profile.sources.items() if not source.startswith("measured")}
    return dataclasses.replace(
        profile,
        name=f"{profile.name}:{slice_name}",
        nvml_names=(),
        measured=False,
        capacity_bytes=nbytes,
        capacity_range_bytes=(nbytes - nbytes // 50, nbytes),
        listed_bytes=nbytes,
        sm_count=count,
        context_bytes=profile.context_bytes - others,
        context_range_bytes=(max(min(least - others, profile.context_bytes - others - quarter), 0), most),
        sources={
            **dict.fromkeys(profile.sources, f"assumed from {profile.name}"),
            **kept,
            "capacity_bytes": (
                "specified: NVIDIA Multi-Instance GPU User Guide, its share of the memory; CUDA has what NVML"
                " lists"
            ),
            "capacity_range_bytes": "assumed: 2 % less",
            "sm_count": "specified: NVIDIA Multi-Instance GPU User Guide, its share of the multiprocessors",
            "context_bytes": f"assumed from {profile.name}, with fewer threads",
        },
    )


def _share(profile: DeviceProfile, name: str, memory: str, shares: Mapping[str, Fraction]) -> Fraction:
    """Return the slice's share of the memory: "1g" with more GB than an eighth has a quarter."""
    if name == "1g" and shares is _EIGHTHS and (size := re.match(r"\d+", memory)):
        eighth = profile.listed_bytes / 8 / 1e9
        return Fraction(1, 4) if int(size[0]) > 1.5 * eighth else Fraction(1, 8)
    return shares[name]
