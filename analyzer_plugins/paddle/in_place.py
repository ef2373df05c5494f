"""Which operators PaddlePaddle can run in place, and into which operand.

Its inplace pass turns an operator into its in-place variant ("relu" into "relu_") when the operand is deleted
after it anyway; the variants, and which operand the result overwrites, are declared in
`paddle/phi/ops/yaml/ops.yaml` and `backward.yaml` ("inplace: (x -> out)"). The table below names them for the
operators of captured programs; `tests/plugins/paddle` holds it against the variants PaddlePaddle 3.3.1 really
has (`tests/data/paddle_cpu.json`).

Operators absent here have no in-place variant there, or none is known here: their result gets memory of its
own, which can only be too much. Sums where gradients meet (`add_n`) have none. `transpose` has one the pass
never uses. Source of the pass's conditions: `paddle/fluid/pir/transforms/general/inplace_pass.cc`.
"""

from __future__ import annotations

from analyzer.graph import Operator, Phase
from analyzer_plugins.static_graph.variables import RESHAPES

# operator -> PaddlePaddle's operator. Its in-place variant ends in "_"; the result goes into operand 0.
FORWARD = {
    "aten::relu.default": "relu", "aten::sigmoid.default": "sigmoid", "aten::tanh.default": "tanh",
    "aten::exp.default": "exp", "aten::log.default": "log", "aten::sqrt.default": "sqrt",
    "aten::rsqrt.default": "rsqrt", "aten::abs.default": "abs", "aten::sin.default": "sin",
    "aten::cos.default": "cos", "aten::erf.default": "erf", "aten::silu.default": "silu",
    "aten::elu.default": "elu", "aten::leaky_relu.default": "leaky_relu",
    "aten::hardtanh.default": "hardtanh", "aten::clamp.default": "clip",
    "aten::reciprocal.default": "reciprocal", "aten::square.default": "square",
    "aten::_softmax.default": "softmax", "aten::add.Tensor": "add", "aten::sub.Tensor": "subtract",
    "aten::mul.Tensor": "multiply", "aten::div.Tensor": "divide", "Relu": "relu", "Sigmoid": "sigmoid",
    "Tanh": "tanh", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Abs": "abs", "Sin": "sin", "Cos": "cos",
    "Erf": "erf", "Elu": "elu", "LeakyRelu": "leaky_relu", "Clip": "clip", "Reciprocal": "reciprocal",
    "Softmax": "softmax", "Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide",
    "Reshape": "reshape", "Flatten": "flatten", "Squeeze": "squeeze", "Unsqueeze": "unsqueeze",
}  # fmt: skip
# In the backward pass operand 0 is the gradient of the result.
BACKWARD = {
    "aten::threshold_backward.default": "relu_grad", "aten::sigmoid_backward.default": "sigmoid_grad",
    "aten::tanh_backward.default": "tanh_grad", "aten::leaky_relu_backward.default": "leaky_relu_grad",
    "aten::elu_backward.default": "elu_grad", "aten::silu_backward.default": "silu_grad",
    "aten::hardtanh_backward.default": "hardtanh_grad", "aten::hardswish_backward.default": "hardswish_grad",
    "aten::hardsigmoid_backward.default": "hardsigmoid_grad",
    "aten::softplus_backward.default": "softplus_grad",
    "aten::native_group_norm_backward.default": "group_norm_grad",
}  # fmt: skip
RESHAPE = ("reshape", "reshape_grad", "squeeze", "squeeze_grad", "unsqueeze", "unsqueeze_grad")


def operands(operator: Operator) -> tuple[int, ...]:
    """Return the operands whose buffer the operator's first result may reuse."""
    name = operator.name
    forward = operator.phase is not Phase.BACKWARD and name in FORWARD
    return (0,) if forward or name in BACKWARD or name in RESHAPES else ()
