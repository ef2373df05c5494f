"""An exception inside the user's program as one `CaptureError`: the innermost line and module of theirs, and
what to do."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from analyzer.errors import AnalyzerError, CaptureError, report_to
from analyzer.graph import Phase
from analyzer.targets import first_cause, missing_package
from analyzer.values.own import OWN

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder


def explained(error: Exception, recorder: Recorder) -> CaptureError:
    """Return the error as one line, at the innermost frame of the user's code."""
    sentence = _explained(error, recorder)
    sentence.is_own = fails_anywhere(error, recorder)
    if sentence.is_own and sentence.hint.startswith(_ASKS_FOR_A_REPORT):
        sentence.hint = "the program itself fails here, as it would on a GPU"
    return sentence


def fails_anywhere(error: BaseException, recorder: Recorder) -> bool:
    """Return whether the program fails by itself, as it would on a GPU; False too where that is not known.

    It does where its own code or Python's library raises, where a file is missing, where a function is
    called with arguments it does not take, where autograd or PyTorch's check of devices refuses what it does,
    and where PyTorch refuses arguments that it refuses on a CPU as well: if it has read no value that stands
    in for a real one, and nothing says that data is missing.
    """
    if isinstance(error, SystemExit):
        return error.__context__ is None or fails_anywhere(error.__context__, recorder)
    text = " ".join(str(error).split())
    if recorder.values.stood_in or isinstance(
        error, (AnalyzerError, NotImplementedError, torch.OutOfMemoryError)
    ):
        return False
    if _left_on_the_host(text) or _OF_AUTOGRAD.match(text):
        return True
    if "meta" in text.lower() or _untraced(text):
        return False
    if isinstance(error, (SyntaxError, OSError)):
        return True
    if isinstance(error, ImportError):
        return missing_package(error) not in ("", *BUILD_PACKAGES)
    if any(re.search(pattern, f"{type(error).__name__}: {text}", re.IGNORECASE) for pattern, _ in _HINTS):
        return False
    call = recorder.failed_call
    if call is not None and call.error in map(id, _chain(error)):
        return call.func.namespace == "aten" and call.fails_on_a_cpu() is not False
    file, line, text = _raised(error)
    if isinstance(error, TypeError) and _CALL.match(text) and file.endswith("torch/nn/modules/module.py"):
        return True
    if file.startswith(_TORCH):
        room = file.removeprefix(_TORCH).partition("/")[0]
        calls = isinstance(error, (ValueError, IndexError)) and "torch._C._nn." in line
        return room in ("nn", "optim", "utils", "testing", "distributions") and (
            line.startswith("raise") or calls
        )
    if _PARSER.match(text):
        return True
    by_python = file.startswith(_PYTHON) and not _PACKAGES.search(file)
    return by_python or not (
        file.startswith(_OURS) or _PACKAGES.search(file) or re.search(r"torch|SimpleNamespace|<locals>", text)
    )


def _raised(error: BaseException) -> tuple[str, str, str]:
    """Return the file and line that raised the error, and its text: of one that PyTorch raises again for a
    worker process or thread, the worker's."""
    raised = traceback.extract_tb(error.__traceback__)[-1:]
    file, line = (raised[0].filename, raised[0].line or "") if raised else ("", "")
    if file == _RAISED_AGAIN and (files := _FILE.findall(str(error))):
        return files[-1], "", str(error).strip().splitlines()[-1]
    return file, line, " ".join(str(error).split())


def _raised_by(error: BaseException) -> str:
    """Return the file whose line raised the error, "" where no line of Python did."""
    raised = traceback.extract_tb(error.__traceback__)[-1:]
    return raised[0].filename if raised and (raised[0].line or "").startswith("raise") else ""


def _is_library(file: str) -> bool:
    return file.startswith((*_OURS, _PYTHON)) or _PACKAGES.search(file) is not None


