"""An exception inside the user's program as one `CaptureError`: the innermost line and module of theirs, and what to do."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from analyzer.errors import CaptureError
from analyzer.graph import Phase
from analyzer.targets import missing_package

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder


def explained(error: Exception, recorder: Recorder) -> CaptureError:
    """The innermost frame of the user's code, and the message in one line."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if not recorder.places.is_library(f.filename)
    ]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else _PLACES[recorder.phase]
    failed, path = recorder.failed
    module = f" in module {path}" if path and failed == id(error) else ""
    text = " ".join(str(error).split())[:300]
    known = _in_a_program(error) if recorder.values.stands_in else None
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
    elif recorder.values.stands_in:
        hint = _whose_fault(error, recorder)
    else:
        hint = "check that the input's shape and dtype (--input NAME=3x224x224:float32) suit the model"
    # That tensors here are meta tensors is none of the user's business.
    text = re.sub(r"\bmeta tensor", "tensor without data", text)
    text = re.sub(r"(devices?(?: |.*, .* and |.*, ))meta\b", r"\1cuda:0", text)
    return CaptureError(f"{place}{module}: {type(error).__name__}: {text}", hint)


def _whose_fault(error: Exception, recorder: Recorder) -> str:
    """Whether the program fails by itself, as far as that can be told, and what to do where it may be this tool's fault."""
    call = recorder.failed_call
    reading = ", after it has read values that stand in for real ones (the notes name the lines)"
    stood_in = reading if recorder.values.stood_in else ""
    if call is not None and call.error in map(id, _chain(error)):
        if call.fails_on_a_cpu():
            return f"the program itself fails here{stood_in}: PyTorch says the same of these shapes and types on a CPU"
        return _REPORT.format(why=f"{call.func.name()} could not be followed")
    frames = traceback.extract_tb(error.__traceback__)
    if frames and not frames[-1].filename.startswith(_OURS):
        return (
            f"raised by the program or one of its libraries{stood_in}; if it does not happen on a GPU, "
            + _REPORT.format(why="something was answered otherwise than there")
        )
    return _REPORT.format(why="something PyTorch has on a GPU is missing here")


def _chain(error: BaseException) -> list[BaseException]:
    """The error, and those it was raised from or while handling."""
    found: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and seen not in found:
        found.append(seen)
        seen = seen.__cause__ or seen.__context__
    return found


def _in_a_program(error: Exception) -> str | None:
    """What to do about an error of a whole program, where its kind tells."""
    if isinstance(error, SyntaxError):
        return "the script is no valid Python"
    if isinstance(error, ImportError) and (package := missing_package(error)) and package != "triton":
        return f"install {package} beside analyzer: the program runs in this environment"
    said = f"{type(error).__module__}.{type(error).__name__}: {error}"
    for pattern, hint in _HINTS:
        if re.search(pattern, said, re.IGNORECASE):
            return hint
    return None


_OURS = (f"{Path(torch.__file__).parent}/", f"{Path(__file__).parents[2]}/")
_REPORT = (
    "this may be analyzer's own fault ({why}): please report it to the project's issue tracker with the script and the "
    "output of analyze run --debug"
)
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
        "Triton kernels are launched here and not compiled: leave out what asks its compiler or driver, or wrap it in "
        "torch.library.custom_op with register_fake",
    ),
    (
        r"torch\._dynamo|torchdynamo|torch\._inductor",
        "what PyTorch's compiler makes of a program is not followed: leave out what calls torch._dynamo or torch._inductor, "
        "torch.compile alone runs as eager code",
    ),
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
