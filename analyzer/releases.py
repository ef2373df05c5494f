"""Releases of frameworks and libraries: the one each figure applies to, and the modelled ones.

1. A release is its first two numbers, (2, 11) for torch 2.11.0+cu130: changes by patch releases are not
   modelled.
2. Rules of some releases only are marked with `since` and `until`, both included and both optional, and in
   no other way: scratch parts and rules (`runtimes/pytorch/scratch/script.py`), replacements in PyTorch
   (`capture/pytorch/patches.py`), ONNX Runtime's rewrites (`runtimes/onnxruntime/rewrite`). `Span` is such a
   pair.
3. `MODELLED` has the releases whose differences are written down. A newer or an older one is answered as the
   nearest of them, and a note says so.
4. The release of a figure: the requested one (`--release torch=2.8`); else the installed one, if it could
   run the program; else that of the device's figures (`DeviceProfile.releases`). A build of torch for the
   CPU runs nothing on a GPU, so its release does not matter. `Runtime.with_releases` puts it into the
   profile, which the rules read.
5. Python code, autograd and decompositions are those of the installed torch, for any requested release: the
   program runs under it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from analyzer.errors import OptionError, did_you_mean

Release: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Span:
    """Releases from `since` to `until`, both included; None: no end there."""

    since: Release | None = None
    until: Release | None = None

    def __contains__(self, release: Release) -> bool:
        return (self.since is None or self.since <= release) and (self.until is None or release <= self.until)

    def __str__(self) -> str:
        """ "2.9 to 2.11", "up to 2.8", "since 2.15", "2.14", "" for all."""
        since, until = (written(end) if end else "" for end in (self.since, self.until))
        if since and until:
            return since if since == until else f"{since} to {until}"
        return f"since {since}" if since else f"up to {until}" if until else ""


ALWAYS = Span()
# torch: what PyTorch's own binaries ask their allocator for, 2.6 to 2.15 (`benchmarks/releases`). ONNX
# Runtime: its CPU provider's own figures (`docs/evidence/RELEASES.md`). The libraries have tables, measured
# with one release each.
MODELLED: Mapping[str, Span] = {
    "torch": Span((2, 6), (2, 15)),
    "onnxruntime": Span((1, 24), (1, 32)),
    "paddle": Span((3, 3), (3, 3)),
    "tensorflow": Span((2, 13), (2, 13)),
    "cuda": Span((13, 0), (13, 0)),
    "cudnn": Span((9, 19), (9, 19)),
}
# Of the figures that were measured on GPUs (`devices/profiles/h200.json`), and of the sources the rules are
# read from.
RECORDED: Mapping[str, Release] = {
    "torch": (2, 11),
    "onnxruntime": (1, 31),
    "paddle": (3, 3),
    "tensorflow": (2, 13),
    "cuda": (13, 0),
    "cudnn": (9, 19),
}
# Those a user may ask for: they have more than one modelled release.
ASKABLE = tuple(name for name, span in MODELLED.items() if span.since != span.until)
DISPLAY_NAMES = {
    "torch": "torch",
    "onnxruntime": "ONNX Runtime",
    "paddle": "PaddlePaddle",
    "tensorflow": "TensorFlow",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
}
# The packages each comes in, what runs on a GPU first.
_PACKAGES = {
    "torch": ("torch",),
    "onnxruntime": ("onnxruntime-gpu", "onnxruntime"),
    "paddle": ("paddlepaddle-gpu", "paddlepaddle"),
    "tensorflow": ("tensorflow",),
    "cuda": ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    "cudnn": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
}
RELEASE = re.compile(r"\d{1,4}\.\d{1,4}")
_NUMBERS = re.compile(r"(\d{1,4})\.(\d{1,4})(\D.*)?")


def written(release: Release) -> str:
    """Return a release as text: "2.11"."""
    return f"{release[0]}.{release[1]}"


def parse(text: str) -> Release:
    """Return the release of a version such as "2.11" or "2.11.0+cu130". Raises OptionError."""
    match = _NUMBERS.fullmatch(text.strip())
    if match is None:
        raise OptionError(f"{text!r} is not a release", "write two numbers, such as 2.11")
    return int(match[1]), int(match[2])


def distance_between(one: Release, other: Release) -> tuple[int, int]:
    """Return the distance of two releases, to compare which is nearest."""
    return abs(one[0] - other[0]), abs(one[1] - other[1])


def checked(requested: Mapping[str, str]) -> dict[str, str]:
    """`--release NAME=VERSION`, checked and as "2.11". Raises OptionError."""
    for name in requested:
        if name not in ASKABLE:
            more = f": it is {written(RECORDED[name])}" if name in RECORDED else ""
            raise OptionError(
                f"the release of {name!r} cannot be asked for{more}",
                f"{did_you_mean(name, ASKABLE)}one of {', '.join(ASKABLE)}, such as --release torch=2.8",
            )
    return {name: written(parse(str(text))) for name, text in requested.items()}


@cache
def installed(name: str) -> str | None:
    """Return the installed version by metadata, None without; nothing is imported."""
    for package in _PACKAGES[name]:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return None


@cache
def runs_on_a_gpu(name: str) -> bool:
    """Return whether the installed build is for NVIDIA GPUs; nothing is imported."""
    if name == "torch":
        package = find_spec("torch")
        return (
            any(
                (Path(folder) / "lib" / "libtorch_cuda.so").exists()
                for folder in package.submodule_search_locations or ()
            )
            if package
            else False
        )
    try:
        return bool(metadata.version(_PACKAGES[name][0]))
    except metadata.PackageNotFoundError:
        return False


def chosen(
    name: str, requested: Mapping[str, str], recorded: Mapping[str, Release], *, on_gpu: bool = True
) -> Release:
    """Return the release a figure is of: asked for, else installed and able to run, else recorded. requested:
    what was asked for. recorded: of the device's figures. on_gpu: whether only a build for GPUs could run the
    program."""
    if name in requested:
        return parse(requested[name])
    version = installed(name)
    if version is not None and (runs_on_a_gpu(name) or not on_gpu):
        return parse(version)
    return recorded.get(name, RECORDED[name])


def nearest(name: str, release: Release) -> Release:
    """Return the modelled release used for this one: itself, or the nearest."""
    span = MODELLED[name]
    return max(span.since or release, min(span.until or release, release))


def others_installed(modelled: Mapping[str, str]) -> dict[str, str]:
    """Return packages installed in another release than the figures are for: name -> version."""
    versions = {name: installed(name) for name in modelled}
    return {
        name: version
        for name, version in versions.items()
        if version is not None and _NUMBERS.fullmatch(version) and written(parse(version)) != modelled[name]
    }


def notes(modelled: Mapping[str, str], elsewhere: Mapping[str, str]) -> tuple[str, ...]:
    """Return one note for each release that is not modelled, and on what torch's figures do not cover outside
    the measured release. elsewhere: packages installed in another release."""
    sentences = []
    for name, text in modelled.items():
        release, span = parse(text), MODELLED[name]
        if release not in span:
            which = "newer" if release > nearest(name, release) else "older"
            sentences.append(
                f"{DISPLAY_NAMES[name]} {text} is {which} than what is known ({span}): the figures are right"
                f" as far as it does as {written(nearest(name, release))}"
            )
    if modelled.get("torch", written(RECORDED["torch"])) != written(RECORDED["torch"]):
        followed = (
            f", and Python code, autograd and decompositions of torch {elsewhere['torch']}"
            if "torch" in elsewhere
            else ""
        )
        sentences.append(
            f"of torch {modelled['torch']} are the workspaces, kernels' own memory and which free block is"
            " chosen; the context, libraries' code and cuDNN's workspaces are as measured with torch"
            f" {written(RECORDED['torch'])}{followed}"
        )
    return tuple(sentences)


def line(modelled: Mapping[str, str], elsewhere: Mapping[str, str]) -> str:
    """Return the releases in one line: "torch 2.11 (measured; 2.13.0+cpu is installed, and runs on no GPU:
    --release torch=2.13), CUDA 13.0"."""
    return ", ".join(
        f"{DISPLAY_NAMES.get(name, name)} {text}"
        + (_why(name, text, elsewhere[name]) if name in elsewhere else "")
        for name, text in modelled.items()
    )


def _why(name: str, text: str, version: str) -> str:
    """Why figures are not of the version that is installed."""
    default = text == written(RECORDED[name]) and (version.endswith("+cpu") or not runs_on_a_gpu(name))
    if not default:
        return f" (asked for; installed: {version})"
    instead = f": --release {name}={written(parse(version))}" if name in ASKABLE else ""
    return f" (measured; {version} is installed, and runs on no GPU{instead})"
