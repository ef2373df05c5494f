"""Finds and checks device profiles.

1. `load` takes a known name ("rtx4090"; case, spaces, dashes and underscores do not matter, nor do "NVIDIA",
   "GeForce", "Tesla" before it and "RTX" left out), NVML's name of the GPU, a slice of one
   ("a100-80gb:2g.20gb", `mig.py`) or the path of a JSON file.
2. `resolve` also takes a size ("24GiB" or bytes): the h200 profile's behaviour with that capacity; "24GB" is
   what is written on a card (`sizes.as_on_the_box`). Without anything it takes this machine's GPU if NVML
   names a known one (`nvml.py`), else h200. Its note says what was taken and why, also of a name that cards
   of two sizes share ("a100").
3. Every file is checked field by field, so that a hand-written or calibrated profile with a mistake is
   refused with the name of the field. `schema.json` states the same rules for editors; a test compares the
   two.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from analyzer import files
from analyzer.devices import nvml
from analyzer.devices.mig import slice_of
from analyzer.devices.profile import DeviceProfile
from analyzer.devices.sizes import as_on_the_box, is_size, parse_size
from analyzer.devices.topology import Topology
from analyzer.errors import OptionError, did_you_mean
from analyzer.releases import RECORDED, RELEASE, parse
from analyzer.tables import by_name

PROFILES = Path(__file__).parent / "profiles"
DEFAULT = "h200"
# Other names of GPUs, as `_plain` has them.
_NAMES_OF = {
    "v100": "v10016gb v10016g",
    "v100-32gb": "v10032g",
    "a100-40gb": "a100 a10040g",
    "a100-80gb": "a10080g",
    "h100": "h100sxm h100sxm5 h10080gb",
    "gh200": "h10096gb gh20096gb",
    "a4000": "rtxa4000",
    "a5000": "rtxa5000",
    "a6000": "rtxa6000",
    "rtx6000-ada": "rtx6000ada",
    "rtx4060ti-16gb": "rtx4060ti",
    "rtx5060ti-16gb": "rtx5060ti",
    "titan-rtx": "titanrtx",
}
_OTHER_NAMES = by_name(_NAMES_OF)
_MAKERS = re.compile("^(nvidia|geforce|tesla|quadro)+")
_AMD = re.compile(r"amd|instinct|radeon|mi\d|rx\d")
# The suffix of a name that cards of two sizes share, as `_plain` has it.
_MEMORY = re.compile(r"\d+gb")
# How many names an unknown one is answered with, and how like it they are at least (`difflib`'s ratio).
_NEAREST = 5
_LIKENESS = 0.4
# Kinds of source of a figure: this GPU, a public document, its figures given to a library, measurements by
# others, another GPU.
KINDS = ("measured", "specified", "recorded", "published", "assumed")
# One part in this many of an unmeasured context may be off, where its profile does not say.
_DOUBT_DIVISOR = 4
_LARGEST_BYTES = 1 << 20


def names() -> tuple[str, ...]:
    """Return the names of the shipped profiles; files other than .json are their data."""
    return tuple(sorted(path.stem for path in PROFILES.glob("*.json")))


def by_memory() -> list[str]:
    """Return the names of the shipped profiles, that with the least memory first."""
    return sorted(names(), key=lambda name: load(name).usable_bytes)


def load(name_or_path: str | Path) -> DeviceProfile:
    """Load a profile by name or JSON file. Raises OptionError for an unknown name or faulty file."""
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(".json") or os.sep in text:
        return _read_profile(Path(name_or_path))
    gpu, sliced, part = text.partition(":")
    profile_name = _profile_named_by(gpu)
    if profile_name is None:
        if several := _several(text):
            raise OptionError(f"{text!r} is no single device", several)
        raise OptionError(
            f"unknown device {text!r}",
            f'{_nearest_of(gpu)}all: analyze devices; or give a size such as "24GiB", or a profile\'s path',
        )
    return slice_of(_known(profile_name), part) if sliced else _known(profile_name)


def _names_by_text() -> dict[str, str]:
    """Return the name of each profile by every text for it, as `_plain` has it."""
    return {_plain(name): name for name in names()} | _OTHER_NAMES


def _nearest_of(text: str) -> str:
    """Return the beginning of a hint: the likeliest name, and what else is near it; "" if nothing is."""
    plain = _MAKERS.sub("", _plain(text))
    if _AMD.match(plain):
        return "AMD's GPUs are not modelled; "
    names_by_text = _names_by_text()
    close = difflib.get_close_matches(plain, names_by_text, n=3 * _NEAREST, cutoff=_LIKENESS)
    near = list(dict.fromkeys(names_by_text[name] for name in close))[:_NEAREST]
    if not near:
        return ""
    guess = did_you_mean(plain, names_by_text)
    others = ", ".join(near[1:] if guess else near)
    return (f"did you mean {near[0]!r}? " if guess else "") + (f"near it: {others}; " if others else "")


def named(name_or_path: str | Path) -> tuple[DeviceProfile, str]:
    """Load a profile as `load` does; return it and a note on a name that several cards share, else ""."""
    profile = load(name_or_path)
    return profile, _chosen(str(name_or_path), profile)


def _chosen(text: str, profile: DeviceProfile) -> str:
    """Return which GPU was taken where a name is that of several; "" where it is one's."""
    stem = _MAKERS.sub("", _plain(text))
    several = [name for name in names() if _plain(name).startswith(stem) and name != stem]
    of_memory = [name for name in several if _MEMORY.fullmatch(_plain(name).removeprefix(stem))]
    if stem not in _OTHER_NAMES or len(of_memory) < 2 or profile.name not in of_memory:
        return ""
    others = " and ".join(name for name in of_memory if name != profile.name)
    return f"{profile.name} is taken for {text!r}; there is {others}, too"