def _explained(error: Exception, recorder: Recorder) -> CaptureError:
    """Return the error's line, and what to do."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if not recorder.places.is_library(f.filename)
    ]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else _PLACES[recorder.phase]
    failed, path = recorder.failed
    module = f" in module {path}" if path and failed == id(error) else ""
    text = " ".join(str(error).split())[:300]
    if recorder.values.stands_in and (untraced := _untraced(text)):
        return CaptureError(f"{place}{module}: {untraced}")
    if recorder.values.stands_in:
        hint = _in_a_program(error) or _whose_fault(error, recorder)
    elif _left_on_the_host(text):
        hint = _ON_THE_HOST
    elif "meta" in text.lower():
        hint = "the model makes shapes or branches from data; give the analysis a version that does not"
    elif recorder.phase is Phase.FORWARD and _CALL.match(text):
        hint = "give each input that forward takes by its name: --input NAME=3x224x224:float32"
    elif recorder.phase is Phase.FORWARD and _raised_by(error) and not _is_library(_raised_by(error)):
        hint = "raised by the model itself"
    elif recorder.phase is Phase.LOSS:
        hint = "check that the loss takes the model's output and these targets, and that they suit each other"
    elif recorder.phase is Phase.OPTIMIZER:
        hint = "the optimizer must step on dense gradients, without a closure"
    else:
        hint = "check that the input's shape and dtype (--input NAME=3x224x224:float32) suit the model"
    # That tensors here are meta tensors is none of the user's business.
    text = re.sub(r"\bmeta tensor", "tensor without data", text)
    text = re.sub(r"(devices?(?: |.*, .* and |.*, )|got )meta\b", r"\1cuda:0", text)
    return CaptureError(f"{place}{module}: {type(error).__name__}: {text}{first_cause(error)}", hint)


def _untraced(text: str) -> str:
    """Return what PyTorch runs below the operators that are traced, by what its error says; "" for others."""
    for pattern, sentence in _UNTRACED:
        if match := re.search(pattern, text):
            return sentence.format(*match.groups())
    return ""


def _left_on_the_host(text: str) -> bool:
    """Return whether an operator says that its tensors lie on different devices."""
    return "device meta" in text or re.search(r"devices.*\bmeta\b|\bgot meta\b", text) is not None


def _whose_fault(error: Exception, recorder: Recorder) -> str:
    """Return whether the program itself fails, if known, and what to do if this tool may be at fault."""
    call = recorder.failed_call
    reading = ", after it has read values that stand in for real ones (the notes name the lines)"
    stood_in = reading if recorder.values.stood_in else ""
    if _left_on_the_host(str(error)):
        return _ON_THE_HOST
    if call is not None and call.error in map(id, _chain(error)):
        if call.fails_on_a_cpu():
            return (
                f"the program itself fails here{stood_in}: PyTorch says the same of these shapes and types on"
                " a CPU"
            )
        return _report(f"{call.func.name()} could not be followed")
    if isinstance(error, OSError):
        return (
            f"the program itself fails here{stood_in}: it runs in {Path.cwd()}, with the files and rights"
            " there are here"
        )
    file, line, text = _raised(error)
    in_python = file.startswith(_TORCH) and not file.startswith(_OF_THE_GPU) and line.startswith("raise")
    if in_python or _PARSER.match(str(error)):
        return f"PyTorch refuses these arguments{stood_in}, and would on a GPU"
    # A part missing from PyTorch, or from its stand-in here, shows in the line that asks for it.
    missing = re.search(r"torch|SimpleNamespace|<locals>", text) is not None
    if not file.startswith(_OURS) and not missing:
        if not recorder.places.is_library(file):
            return f"raised by the program itself{stood_in}"
        return (
            f"raised by one of the program's libraries{stood_in}; if it does not happen on a GPU, "
            + _report("something was answered otherwise than there")
        )
    return _report("something PyTorch has on a GPU is missing here")


def _chain(error: BaseException) -> list[BaseException]:
    """Return the error, and those it was raised from or while handling."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    return chain


def _in_a_program(error: Exception) -> str | None:
    """Return a hint for an error of a whole program, None where its kind suggests none."""
    if isinstance(error, SyntaxError):
        return "the script is no valid Python"
    if isinstance(error, ImportError) and (package := missing_package(error)) and package != "triton":
        return f"install {package} beside analyzer: the program runs in this environment"
    text = f"{type(error).__module__}.{type(error).__name__}: {error}"
    for pattern, hint in _HINTS:
        if re.search(pattern, text, re.IGNORECASE):
            return hint
    return None


def _report(why: str) -> str:
    return (
        f"{_ASKS_FOR_A_REPORT} ({why}): please report it to {report_to()}, with the script and"
        " the output of analyze run --debug"
    )


