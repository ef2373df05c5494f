"""Which operators PaddlePaddle can run in place, and into which operand.

Its inplace pass turns an operator into its in-place variant ("relu" into "relu_") when the operand is deleted
after it anyway; the variants, and which operand the result overwrites, are declared in
`paddle/phi/ops/yaml/ops.yaml` and `backward.yaml` ("inplace: (x -> out)"). The table below names them for the
operators of captured programs; `tests/extensions/plugins/paddle` holds it against the variants PaddlePaddle
3.3.1 really has (`tests/data/paddle_cpu.json`).

Operators absent here have no in-place variant there, or none is known here: their result gets memory of its
own, which can only be too much. Sums where gradients meet (`add_n`) have none. `transpose` has one the pass
never uses. Source of the pass's conditions: `paddle/fluid/pir/transforms/general/inplace_pass.cc`.
"""

from __future__ import annotations

from analyzer.graph import Operator, Phase
from analyzer_plugins.static_graph.variables import RESHAPES

# operator -> PaddlePaddle's operator. Its in-place variant ends in "_"; the result goes into operand 0.
_ATEN = "relu sigmoid tanh exp log sqrt rsqrt abs sin cos erf silu elu leaky_relu hardtanh reciprocal square"
_ONNX = (
    "Relu Sigmoid Tanh Exp Log Sqrt Abs Sin Cos Erf Elu Clip Reciprocal Softmax Add Reshape Flatten Squeeze"
    " Unsqueeze"
)
FORWARD = {
    **{f"aten::{name}.default": name for name in _ATEN.split()},
    **{name: name.lower() for name in _ONNX.split()},
    "aten::clamp.default": "clip",
    "aten::_softmax.default": "softmax",
    "aten::add.Tensor": "add",
    "aten::sub.Tensor": "subtract",
    "aten::mul.Tensor": "multiply",
    "aten::div.Tensor": "divide",
    "LeakyRelu": "leaky_relu",
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "divide",
}
# In the backward pass operand 0 is the gradient of the result.
_BACKWARD = "sigmoid tanh leaky_relu elu silu hardtanh hardswish hardsigmoid softplus"
BACKWARD = {
    **{f"aten::{name}_backward.default": f"{name}_grad" for name in _BACKWARD.split()},
    "aten::threshold_backward.default": "relu_grad",
    "aten::native_group_norm_backward.default": "group_norm_grad",
}
RESHAPE = ("reshape", "reshape_grad", "squeeze", "squeeze_grad", "unsqueeze", "unsqueeze_grad")


def operands(operator: Operator) -> tuple[int, ...]:
    """Return the operands whose buffer the operator's first result may reuse."""
    name = operator.name
    forward = operator.phase is not Phase.BACKWARD and name in FORWARD
    return (0,) if forward or name in BACKWARD or name in RESHAPES else ()
