"""Notes on convolutions' workspaces: the library that was asked, or how one can be."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.devices import DeviceProfile
from analyzer.libraries.cudnn.choices import choices_of
from analyzer.notes import CUDNN_UNASKED
from analyzer.releases import written
from analyzer.runtimes.bounded import unasked
from analyzer.runtimes.events import AllocationEvent, bounded_by
from analyzer.runtimes.onnxruntime.rules import CONVOLUTION

# The wheels' sizes: 367, 444 and 58 MB.
UNASKED = CUDNN_UNASKED.note(
    "convolutions' workspaces are between bounds; to know them: pip install 'gpu-memory-analyzer[cudnn]'"
    " (0.9 GB to download)"
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
    if is_unasked(events):
        yield _ONLY_ON_A_GPU if choices.asker.has_library else UNASKED


def is_unasked(events: tuple[AllocationEvent, ...]) -> bool:
    """Return whether a convolution's workspace was not asked of cuDNN, by PyTorch's rules or ONNX
    Runtime's."""
    return unasked(events) or any(True for _ in bounded_by(events, CONVOLUTION))