def _several(text: str) -> str:
    """Return the command for several devices if the name means that, else ""."""
    if _plain(text) in ("all", "any", "*"):
        return (
            "analyze fit TARGET --all-devices finds the largest batch on each; analyze grid takes devices:"
            " [...]"
        )
    if "," in text:
        return (
            f"analyze fit TARGET --device {text} finds the largest batch on each; analyze grid takes devices:"
            f" [{text}]"
        )
    return ""


def resolve(device: str | int | Path | None = None) -> tuple[DeviceProfile, str]:
    """Return a profile and a note on why this one ("" where the caller named one GPU). A size stands for the
    H200 with that capacity; without anything this machine's GPU is taken if its profile is known, else the
    h200. Raises OptionError.
    """
    if device is None:
        return _this_machine()
    if isinstance(device, int):
        if isinstance(device, bool) or device < 1:
            raise OptionError(f"{device} bytes is no device's memory", 'write a size such as "24GiB"')
        return _profile_of_size(f"{device} bytes", device)
    if isinstance(device, str) and is_size(device) and _profile_named_by(device) is None:
        return _profile_of_size(device.strip(), parse_size(device))
    return named(device)


def capacity_of(device: str | int | Path) -> int:
    """Return the bytes of a known device's memory for processes, or of a size."""
    return resolve(device)[0].usable_bytes


def _profile_of_size(text: str, nbytes: int) -> tuple[DeviceProfile, str]:
    """Return a profile with this much memory, and a note on how the size was read."""
    profile = dataclasses.replace(load(DEFAULT).of_memory(nbytes), name=text, nvml_names=())
    suggestion = ""
    if (gib := as_on_the_box(text)) is not None:
        least = gib - kept_at_most(gib)
        profile = dataclasses.replace(
            profile, capacity_bytes=least, capacity_range_bytes=(least, gib), listed_bytes=gib
        )
        suggestion = f", as its maker counts ({gib >> 30} GiB, of which CUDA has some {least / 2**30:.1f})"
    return (
        profile,
        f"a GPU of {text}{suggestion} that behaves like {DEFAULT} in everything else; a GPU's name"
        " instead (analyze devices) changes cuDNN's workspaces, the context and cuBLAS's",
    )


def stands_in(device: str | int | Path | None) -> bool:
    """Return whether `resolve` takes the default: no device is named and no known one is here."""
    return device is None and _profile_named(nvml.name()) is None


def _context_range(content: Mapping[str, Any]) -> tuple[int, int]:
    """Return the least and most bytes of the context: the profile's range, the measured figure, or an
    unmeasured one +- a quarter."""
    nbytes = content["context_bytes"]
    if "context_range_bytes" in content:
        least, most = content["context_range_bytes"]
        if not least <= nbytes <= most:
            raise OptionError(
                "'context_range_bytes' does not hold 'context_bytes'", "it must be [least, most]"
            )
        return least, most
    off = 0 if content.get("measured") else nbytes // _DOUBT_DIVISOR
    return nbytes - off, nbytes + off


