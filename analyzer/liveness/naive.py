"""The literature's sum: what textbooks and papers say a model needs, every term shown (document 000).

With D = input batch + output batch, W = parameters, T = those of them that are trained (document 000 trains
all), O = outputs of the leaf layers but the last, b = 0.5 under mixed precision else 1, d = 2 under
distributed data parallel else 1, m = optimizer moments, all in bytes:

1. training  = D + W + O·b + T·(d + m) + (O·b + D)
2. inference = D + W + O·b
3. m counts the tensors of a parameter's size that the optimizer keeps for each parameter: SGD 0; momentum,
   Adagrad, RMSprop 1; Adam 2. `moments_in` counts them in a captured graph, whatever the optimizer.
4. Under mixed precision O is taken in float32, so that b halves it once.
5. T·(d + m) is three things, and each has its name: T of gradients, T·(d - 1) of the copies that are sent to
   the other ranks, T·m of optimizer state.
6. In an ONNX graph the layers are the nodes, without those that only describe or rename a tensor
   (`METADATA`).

Sources: document 000; Gao et al., "Estimating GPU Memory Consumption of Deep Learning Models", ESEC/FSE 2020.

Not modelled: everything else; that is why this is only the first of three estimates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from analyzer.graph import Category, Death, Graph, LeafOutput

FLOAT32_BYTES = 4

# ONNX operators whose result holds no activation: descriptions, and views of their input.
METADATA = frozenset({"Shape", "Size", "Constant", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})


class Leaf(Protocol):
    """Output of a leaf layer; `nbytes` as stored, `element_count` for any precision."""

    @property
    def module(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def element_count(self) -> int: ...
    @property
    def has_parameters(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Naive:
    """Every term of the naive sum in bytes, with the options that enter it.

    weight_gradient: document 000's term T·(d + m), whose parts are `gradients`, `sent_gradients` and
        `optimizer_state`.
    """

    data: int
    weights: int
    forward_output: int
    weight_gradient: int
    output_gradient: int
    precision_factor: float
    ddp_factor: int
    moments: int
    mode: str

    @property
    def inference(self) -> int:
        """Bytes of inference: D + W + O·b."""
        return self.data + self.weights + self.forward_output

    @property
    def gradients(self) -> int:
        """Bytes of the gradients of the weights that are trained: T."""
        return self.weight_gradient // (self.ddp_factor + self.moments)

    @property
    def sent_gradients(self) -> int:
        """Bytes of the copies of gradients that distributed data parallel sends: T·(d - 1)."""
        return self.gradients * (self.ddp_factor - 1)

    @property
    def optimizer_state(self) -> int:
        """Bytes the optimizer keeps: T·m."""
        return self.gradients * self.moments

    @property
    def training(self) -> int:
        """D + W + O·b + T·(d + m) + (O·b + D)."""
        return self.inference + self.weight_gradient + self.output_gradient

    @property
    def total(self) -> int:
        """Bytes for `mode`."""
        return self.training if self.mode == "train" else self.inference


def formula(
    *,
    data_bytes: int,
    weight_bytes: int,
    output_bytes: int,
    moments: int = 0,
    precision_factor: float = 1.0,
    ddp_factor: int = 1,
    mode: str = "train",
    trainable_bytes: int | None = None,
) -> Naive:
    """Return the sums for training and inference from plain numbers: D, W, O, T in bytes (T None: all of W);
    m, b, d."""
    trained = weight_bytes if trainable_bytes is None else trainable_bytes
    # A fraction, not a float: sizes beyond 2^53 stay exact.
    forward_output = int(Fraction(precision_factor) * int(output_bytes))
    return Naive(
        data=data_bytes,
        weights=weight_bytes,
        forward_output=forward_output,
        weight_gradient=trained * (ddp_factor + moments),
        output_gradient=forward_output + data_bytes,
        precision_factor=precision_factor,
        ddp_factor=ddp_factor,
        moments=moments,
        mode=mode,
    )


def from_leaves(
    leaves: Sequence[Leaf],
    *,
    data_bytes: int,
    weight_bytes: int,
    moments: int = 0,
    precision_factor: float = 1.0,
    ddp_factor: int = 1,
    mode: str = "train",
    trainable_bytes: int | None = None,
) -> Naive:
    """Return the sum of leaf outputs in order, O without the last one, counted in float32."""
    mixed = precision_factor != 1
    return formula(
        data_bytes=data_bytes,
        weight_bytes=weight_bytes,
        output_bytes=sum(
            leaf.element_count * FLOAT32_BYTES if mixed else leaf.nbytes for leaf in leaves[:-1]
        ),
        moments=moments,
        precision_factor=precision_factor,
        ddp_factor=ddp_factor,
        mode=mode,
        trainable_bytes=trainable_bytes,
    )


def from_onnx(
    graph: Graph, *, moments: int = 0, precision_factor: float = 1.0, ddp_factor: int = 1, mode: str = "infer"
) -> Naive:
    """Return the sum from an ONNX graph, whose layers are its nodes: W its initializers, D its inputs and
    what is still alive at the end."""
    outputs = {
        tensor.storage for operator in graph.operators for tensor in operator.outputs if tensor is not None
    }
    dead = {moment.storage for moment in graph.program if isinstance(moment, Death)}
    weights = inputs = results = 0
    for storage in graph.storages:
        if storage.category in (Category.PARAMETER, Category.BUFFER):
            weights += storage.nbytes
        elif storage.category is Category.INPUT:
            inputs += storage.nbytes
        elif storage.on_device and storage.index in outputs and storage.index not in dead:
            results += storage.nbytes
    return from_leaves(
        onnx_leaves(graph),
        data_bytes=inputs + results,
        weight_bytes=weights,
        moments=moments,
        precision_factor=precision_factor,
        ddp_factor=ddp_factor,
        mode=mode,
    )


def onnx_leaves(graph: Graph) -> tuple[LeafOutput, ...]:
    """Return the outputs of each node in order, without nodes that only describe or rename a tensor or whose
    results stay on the host."""
    known: set[int] = set()
    leaves = []
    for operator in graph.operators:
        new = [t for t in operator.outputs if t is not None and t.storage not in known]
        known.update(tensor.storage for tensor in operator.inputs)
        known.update(tensor.storage for tensor in new)
        new = [tensor for tensor in new if graph.storages[tensor.storage].on_device]
        if operator.name in METADATA or not new:
            continue
        learns = any(graph.storages[t.storage].category is Category.PARAMETER for t in operator.inputs)
        nbytes = sum(graph.storages[storage].nbytes for storage in {tensor.storage for tensor in new})
        leaves.append(LeafOutput(operator.module, nbytes, sum(t.element_count for t in new), learns))
    return tuple(leaves)


def moments_in(graph: Graph, trainable_bytes: int) -> int:
    """m as captured: optimizer state on the device over trained parameters, to the nearest whole number.

    State that is small beside the parameters (step counters, factored moments) so counts as none.
    """
    state = sum(
        storage.nbytes
        for storage in graph.storages
        if storage.on_device and storage.category is Category.OPTIMIZER_STATE
    )
    return round(Fraction(state, trainable_bytes)) if trainable_bytes else 0
