"""The small static programs `observe.py` runs under PaddlePaddle, one function each; side is their width.

Their twins in PyTorch are in `tests/extensions/plugins/paddle/twins.py`. Every large tensor has side x side float32 elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SIDE = 512


def chain(paddle: Any, x: Any) -> Any:
    """Activations and products in turn: one of two dies at each step."""
    for _ in range(6):
        x = paddle.matmul(paddle.nn.functional.relu(x), x)
    return paddle.sum(x)


def unary(paddle: Any, x: Any) -> Any:
    """A row of operators that can all run in place."""
    x = paddle.matmul(x, x)
    for _ in range(4):
        x = paddle.tanh(x)
    return paddle.sum(x)


def reshape(paddle: Any, x: Any) -> Any:
    """Reshapes between two products: the guide's example of an operator that runs in place."""
    x = paddle.matmul(x, x)
    x = paddle.tanh(paddle.reshape(x, [SIDE * SIDE]))
    x = paddle.reshape(x, [SIDE // 2, SIDE * 2])
    return paddle.sum(paddle.tanh(x))


def transpose(paddle: Any, x: Any) -> Any:
    """Transpositions that nothing absorbs."""
    x = paddle.tanh(paddle.transpose(paddle.matmul(x, x), [1, 0]))
    return paddle.sum(paddle.tanh(paddle.transpose(x, [1, 0])))


def residual(paddle: Any, x: Any) -> Any:
    """A sum whose first operand lives on, and one whose first operand dies."""
    a = paddle.matmul(x, x)
    c = paddle.add(a, paddle.tanh(a))
    return paddle.sum(paddle.add(c, a))


def biased(paddle: Any, x: Any) -> Any:
    """Two linear layers: the bias is added in an operator of its own."""
    first, second = (paddle.nn.Linear(SIDE, SIDE) for _ in range(2))
    return paddle.sum(second(first(x)))


def perceptron(paddle: Any, x: Any) -> Any:
    """Linear, ReLU, linear, without biases: trained."""
    first, second = (paddle.nn.Linear(SIDE, SIDE, bias_attr=False) for _ in range(2))
    return paddle.sum(second(paddle.nn.functional.relu(first(x))))


def shared(paddle: Any, x: Any) -> Any:
    """A tensor three operators read: their gradients meet."""
    first, second = (paddle.nn.Linear(SIDE, SIDE, bias_attr=False) for _ in range(2))
    h = paddle.tanh(first(x))
    return paddle.sum(paddle.add(paddle.add(second(h), paddle.nn.functional.sigmoid(h)), paddle.tanh(h)))


# name -> (program, optimizer or "").
PROGRAMS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "chain": (chain, ""),
    "unary": (unary, ""),
    "reshape": (reshape, ""),
    "transpose": (transpose, ""),
    "residual": (residual, ""),
    "biased": (biased, ""),
    "perceptron_sgd": (perceptron, "SGD"),
    "perceptron_adam": (perceptron, "Adam"),
    "shared_sgd": (shared, "SGD"),
}
# FLAGS_eager_delete_tensor_gb: at once, with 3 MiB of garbage, never.
THRESHOLDS_GB = (0.0, 3 / 1024, -1.0)
