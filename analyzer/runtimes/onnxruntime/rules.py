"""The named rules behind ONNX Runtime's requests (`session.SessionRecorder.take`), for `analyze explain`.

1. A session's requests by convention (initializers, inputs, results, the memory pattern, weights laid out
   anew) are described here, each with the file of ONNX Runtime that decides it.
2. A kernel's own memory is named after the function that tells it (`kernels/scratch/`): `_cpu_conv` is
   "ort-cpu-conv"; its docstring is the explanation.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import replace

from analyzer.onnx.shapes.contrib import IN_DEFAULT_DOMAIN
from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.kernels import packing, scratch
from analyzer.runtimes.onnxruntime.kernels.scratch import RULES
from analyzer.runtimes.onnxruntime.kernels.scratch.registry import Estimate as Kernel
from analyzer.runtimes.rules import Rule, carried_out_by, source_in

# A convolution's workspace on CUDA.
CONVOLUTION = "ort-cuda-conv"
MEMORY_PATTERN = "ort-memory-pattern"
EMULATED = "ort-emulated-kernel"

_SESSION = "analyzer/runtimes/onnxruntime/session.py"
_RUNNING = "analyzer/runtimes/onnxruntime/running.py"
_PACKING = "analyzer/runtimes/onnxruntime/kernels/packing.py"
_CONVENTIONS = (
    Rule(
        "ort-initializer",
        "Every initializer that a kernel reads on the device is one request, made when the session is"
        " created, in the order of a hash table. With use_device_allocator_for_initializers it goes past the"
        " arena. The CPU provider reserves initializers of at most 127 bytes; larger ones stay where the file"
        " was loaded.",
        "core/framework/session_state_utils.cc (SaveInitializedTensors)",
        _SESSION,
    ),
    Rule(
        "ort-input",
        "Every input that a kernel reads on the device is copied there when a run starts, and given back when"
        " it ends.",
        "core/framework/utils.cc (CopyInputsAcrossDevices)",
        _SESSION,
    ),
    Rule(
        "ort-kernel-output",
        "A kernel's result takes the bytes of its elements, unless the planner lets it take another value's"
        " buffer (in place, as an alias, or one that is free and of the same size). It is given back after"
        " its last reader; what the caller gets lives to the end of the run. Where its shape is not known its"
        " size is a bound.",
        "core/framework/allocation_planner.cc, execution_frame.cc (AllocateMLValueTensorSelfOwnBufferHelper)",
        "analyzer/runtimes/onnxruntime/plan/planner.py",
        sure=("exact", "bounded"),
    ),
    Rule(
        EMULATED,
        "A kernel's own memory, as ONNX Runtime's own CUDA provider asked for it on the emulated CUDA runtime"
        " (--engine emulate). It is given back when the kernel ends.",
        "core/providers/cuda, contrib_ops/cuda",
        "analyzer/runtimes/onnxruntime/provided.py",
    ),
    Rule(
        MEMORY_PATTERN,
        "The first run takes each buffer by itself and records when it is taken and given back. Every later"
        " run with the same input shapes takes one block at its start, in which each of these buffers has its"
        " place. Outputs and scratch memory stay apart. enable_mem_pattern=False switches it off. A block"
        " that finds no room is no error: it is logged (INFO), and that run takes each buffer by itself.",
        "core/framework/mem_pattern_planner.h, execution_frame.cc (the constructor, which catches it)",
        "analyzer/runtimes/onnxruntime/plan/pattern.py",
    ),
    Rule(
        "ort-packed-weights",
        "On the CPU provider a constant right operand of a matrix product in float32 is packed into panels of"
        " 16 columns when the session is created: K rows by N rounded up to 16; LSTM, GRU, MatMulNBits and"
        " ConvTranspose pack theirs likewise, operators on integers with a 32-bit sum for each column."
        " Kernels that pack the same weights alike share the first one's buffer.",
        "core/providers/cpu/math/gemm.cc, matmul.cc (PrePack), core/mlas/lib/sgemm.cpp (MlasGemmPackBSize);"
        ' measured: onnxruntime 1.31, log line "Reserving memory in BFCArena for Cpu";'
        " core/providers/cpu/quantization (PrePack), core/mlas/lib/qgemm.cpp",
        _PACKING,
        tuple(sorted({name.rpartition(".")[2] for name in packing.PACKED})),
    ),
    Rule(
        "ort-recurrent-weights",
        "On the CUDA provider LSTM, GRU and RNN take cuDNN's dropout state, 24 bytes for every thread the GPU"
        " can hold, when the session is created and, with constant weights, keep these once more in cuDNN's"
        " layout: for each direction and gate hidden * (input + hidden + 2) elements.",
        "core/providers/cuda/rnn/cudnn_rnn_base.cc (ReorganizeWeights)",
        _PACKING,
        ("LSTM", "GRU", "RNN"),
    ),
    Rule(
        "ort-nhwc-weights",
        "With prefer_nhwc, a channels-last convolution keeps its weights in that order; the original is given"
        " back if nothing else reads it.",
        "core/providers/cuda/nn/conv.cc, conv_transpose.cc (PrePack)",
        _SESSION,
        ("Conv", "ConvTranspose"),
    ),
    Rule(
        "ort-loop-counter",
        "On the CPU provider a Loop takes an iteration number (8 bytes) and a condition (1 byte) for its"
        " body.",
        "core/providers/cpu/controlflow/loop.cc",
        _RUNNING,
        ("Loop",),
    ),
    Rule(
        "ort-scan-axis",
        "Scan transposes what it scans along another axis than the first, and results that it puts together"
        " along another one, into buffers of their own.",
        "core/providers/cpu/controlflow/scan_9.cc (SetupInputs, TransposeOutput)",
        _RUNNING,
        ("Scan",),
    ),
    Rule(
        "ort-scan-state",
        "Scan takes two buffers a state, which its iterations write in turn; one for two iterations, none for"
        " one.",
        "core/providers/cpu/controlflow/scan_utils.cc (LoopStateVariable)",
        _RUNNING,
        ("Scan",),
    ),
)

# How the bytes of a kernel may be known, where not by its code alone.
_SURE = {
    "ort-cuda-conv": ("measured", "bounded"),
    "ort-recurrent": ("exact", "measured", "bounded"),
    "ort-reduce": ("exact", "bounded"),
    "ort-resize": ("exact", "bounded"),
    "ort-split": ("exact", "bounded"),
    "ort-non-max-suppression": ("exact", "bounded"),
    "ort-einsum": ("exact", "bounded"),
    "ort-top-k": ("measured",),
    "ort-non-zero": ("exact", "measured"),
    "ort-multi-head": ("measured", "bounded"),
    "ort-attention": ("measured",),
    "ort-onnx-attention": ("measured", "bounded"),
    "ort-deform-conv": ("exact", "bounded"),
    "ort-cpu-deform-conv": ("measured",),
    "ort-grouped-attention": ("measured", "bounded"),
    "ort-n-bits": ("measured",),
}
_FILE = re.compile(r"([\w.]+\.(?:cc|cu|cuh|cpp))\b")


def scratch_rule(node: Node) -> str:
    """Return the name of the rule for the node's scratch."""
    kernel = RULES[node.provider].get(node.kernel)
    return _name(kernel.takes) if kernel is not None else "ort-kernel-output"


