"""The settings of PyTorch's caching allocator, and how `PYTORCH_ALLOC_CONF` spells them.

Ranges as PyTorch 2.13 checks them (`c10/core/AllocatorConfig.cpp`): `large_segment_size_mb` above 10,
`max_split_size_mb` and `max_non_split_rounding_mb` at least `large_segment_size_mb`, the garbage collection
threshold strictly between 0 and 1, divisions powers of two. "mb" means 2^20 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from analyzer.errors import OptionError
from analyzer.releases import Release, Span

MIB = 2**20
# One division count for each power of two from 1 MiB up (`kRoundUpPowerOfTwoIntervals`).
INTERVAL_COUNT = 16
# Keys of PYTORCH_ALLOC_CONF that decide nothing this simulator models: host memory, locks, streams, graphs.
WITHOUT_EFFECT = frozenset(
    {
        "pinned_use_background_threads",
        "pinned_use_cuda_host_register",
        "pinned_use_hip_host_register",
        "pinned_num_register_threads",
        "pinned_reserve_segment_size_mb",
        "pinned_free_catch_all",
        "pinned_max_round_threshold_mb",
        "pinned_max_cached_size_mb",
        "pinned_max_power2_size_mb",
        "release_lock_on_cudamalloc",
        "release_lock_on_hipmalloc",
        "graph_capture_record_stream_reuse",
        "throw_on_cudamalloc_oom",
    }
)
Ties: TypeAlias = Literal["address", "block", "segment"]
_BY_BLOCK, _BY_SEGMENT = Span((2, 12), (2, 12)), Span(since=(2, 13))


def ties_of(release: Release) -> Ties:
    """Return how a PyTorch release chooses among equal free blocks: by block age, segment age or address."""
    return "block" if release in _BY_BLOCK else "segment" if release in _BY_SEGMENT else "address"


@dataclass(frozen=True, slots=True)
class PyTorchSettings:
    """Settings by the names PYTORCH_ALLOC_CONF uses, and the device's room.

    limit_bytes: what `cudaMalloc` has to give to this process in all; None: no end.
    device_total_bytes, per_process_memory_fraction: `torch.cuda.set_per_process_memory_fraction`; both or
        neither. roundup_power2_divisions: one count a power of two from 1 MiB (16 in all), or None for plain
        512-byte rounding.
    ties: how ties between free blocks of one size are broken, by release of PyTorch (`ties_of`): the lowest
        address, the block made first, or the lowest of the segment held longest.
    """

    max_split_size_mb: int | None = None
    max_non_split_rounding_mb: int = 20
    garbage_collection_threshold: float = 0.0
    roundup_power2_divisions: tuple[int, ...] | None = None
    expandable_segments: bool = False
    large_segment_size_mb: int = 20
    per_process_memory_fraction: float | None = None
    device_total_bytes: int | None = None
    limit_bytes: int | None = None
    backend: str = "native"
    ties: Ties = "address"

    def __post_init__(self) -> None:
        def check(holds: bool, message: str, hint: str = "") -> None:
            if not holds:
                raise OptionError(f"PyTorch allocator: {message}", hint)

        check(
            self.large_segment_size_mb > 10,
            f"large_segment_size_mb is {self.large_segment_size_mb}",
            "it must be above 10",
        )
        least = self.large_segment_size_mb
        for name in ("max_split_size_mb", "max_non_split_rounding_mb"):
            value = getattr(self, name)
            # A larger large_segment_size_mb moves the default of the rounding along with it.
            default = name == "max_non_split_rounding_mb" and value == 20
            check(
                value is None or value >= least or default,
                f"{name} is {value}",
                f"it must be at least large_segment_size_mb, {least}",
            )
        check(
            0 <= self.garbage_collection_threshold < 1,
            f"garbage_collection_threshold is {self.garbage_collection_threshold}",
            "it must lie between 0 and 1",
        )
        check(
            self.backend in ("native", "cudaMallocAsync"),
            f"backend is {self.backend!r}",
            "native or cudaMallocAsync",
        )
        divisions = self.roundup_power2_divisions
        check(
            divisions is None
            or (
                len(divisions) == INTERVAL_COUNT
                and all(part >= 0 and part & (part - 1) == 0 for part in divisions)
            ),
            f"roundup_power2_divisions is {divisions}",
            f"give {INTERVAL_COUNT} powers of two (or 0)",
        )
        fraction = self.per_process_memory_fraction
        check(
            fraction is None or 0 <= fraction <= 1,
            f"per_process_memory_fraction is {fraction}",
            "it must lie between 0 and 1",
        )

    def default_but_for(self, *names: str) -> bool:
        """Return whether all settings but the named ones are as they are without any."""
        same: dict[str, Any] = {name: getattr(self, name) for name in names}
        return self == PyTorchSettings(**same)

    @property
    def max_split_bytes(self) -> int | None:
        """Size from which blocks are never split; None: any block may be."""
        return None if self.max_split_size_mb is None else self.max_split_size_mb * MIB

    @property
    def max_non_split_rounding_bytes(self) -> int:
        """Largest excess, in bytes, of an unsplittable block over its request."""
        return self.max_non_split_rounding_mb * MIB

    @property
    def large_segment_bytes(self) -> int:
        """Size of the segments that serve requests between 1 and 10 MiB."""
        return self.large_segment_size_mb * MIB

    @property
    def allowed_bytes(self) -> int | None:
        """Reserved bytes the memory fraction allows; None without a fraction, for 1 (no limit in PyTorch), or
        if the total is unknown."""
        if self.per_process_memory_fraction in (None, 1) or self.device_total_bytes is None:
            return None
        return int((self.per_process_memory_fraction or 0) * self.device_total_bytes)


def settings_from_conf(conf: str, **others: Any) -> PyTorchSettings:
    """Settings from a PYTORCH_ALLOC_CONF string ("max_split_size_mb:128,expandable_segments:True").

    others: fields of PyTorchSettings the string cannot say (`limit_bytes`, `device_total_bytes`).
    Raises OptionError for keys and values PyTorch would refuse.
    """
    fields: dict[str, Any] = {}
    for key, value in _pairs(conf):
        try:
            match key:
                case "max_split_size_mb" | "max_non_split_rounding_mb" | "large_segment_size_mb":
                    fields[key] = int(value)
                case "garbage_collection_threshold":
                    fields[key] = float(value)
                    if not 0 < fields[key] < 1:
                        raise ValueError
                case "per_process_memory_fraction":
                    fields[key] = float(value)
                case "expandable_segments":
                    fields[key] = {"True": True, "False": False}[value]
                case "roundup_power2_divisions":
                    fields[key] = _divisions(value)
                case "backend":
                    fields[key] = {"native": "native", "cudaMallocAsync": "cudaMallocAsync"}[value]
                case _ if key in WITHOUT_EFFECT:
                    pass
                case _:
                    names = sorted(
                        set(PyTorchSettings.__dataclass_fields__)
                        - {"limit_bytes", "device_total_bytes", "ties"}
                    )
                    raise OptionError(
                        f"PYTORCH_ALLOC_CONF: unknown option {key!r}", f"known options: {', '.join(names)}"
                    )
        except (ValueError, KeyError):
            raise OptionError(
                f"PYTORCH_ALLOC_CONF: {value!r} is no value for {key}",
                "see PyTorch's notes on CUDA memory management",
            ) from None
    return replace(PyTorchSettings(**fields), **others)


def _pairs(conf: str) -> list[tuple[str, str]]:
    """Split at commas outside brackets, then at the first colon; blanks do not count."""
    pairs, depth, start = [], 0, 0
    text = "".join(conf.split()) + ","
    for at, character in enumerate(text):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            item, start = text[start:at], at + 1
            if not item:
                continue
            key, colon, value = item.partition(":")
            if not colon or not value:
                raise OptionError(f"PYTORCH_ALLOC_CONF: {item!r} has no value", "write KEY:VALUE,KEY:VALUE")
            pairs.append((key, value))
    if depth:
        raise OptionError("PYTORCH_ALLOC_CONF: a bracket is not closed")
    return pairs


def _divisions(value: str) -> tuple[int, ...]:
    """Parse `roundup_power2_divisions`: one count for all sizes, or "[256:1,512:2,>:4]", where each count is
    for its power of two in MiB; the first also for all below, ">" for all above the last named (above the
    first interval, if none is named)."""
    if not value.startswith("["):
        count = int(value)
        if count <= 0:
            raise ValueError
        return (count,) * INTERVAL_COUNT
    divisions = [0] * INTERVAL_COUNT
    last: int | None = None
    for part in value.strip("[]").split(","):
        bound, _, count_text = part.partition(":")
        count = int(count_text)
        if bound == ">":
            start = 1 if last is None else last + 1
            divisions[start:] = [count] * (INTERVAL_COUNT - start)
            continue
        size = int(bound)
        if size <= 0 or size & (size - 1):
            raise ValueError
        index = min(size.bit_length() - 1, INTERVAL_COUNT - 1)
        if last is None:
            divisions[:index] = [count] * index
        divisions[index] = count
        last = index
    return tuple(divisions)


def as_divisions(
    value: int | str | Mapping[int | str, int] | tuple[int, ...] | None,
) -> tuple[int, ...] | None:
    """Divisions however a caller writes them: a count, PYTORCH_ALLOC_CONF's text, or all 16."""
    if value is None or isinstance(value, tuple):
        return value
    if isinstance(value, Mapping):
        value = "[" + ",".join(f"{bound}:{count}" for bound, count in value.items()) + "]"
    return _divisions(str(value))
