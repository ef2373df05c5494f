"""The named rules behind the requests of PaddlePaddle's and TensorFlow's executors, for `analyze explain`."""

from __future__ import annotations

from analyzer.runtimes.rules import Rule, told_by
from analyzer.runtimes.static_graph.executor import SUMS, VARIABLE, WORKSPACE
from analyzer.runtimes.static_graph.kernels import convolution_workspace, gradients_of_sums
from analyzer.runtimes.static_graph.variables import variables


def rules() -> tuple[Rule, ...]:
    """Every named rule both runtimes share."""
    return (
        told_by(variables, VARIABLE),
        told_by(convolution_workspace, WORKSPACE, sure=("exact", "measured", "bounded")),
        told_by(gradients_of_sums, SUMS, sure=("bounded",)),
    )