def rules() -> tuple[Rule, ...]:
    """Return every named rule of this runtime."""
    by_kernel: dict[Kernel, list[str]] = {}
    for provider in RULES.values():
        for op, kernel in provider.items():
            by_kernel.setdefault(kernel.takes, []).append(op)
    return (*_CONVENTIONS, *(_rule_of(kernel, tuple(operators)) for kernel, operators in by_kernel.items()))


def names_of(operator: str) -> tuple[str, ...]:
    """Return the rules of an operator ("Conv", "com.microsoft.Attention"), () if it is unknown."""
    import onnx

    op = operator.rpartition(".")[2]
    # Asked for by the name alone, one of ONNX Runtime's own is found too.
    names = {operator} if "." in operator else {operator, f"com.microsoft.{op}"}
    own = tuple(rule.name for rule in rules() if names & set(rule.operators))
    if not own and not onnx.defs.has(op) and op not in IN_DEFAULT_DOMAIN:
        return ()
    return (*own, "ort-kernel-output")


def _rule_of(kernel: Kernel, operators: tuple[str, ...]) -> Rule:
    rule = carried_out_by(kernel, _name(kernel), operators, _SURE.get(_name(kernel), ("exact",)))
    folders = source_in(inspect.getdoc(scratch) or "")
    file = _FILE.match(rule.text)
    return replace(rule, source=f"{file[1]}, of {folders}" if file else folders)


def _name(kernel: Kernel) -> str:
    return f"ort-{kernel.__name__.strip('_').replace('_', '-')}"
