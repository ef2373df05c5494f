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
    known = _in_a_program(error) if recorder.stands_in else None
    if known is not None:
        hint = known
    elif "device meta" in text or re.search(r"devices.*\bmeta\b", text):
        hint = "a tensor was left on the host: register_buffer moves it with the module, .to(x.device) where it is made"
    elif "meta" in text.lower():
        hint = "the model makes shapes or branches from data; give the analysis a version that does not"
    elif recorder.phase is Phase.LOSS:
        hint = "check that the loss takes the model's output and these targets, and that they suit each other"
    elif recorder.phase is Phase.OPTIMIZER:
        hint = "the optimizer must step on dense gradients, without a closure"
    elif recorder.stands_in:
        hint = "the program itself fails here, on values that stand in for real ones or as it would anywhere"
    else:
        hint = "check that the input's shape and dtype (--input NAME=3x224x224:float32) suit the model"
    # That tensors here are meta tensors is none of the user's business.
    text = re.sub(r"\bmeta tensor", "tensor without data", text)
    text = re.sub(r"(devices?(?: |.*, .* and |.*, ))meta\b", r"\1cuda:0", text)
    return CaptureError(f"{place}{module}: {type(error).__name__}: {text}", hint)


def _in_a_program(error: Exception) -> str | None:
    """What to do about an error of a whole program, where its kind tells."""
    if isinstance(error, SyntaxError):
        return "the script is no valid Python"
    said = f"{type(error).__module__}.{type(error).__name__}: {error}"
    for pattern, hint in _HINTS:
        if re.search(pattern, said, re.IGNORECASE):
            return hint
    return None


# What a program wants of a machine with a GPU, by what its error says: the first that matches.
_HINTS = (
    (
        r"nvmlerror|pynvml|libnvidia-ml",
        "NVML speaks of GPUs that are there: let the program ask torch.cuda (mem_get_info, get_device_properties) instead",
    ),
    (r"nvidia-smi", "nvidia-smi speaks of GPUs that are there: let the program ask torch.cuda instead"),
    (
        r"cuda_home|cpp_extension|error building extension|nvcc|ninja",
        "code compiled for CUDA cannot be followed: run without it, or make its operators torch.library ones with "
        "register_fake, and say what they take with @analyzer.rule",
    ),
    (
        r"triton|active drivers",
        "Triton kernels cannot be followed: run without them, or wrap each in torch.library.custom_op with register_fake",
    ),
    (
        r"torch\._dynamo|torchdynamo|torch\._inductor",
        "what torch.compile makes of a program is not followed: with TORCHDYNAMO_DISABLE=1 in the environment it leaves "
        "the program as it is, and the estimate is that program's",
    ),
    (r"modulenotfounderror", "install it beside analyzer: the program runs in this environment"),
    (
        r"eoferror",
        "the program reads from its standard input: give it what it waits for, or an argument instead",
    ),
)


_PLACES = {
    **dict.fromkeys(Phase, "the model"),
    Phase.LOSS: "the loss",
    Phase.BACKWARD: "backward()",
    Phase.OPTIMIZER: "the optimizer",
}
