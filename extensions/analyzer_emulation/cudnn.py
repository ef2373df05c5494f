"""cuDNN's side of an emulated program: the library's choice on the profile's GPU, from the library itself,
or from records and formulas.

1. A graph of operations is recognised by its operations: one convolution (forward, of the data or of the
   weights; with elementwise operations behind it as with it alone), or attention, which is two matrix
   products forward and five backward, or one operation of its own. Anything else is not answered.
2. Convolutions: the list cuDNN itself gives (`libraries/cudnn/choices.py`); where it cannot be asked one
   plan, of the recorded or bounded bytes. The winner of benchmark mode's timing among the first ten is the
   recorded one, else the first. Channels-last by the tensors' strides.
3. Batch norm, recurrent layers, dropout's state, attention, CTC losses: the formulas of `libraries/cudnn/`.
4. An answer without a measurement is kept as a `Doubt`, once for each call: not asked, beyond the model,
   from another GPU.

Source of the numbers of kinds and attributes: NVIDIA cuDNN backend API reference; `cudnn_graph.h` of cuDNN 9
(the same in all of it). PyTorch's requests: `aten/src/ATen/native/cudnn/` `Conv_v8.cpp`, `MHA.cpp`,
`BatchNorm.cpp`, `RNN.cpp`, `LossCTC.cpp`.

Not modelled: fused convolutions' own plans.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analyzer.devices import DeviceProfile
from analyzer.libraries.cudnn import ctc, local_memory
from analyzer.libraries.cudnn.attention import backward_bytes, forward_bytes, frontend_bytes, is_measured
from analyzer.libraries.cudnn.choices import ASKED, MEASURED, Workspace, choices_of
from analyzer.libraries.cudnn.convolution import ELEMENT_BYTES, Convolution, Plan, strides_of
from analyzer.libraries.cudnn.enumerators import CONVOLUTIONS
from analyzer.libraries.cudnn.normalization import workspace_bytes
from analyzer.libraries.cudnn.plans import DEFAULT, TIMED_PLANS, ConvolutionSettings
from analyzer.libraries.cudnn.recurrent import ALGORITHMS, MODES, Recurrent, dropout_state_bytes
from analyzer_emulation.questions import Question, Topic, Unanswered

_DTYPES = {0: "float32", 1: "float64", 2: "float16", 9: "bfloat16"}
# Kinds of descriptors.
_POINTWISE = 13
_MATMUL, _REDUCTION, _ATTENTION, _ATTENTION_GRAD = 19, 22, 41, 43
_CONVOLUTIONS = {int(kind): (name, first) for name, (kind, first) in CONVOLUTIONS.items()}
_OPERATIONS, _DTYPE, _SIZES, _STRIDES, _VIRTUAL = "801", "901", "902", "903", "907"
_DILATION, _STRIDE, _PADDING = "102", "103", "105"
_REDUCED, _REDUCTION_RESULT = "1610", "1611"
# Of attention: its operation alone, its gradient's, or the first of its matrix products: the attributes of
# query and key.
_ATTENTIONS = {_ATTENTION: ("2800", "2801"), _ATTENTION_GRAD: ("2851", "2852"), _MATMUL: ("1520", "1521")}
_BACKWARD_PRODUCTS = 5
_ELEMENTWISE, _ELEMENTWISE_MODE, _GENERATED_INDEX = "750", "0", 501  # positions, which a causal mask compares
_FALLBACK = 2
_TENSOR_CORE, _NONDETERMINISTIC = 1 << 0, 1 << 4
_PERSISTENT = 2  # CUDNN_BATCHNORM_SPATIAL_PERSISTENT
_PLAIN_BATCH_NORM = 0  # CUDNN_BATCHNORM_OPS_BN
# How long a plan runs on the emulated device, in nanoseconds: the fastest, and each of the others. Far apart,
# since the clock is also a real one.
_FASTEST, _SLOWER, _STEP = 10**8, 10**10, 10**9
_NUMBERS = 4  # of every plan


@dataclass(frozen=True, slots=True)
class Doubt:
    """A cuDNN request whose workspace is not its own answer. timed: counts only if plans are timed."""

    what: str
    workspace: Workspace
    timed: bool = False

    def __str__(self) -> str:
        of = self.workspace
        limits = f"{of.low_bytes:,} to {of.high_bytes:,}"
        return f"{self.what}: {of.nbytes:,} bytes of workspace, {of.source} ({limits})"


class CudnnAnswers:
    """Answers for one device. `topics`: what it answers. python: the one whose environment's library is asked
    (default: as for a traced program)."""

    def __init__(self, profile: DeviceProfile, python: str = "") -> None:
        self._profile = profile
        self._choices = choices_of(profile, python)
        self._doubts: dict[Doubt, None] = {}
        self.topics: Mapping[str, Topic] = {
            "cudnn.plans": self.plans,
            "cudnn.batch_norm": self.batch_norm,
            "cudnn.recurrent": self.recurrent,
            "cudnn.dropout_states": self.dropout_states,
            "cudnn.ctc": self.ctc,
        }

    def doubts(self, *settings: str) -> tuple[Doubt, ...]:
        """Return the requests cuDNN did not answer itself, in order. settings: `torch.backends.cudnn`
        settings the program had at any time; "benchmark" adds winners that nobody timed."""
        return tuple(doubt for doubt in self._doubts if not doubt.timed or "benchmark" in settings)

    def plans(self, question: Question) -> list[int]:
        """Workspace in bytes, numerical notes (a bit each), nanoseconds and bytes of local memory a
        thread of every plan."""
        if question["mode"] == _FALLBACK:
            return []  # the list of the heuristics is whole
        operations = question["graph"].get(_OPERATIONS, [])
        kinds = [operation["kind"] for operation in operations]
        convolutions = [operation for operation in operations if operation["kind"] in _CONVOLUTIONS]
        if len(convolutions) == 1 and set(kinds) <= {*_CONVOLUTIONS, _POINTWISE}:
            return self._convolution(*_call_of(convolutions[0]), fused=len(operations) > 1)
        if kinds.count(_MATMUL) in (2, _BACKWARD_PRODUCTS) or kinds in ([_ATTENTION], [_ATTENTION_GRAD]):
            return self._attention(operations)
        raise Unanswered(f"no plan is known for cuDNN's operations {', '.join(map(str, kinds))}")

    def _convolution(self, call: Convolution, y_shape: tuple[int, ...], fused: bool) -> list[int]:
        """Return the workspaces of a convolution's plans; an inexact answer adds a doubt."""
        shapes = f"{_by(call.x_shape)} with {_by(call.w_shape)}"
        if call.y_shape != y_shape:
            raise Unanswered(f"a convolution of {shapes} does not give {_by(y_shape)}")
        what = f"cuDNN convolution ({call.operation}, {call.dtype}, {shapes})"
        if fused:
            what += " with elementwise operations, taken as without"
        plans = self._choices.listed(call)
        first = self._choices.workspace(call, DEFAULT)
        if not plans:
            plans = (Plan(0, first.nbytes),)
        self._note(Doubt(what, first), fused)
        winner = self._choices.workspace(call, ConvolutionSettings(benchmark=True))
        self._note(Doubt(f"{what}, timed", winner, timed=True), False)
        timed = [plan.workspace_bytes for plan in plans[:TIMED_PLANS]]
        fastest = timed.index(winner.nbytes) if winner.nbytes in timed else 0
        family = local_memory.family(call)
        answer: list[int] = []
        for place, plan in enumerate(plans):
            notes = plan.tensor_core * _TENSOR_CORE | (not plan.deterministic) * _NONDETERMINISTIC
            took = _FASTEST if place == fastest else _SLOWER + _STEP * place
            local = local_memory.FRAME_BYTES[family] if family and local_memory.keeps(call, plan) else 0
            answer += [plan.workspace_bytes, notes, took, local]
        # Benchmark mode tries all: the largest may be a plan no list without a GPU has (`on_cublas.py`).
        (tried,) = self._choices.workspaces([call], ConvolutionSettings(benchmark=True), trial=True)
        if tried.nbytes > max(answer[::_NUMBERS]):
            self._note(Doubt(f"{what}, tried", tried, timed=True), False)
            answer += [tried.nbytes, 0, _SLOWER + _STEP * len(plans), 0]
        return answer

    def _attention(self, operations: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the workspace of an attention graph; an unmeasured one adds a doubt."""
        first = next(operation for operation in operations if operation["kind"] in _ATTENTIONS)
        query, key = (tuple(first[name][0][_SIZES]) for name in _ATTENTIONS[first["kind"]])
        keys = key[3] if first["kind"] == _MATMUL else key[2]
        known = is_measured(query[2], keys)
        if first["kind"] == _ATTENTION_GRAD:
            nbytes, known = frontend_bytes(*query) + backward_bytes(), False
        elif sum(operation["kind"] == _MATMUL for operation in operations) == _BACKWARD_PRODUCTS:
            nbytes = backward_bytes(sum(_full_heads(operations)))
        else:
            causal = any(_mode(operation) == _GENERATED_INDEX for operation in operations)
            nbytes = forward_bytes(query, key[1], keys, self._profile.sm_count, causal=causal)
        self._formula(f"cuDNN attention ({_by(query)} on {keys} keys)", nbytes, known=known)
        return [nbytes, _TENSOR_CORE, _FASTEST, 0]

    def batch_norm(self, question: Question) -> list[int]:
        """Return the bytes of the workspace, or of the reserve for the backward pass."""
        shape, dtype = question["shape"], _dtype(question["type"])
        last = tuple(question["strides"]) == strides_of(shape, channels_last=True)
        if question["operations"] != _PLAIN_BATCH_NORM:
            raise Unanswered("no size is known for cuDNN's batch norm with an activation or a sum in it")
        if question["what"] == "reserve" or question["mode"] != _PERSISTENT or not last:
            return [0]
        rows = math.prod(shape) // shape[1]
        backward = question["what"] == "backward"
        nbytes = workspace_bytes(rows, shape[1], ELEMENT_BYTES[dtype], backward=backward)
        self._formula(f"cuDNN batch norm ({question['what']}, {dtype}, {_by(shape)})", nbytes)
        return [nbytes]

    def recurrent(self, question: Question) -> list[int]:
        """Return the bytes of the workspace and of the reserve for the backward pass."""
        algorithm = ALGORITHMS[question["algorithm"]]
        if algorithm is None:
            raise Unanswered("no size is known for cuDNN's dynamic persistent recurrent layers")
        names = ("inputs", "hidden", "layers", "directions", "batch", "steps")
        layer = Recurrent(
            MODES[question["mode"]],
            _dtype(question["type"]),
            **{name: question[name] for name in names},
            dropout=bool(question["dropout"]),
            projection=question["projection"] if question["projection"] != question["hidden"] else 0,
            rows=question["rows"] or None,
            algorithm=algorithm,
        )
        nbytes, kept = layer.inference_workspace_bytes(), 0
        if question["training"]:
            nbytes, kept = layer.training_workspace_bytes(), layer.reserve_bytes()
        what = f"cuDNN {layer.mode} ({layer.dtype}, {layer.inputs} to {layer.hidden}, {layer.layers} layers)"
        self._formula(what, nbytes)
        return [nbytes, kept]

    def dropout_states(self, _question: Question) -> list[int]:
        """Return the bytes of the random state of dropout."""
        return [dropout_state_bytes(self._profile.sm_count * self._profile.max_threads_per_sm)]

    def ctc(self, question: Question) -> list[int]:
        """Return the workspace bytes of the CTC loss, as a list of one number."""
        steps, batch, labels = question["shape"]
        newer, longest = bool(question["newer"]), question["longest"]
        nbytes = ctc.workspace_bytes(steps, batch, labels, longest, newer=newer)
        self._formula(f"cuDNN CTC loss ({_by(question['shape'])}, targets up to {longest})", nbytes)
        return [nbytes]

    def _formula(self, what: str, nbytes: int, *, known: bool = True) -> None:
        """Add a doubt where a formula read off another GPU was used, or one of something else."""
        if known and self._profile.measured:
            return
        source = "by a formula measured on the h200" if known else "by a formula of something near"
        self._note(Doubt(what, Workspace(nbytes, nbytes if known else 0, nbytes, source)), True)

    def _note(self, doubt: Doubt, always: bool) -> None:
        if always or doubt.workspace.source not in (MEASURED, ASKED):
            self._doubts[doubt] = None


def _call_of(operation: Mapping[str, Any]) -> tuple[Convolution, tuple[int, ...]]:
    """Return the convolution an operation's descriptor describes, and its result's shape."""
    name, first_attribute = _CONVOLUTIONS[operation["kind"]]
    descriptor, w, x, y = (operation[str(first_attribute + place)][0] for place in (2, 3, 4, 5))
    shapes = [tuple(tensor[_SIZES]) for tensor in (x, w, y)]
    strides = [tuple(tensor[_STRIDES]) for tensor in (x, w, y)]
    first, last = (
        sum(stride == strides_of(shape, layout) for shape, stride in zip(shapes, strides, strict=True))
        for layout in (False, True)
    )
    moves = (tuple(descriptor[attribute]) for attribute in (_PADDING, _STRIDE, _DILATION))
    return Convolution(name, _dtype(x[_DTYPE][0]), last > first, *shapes[:2], *moves), shapes[2]


def _mode(operation: Mapping[str, Any]) -> int | None:
    """Return which elementwise function an operation is; None: it is none."""
    described = operation.get(_ELEMENTWISE)
    return described[0][_ELEMENTWISE_MODE][0] if described else None


def _full_heads(operations: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """Yield the bytes of key and value gradients of all query heads that are summed within their groups."""
    for operation in operations:
        if operation["kind"] == _REDUCTION:
            source, result = operation[_REDUCED][0], operation[_REDUCTION_RESULT][0]
            if source.get(_VIRTUAL) == [1] and source[_SIZES][1] != result[_SIZES][1]:
                yield math.prod(source[_SIZES]) * ELEMENT_BYTES[_dtype(result[_DTYPE][0])]


def _dtype(number: int) -> str:
    if number not in _DTYPES:
        raise Unanswered(f"nothing is known of cuDNN's calls of data type {number}")
    return _DTYPES[number]


def _by(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))