def kept_at_most(listed_bytes: int) -> int:
    """Return the bytes the driver may keep of the memory nvidia-smi lists, where CUDA's figure was not read;
    no GPU read (`benchmarks/gpu_profiles.py`) keeps more."""
    return max(listed_bytes // 50, min(560 << 20, listed_bytes // 10))


def _capacity_range(content: Mapping[str, Any]) -> tuple[int, int]:
    """Return the least and most bytes of capacity: the profile's range, else the figure alone; if
    nvidia-smi's size is unknown too, the figure may be that size."""
    nbytes = content["capacity_bytes"]
    if "capacity_range_bytes" not in content:
        return (nbytes if "listed_bytes" in content else max(nbytes - kept_at_most(nbytes), 1)), nbytes
    least, most = content["capacity_range_bytes"]
    if not least <= nbytes <= most:
        raise OptionError("'capacity_range_bytes' does not hold 'capacity_bytes'", "it must be [least, most]")
    return least, most


def _this_machine() -> tuple[DeviceProfile, str]:
    """Return this machine's profile, or the default one, and a note on the choice."""
    name = nvml.name()
    profile = _profile_named(name)
    if profile is not None:
        return profile, f"{profile.name}, this machine's GPU ({name})"
    if name is None:
        return load(DEFAULT), f"{DEFAULT}, because this machine has no NVIDIA GPU that NVML can see"
    return load(DEFAULT), f"{DEFAULT}, because no profile is known for this machine's GPU ({name})"


def _profile_named(nvml_name: str | None) -> DeviceProfile | None:
    """Return the profile of the GPU that NVML calls so."""
    if nvml_name is None:
        return None
    return next((profile for profile in map(load, names()) if nvml_name in profile.nvml_names), None)


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character not in " -_")


def _profile_named_by(text: str) -> str | None:
    """Return the profile of a GPU by any of its names; None where there is none."""
    plain = _plain(text)
    names_by_text = _names_by_text()
    short = _MAKERS.sub("", plain)
    profile_name = names_by_text.get(plain) or names_by_text.get(short) or names_by_text.get(f"rtx{short}")
    return profile_name or _by_nvml_name().get(plain)


@cache
def _by_nvml_name() -> dict[str, str]:
    return {_plain(nvml_name): name for name in names() for nvml_name in _known(name).nvml_names}


@cache
def _known(name: str) -> DeviceProfile:
    return _read_profile(PROFILES / f"{name}.json")


def _read_profile(path: Path) -> DeviceProfile:
    """Return the profile in a JSON file. Raises OptionError, which names the file."""
    try:
        content = files.read_json(path, _LARGEST_BYTES)
    except files.UnreadableError as error:
        raise OptionError(
            f"cannot read the device profile {path}: {error}", f"known devices: {', '.join(names())}"
        ) from None
    try:
        return from_dict(content)
    except OptionError as error:
        raise OptionError(f"device profile {path}: {error.message}", error.hint) from None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) and part for part in value)