_ASKS_FOR_A_REPORT = "this may be analyzer's own fault"
_ON_THE_HOST = (
    "a tensor was left on the host: register_buffer moves it with the module, .to(x.device) where it is made"
)
_TORCH = f"{Path(torch.__file__).parent}/"
_OURS = (_TORCH, *OWN)
_PACKAGES = re.compile(r"/(site|dist)-packages/")
_PYTHON = f"{Path(traceback.__file__).parent}/"
# CPython's messages on a call with other arguments than the function takes (Python/ceval.c).
_CALL = re.compile(
    r"[\w.<>]+\(\) (missing \d+ required|takes |got an unexpected keyword|got multiple values)"
)
# Autograd refuses these before a kernel runs (torch/csrc/autograd: python_engine.cpp, saved_variable.cpp).
_OF_AUTOGRAD = re.compile(
    r"element \d+ of tensors does not require grad|Trying to backward through the graph a second time"
    r"|one of the variables needed for gradient computation has been modified by an inplace operation"
)
# It raises an error of a worker process or thread again, with its traceback in the text.
_RAISED_AGAIN = f"{_TORCH}_utils.py"
_FILE = re.compile(r'File "([^"]+)", line \d+')
# Packages that a CUDA build of PyTorch brings.
BUILD_PACKAGES = ("nvidia", "torch", "triton")
# Where PyTorch's Python code raises because there is no GPU.
_OF_THE_GPU = tuple(
    f"{_TORCH}{room}/" for room in ("cuda", "backends", "distributed", "accelerator", "_dynamo", "_inductor")
)
# How PyTorch's parser of arguments begins: "linear(): argument 'input' must be Tensor, not list".
_PARSER = re.compile(r"\w+\(\)(:| received| missing)")
# Features that are not traced, although PyTorch's own CUDA build runs them: `torch/_ops.py`
# (`HigherOrderOperator`), aten/src/ATen/functorch (BatchedTensorImpl.cpp, PlumbingHelper.cpp),
# ATen/native/TensorFactories.cpp (_efficientzerotensor) and Resize.h (checkInBoundsForStorage),
# torch/nn/parameter.py (UninitializedTensorMixin), torch/_utils.py (_dummy_type).
_UNTRACED = (
    (
        r"no rule registered for HigherOrderOperator (\w+)",
        "{0} is an operator whose arguments are functions, and their operators are not traced",
    ),
    (
        r"storage of BatchedTensorImpl|inside a function being vmapped|gen_vmap_plumbing",
        "what torch.func makes of many calls (vmap, jacrev, hessian) has no memory of its own to trace",
    ),
    (
        r"out of bounds for storage of size 0\b",
        "the zeros that torch.func's forward derivatives (jvp, jacfwd, hessian) begin with have no memory of"
        " their own, and a hessian of them is not traced",
    ),
    (
        r"'(?:Tensor|Parameter)' object has no attribute 'materialize'",
        "a lazy module's parameter that was moved before its shape is known is not traced",
    ),
    (
        r"Tried to instantiate dummy base class (\w+)",
        "{0} is a part of PyTorch's CUDA build, and is not traced",
    ),
)
# Hints for programs that need a machine with a GPU, by their error's text: the first that matches.
_HINTS = (
    (
        r"nvmlerror|pynvml|libnvidia-ml",
        "NVML speaks of GPUs that are there: let the program ask torch.cuda (mem_get_info,"
        " get_device_properties) instead",
    ),
    (r"nvidia-smi", "nvidia-smi speaks of GPUs that are there: let the program ask torch.cuda instead"),
    (
        r"cuda_home|cpp_extension|error building extension|nvcc|ninja",
        "code compiled for CUDA cannot be followed: run without it, or make its operators torch.library"
        " ones with register_fake, and say what they take with @analyzer.rule",
    ),
    (
        r"triton|active drivers",
        "Triton kernels are launched here and not compiled: leave out what asks its compiler or driver,"
        " or wrap it in torch.library.custom_op with register_fake",
    ),
    (
        r"torch\._dynamo|torchdynamo|torch\._inductor",
        "what PyTorch's compiler makes of a program is not followed: leave out what calls torch._dynamo"
        " or torch._inductor, torch.compile alone runs as eager code",
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
