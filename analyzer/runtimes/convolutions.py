"""Notes on convolutions' workspaces: the library that was asked, or how one can be."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.devices import DeviceProfile
from analyzer.libraries.cudnn.choices import choices_of
from analyzer.releases import written
from analyzer.runtimes.bounded import unasked
from analyzer.runtimes.events import AllocationEvent

_UNASKED = (
    "convolutions' workspaces are bounded: with pip install 'gpu-memory-analyzer[cudnn]' cuDNN is asked"
)

_ONLY_ON_A_GPU = (
    "some convolutions' workspaces are assumed, between bounds: which plan is the fastest, and which engines"
    " are listed, only a GPU says (analyze explain cudnn-convolution)"
)


def notes_on_convolutions(profile: DeviceProfile, events: tuple[AllocationEvent, ...]) -> Iterator[str]:
    """Yield the notes of an analysis with these requests."""
    choices = choices_of(profile)
    release = choices.asker.release
    if choices.has_asked and release is not None:
        gpu = profile.cudnn_device.get("deviceName", profile.name)
        yield f"convolutions' workspaces were asked of cuDNN {written(release)} for {gpu}"
    if unasked(events):
        yield _ONLY_ON_A_GPU if choices.asker.has_library else _UNASKED
