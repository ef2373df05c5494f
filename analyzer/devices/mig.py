"""Slices of a GPU (MIG): "a100-80gb:2g.20gb" is two of the seven slices of an A100, with a quarter of its memory.

1. A slice's share of the memory and of the multiprocessors are those of NVIDIA's tables; the number behind the dot, its memory in GB
   as NVIDIA rounds it, is not read.
2. nvidia-smi lists some of the share's memory less: a twentieth of an eighth, a fortieth of a quarter, a fiftieth of a half (A100 with
   80 GB: 9,728 MiB, 19,968 and 40,192; of 40 GB an eighth is 4,864).
3. Everything else is the whole GPU's, its stacks less (`benchmarks/gpu_profiles.py`, rule 2), and assumed.

Source: NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles". Not modelled: slices with media extensions, 1g.20gb.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction

from analyzer.devices.profile import DeviceProfile
from analyzer.errors import OptionError, did_you_mean

_MIB = 1 << 20
_STACK_BYTES = 1024
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
}
_QUARTERS = {"1g": Fraction(1, 4), "2g": Fraction(1, 2), "4g": Fraction(1)}
# GPU -> (multiprocessors of one slice, slice -> share of the memory).
_SLICED = {
    "a30": (14, _QUARTERS),
    **dict.fromkeys(("a100-40gb", "a100-80gb"), (14, _EIGHTHS)),
    **dict.fromkeys(("h100", "h100-pcie", "h100-nvl", "gh200", "h200"), (16, _EIGHTHS)),
    **dict.fromkeys(("b200", "b300"), (18, _EIGHTHS)),
}


def slice_of(profile: DeviceProfile, said: str) -> DeviceProfile:
    """The profile of a slice, `said`: "2g.20gb" or "2g". Raises OptionError where the GPU has none such."""
    sms, shares = _SLICED.get(profile.name, (0, {}))
    name = said.lower().partition(".")[0]
    if not shares:
        raise OptionError(f"{profile.name} has no slices", f"GPUs with slices: {', '.join(sorted(_SLICED))}")
    if name not in shares:
        raise OptionError(
            f"{profile.name} has no slice {said!r}",
            f"{did_you_mean(name, shares)}its slices: {', '.join(shares)}",
        )
    share = shares[name]
    count = min(int(name[:-1]) * sms, profile.sm_count)
    stacks = (profile.sm_count - count) * profile.max_threads_per_sm * _STACK_BYTES
    least, most = profile.context_range_bytes
    quarter = (profile.context_bytes - stacks) // 4
    kept = {figure: source for figure, source in profile.sources.items() if not source.startswith("measured")}
    return dataclasses.replace(
        profile,
        name=f"{profile.name}:{said}",
        nvml_names=(),
        measured=False,
        capacity_bytes=int(profile.capacity_bytes * share * (1 - _HELD_BACK.get(share, 0))) // _MIB * _MIB,
        sm_count=count,
        context_bytes=profile.context_bytes - stacks,
        context_range_bytes=(max(min(least - stacks, profile.context_bytes - stacks - quarter), 0), most),
        sources={
            **dict.fromkeys(profile.sources, f"assumed from {profile.name}"),
            **kept,
            "capacity_bytes": "specified: NVIDIA Multi-Instance GPU User Guide, its share of the memory",
            "sm_count": "specified: NVIDIA Multi-Instance GPU User Guide, its share of the multiprocessors",
            "context_bytes": f"assumed from {profile.name}, with fewer stacks",
        },
    )
