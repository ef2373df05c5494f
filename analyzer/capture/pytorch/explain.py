"""An exception inside the user's program as one `CaptureError`: the innermost line and module of theirs, and what to do."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from analyzer.errors import CaptureError
from analyzer.graph import Phase

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recorder import Recorder


def explained(error: Exception, recorder: Recorder) -> CaptureError:
    """The innermost frame of the user's code, and the message in one line."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not recorder.is_library(f.filename)]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else _PLACES[recorder.phase]
    failed, path = recorder.failed
    module = f" in module {path}" if path and failed == id(error) else ""
    text = " ".join(str(error).split())[:300]
    if "device meta" in text or re.search(r"devices.*\bmeta\b", text):
        hint = "a tensor was left on the host: register_buffer moves it with the module, .to(x.device) where it is made"
    elif "meta" in text.lower():
        hint = "the model makes shapes or branches from data; give the analysis a version that does not"
    elif recorder.phase is Phase.LOSS:
        hint = "check that the loss takes the model's output and these targets, and that they suit each other"
    elif recorder.phase is Phase.OPTIMIZER:
        hint = "the optimizer must step on dense gradients, without a closure"
    else:
        hint = "check that the input's shape and dtype (--input NAME=3x224x224:float32) suit the model"
    # That tensors here are meta tensors is none of the user's business.
    text = re.sub(r"\bmeta tensor", "tensor without data", text)
    text = re.sub(r"(devices?(?: |.*, .* and |.*, ))meta\b", r"\1cuda:0", text)
    return CaptureError(f"{place}{module}: {type(error).__name__}: {text}", hint)


_PLACES = {
    **dict.fromkeys(Phase, "the model"),
    Phase.LOSS: "the loss",
    Phase.BACKWARD: "backward()",
    Phase.OPTIMIZER: "the optimizer",
}