def _is_mapping(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a check that a value is a mapping whose values all pass `fits`."""
    return lambda value: isinstance(value, dict) and all(fits(part) for part in value.values())


def _is_topologies(value: Any) -> bool:
    """Return whether a JSON value is a list of `Topology`, each with all its fields and at least one rank."""
    names = {entry.name: entry.type for entry in dataclasses.fields(Topology)}
    return isinstance(value, list) and all(
        isinstance(part, dict)
        and set(part) == set(names)
        and all(
            isinstance(part[name], str) if kind == "str" else _is_count(part[name])
            for name, kind in names.items()
        )
        and part["ranks"] > 0
        for part in value
    )


def _is_release(name: str, text: Any) -> bool:
    return name in RECORDED and isinstance(text, str) and RELEASE.fullmatch(text) is not None


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_count, value))


# field -> (what it must be, in words; the check).
CHECKS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("a name", lambda value: isinstance(value, str) and value != ""),
    "capacity_bytes": ("a number of bytes above 0", lambda value: _is_count(value) and value > 0),
    "capacity_range_bytes": ("[least, most] bytes, with capacity_bytes between them", _is_pair),
    "listed_bytes": ("a number of bytes above 0", lambda value: _is_count(value) and value > 0),
    "driver_bytes": ("a number of bytes", _is_count),
    "compute_capability": ("[major, minor]", _is_pair),
    "sm_count": ("a count above 0", lambda value: _is_count(value) and value > 0),
    "max_threads_per_sm": ("a count above 0", lambda value: _is_count(value) and value > 0),
    "context_bytes": ("a number of bytes", _is_count),
    "context_range_bytes": ("[least, most] bytes, with context_bytes between them", _is_pair),
    "first_kernel_bytes": ("a number of bytes", _is_count),
    "modules_bytes": ("an object of library family to bytes", _is_mapping(_is_count)),
    "modules_off_bytes": ("an object of library family to bytes", _is_mapping(_is_count)),
    "cublas_workspace_bytes": ("a number of bytes", _is_count),
    "cublaslt_workspace_bytes": ("a number of bytes", _is_count),
    "sources": (
        "an object of figure to its source",
        _is_mapping(lambda value: isinstance(value, str) and value.startswith(KINDS)),
    ),
    "measured": ("true or false", lambda value: isinstance(value, bool)),
    "per_thread_modules": ("a list of library families", _is_names),
    "nvml_names": ("a list of names", _is_names),
    "nccl": (
        f"a list of objects with {', '.join(entry.name for entry in dataclasses.fields(Topology))}",
        _is_topologies,
    ),
    "releases": (
        f'an object of {", ".join(RECORDED)} to a release such as "2.11"',
        lambda value: (
            isinstance(value, dict) and all(_is_release(name, text) for name, text in value.items())
        ),
    ),
    "host_factor": (
        "a number above 0",
        lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0,
    ),
    "cudnn_device": (
        "an object of cuDNN's field names to their values",
        lambda value: isinstance(value, dict) and isinstance(value.get("deviceVer"), int),
    ),
}
OPTIONAL = frozenset(
    {
        "capacity_range_bytes",
        "listed_bytes",
        "driver_bytes",
        "context_range_bytes",
        "first_kernel_bytes",
        "modules_off_bytes",
        "measured",
        "per_thread_modules",
        "nvml_names",
        "nccl",
        "releases",
        "host_factor",
        "cudnn_device",
    }
)
# Profiles written before cuDNN was asked name files of recorded choices there, which nobody reads any more.
_LEFT = "data"


def from_dict(content: Any) -> DeviceProfile:
    """Return a profile from its JSON content. Raises OptionError naming the field, or for an unknown compute
    capability."""
    if not isinstance(content, dict):
        raise OptionError("it must be a JSON object", f"fields: {', '.join(CHECKS)}")
    content = {name: value for name, value in content.items() if name != _LEFT}
    for name in content:
        if name not in CHECKS:
            raise OptionError(
                f"unknown field {name!r}", f"{did_you_mean(name, CHECKS)}fields: {', '.join(CHECKS)}"
            )
    for name, (words, holds) in CHECKS.items():
        if name not in content:
            if name not in OPTIONAL:
                raise OptionError(f"the field {name!r} is missing", f"it must be {words}")
        elif not holds(content[name]):
            hint = f"it must be {words}"
            if name == "sources":
                hint += ', which begins with "measured", "specified", "recorded", "published" or "assumed"'
            raise OptionError(f"the field {name!r} is {content[name]!r}", hint)
    for name in content["sources"]:
        if name not in CHECKS and name != _LEFT:
            raise OptionError(
                f"'sources' speaks of an unknown field {name!r}", f"fields: {', '.join(CHECKS)}"
            )
    fields: Mapping[str, Any] = {
        **content,
        "compute_capability": tuple(content["compute_capability"]),
        "capacity_range_bytes": _capacity_range(content),
        "context_range_bytes": _context_range(content),
        "per_thread_modules": tuple(content.get("per_thread_modules", ())),
        "nvml_names": tuple(content.get("nvml_names", ())),
        "nccl": tuple(Topology(**part) for part in content.get("nccl", ())),
        "releases": {**RECORDED, **{name: parse(text) for name, text in content.get("releases", {}).items()}},
    }
    profile = DeviceProfile(**fields)
    _ = profile.architecture  # which refuses a compute capability that is not known
    return profile
