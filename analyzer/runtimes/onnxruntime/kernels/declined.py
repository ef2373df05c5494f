"""Nodes that the CUDA provider has a kernel for, and leaves to the CPU all the same.

1. Recurrent layers that cuDNN does not compute so: with clip or parameters of activations, other activations
   than its own, an LSTM with peepholes or coupled gates, a GRU that resets before the product
   (`linear_before_reset` other than 1).
2. ArgMax and ArgMin that take the last of equal elements.
3. Transposed convolutions that pad both sides by another number, or so that the output is the input times the
   strides (1.20.2 and 1.30.0 themselves, `python -m benchmarks onnx_oracle`: with every stride and size; with
   VALID or an output_shape they run on the GPU).

Source: `core/providers/cuda/cuda_execution_provider.cc` (`RNNNeedFallbackToCPU`,
`ArgMaxOrArgMinNeedFallbackToCPU`).
"""

from __future__ import annotations

from analyzer.runtimes.onnxruntime.graph import Node

_ACTIVATIONS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
_PEEPHOLES = 7  # place among an LSTM's inputs


def declines(node: Node) -> bool:
    """Return whether the CUDA provider leaves the node to the CPU for its attributes."""
    if node.domain:
        return False
    if node.op in ("ArgMax", "ArgMin"):
        return bool(node.attributes.get("select_last_index", 0))
    if node.op == "ConvTranspose":
        pads = node.ints("pads")
        half = len(pads) // 2
        return str(node.attributes.get("auto_pad", "")).startswith("SAME_") or pads[:half] != pads[half:]
    own = _ACTIVATIONS.get(node.op)
    if own is None:
        return False
    if any(name in node.attributes for name in ("activation_alpha", "activation_beta", "clip")):
        return True
    activations = [str(name).lower() for name in node.attributes.get("activations", ())]
    if any(name != own[place % len(own)] for place, name in enumerate(activations)):
        return True
    if node.op == "GRU":
        return int(node.attributes.get("linear_before_reset", 0)) != 1
    peepholes = bool(node.input(_PEEPHOLES))
    return node.op == "LSTM" and (bool(node.attributes.get("input_forget", 0)) or peepholes)
