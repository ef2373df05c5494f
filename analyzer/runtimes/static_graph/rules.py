"""The named rules behind the requests of PaddlePaddle's and TensorFlow's executors, for `analyze explain`."""

from __future__ import annotations

from analyzer.runtimes.rules import Rule, carried_out_by
from analyzer.runtimes.static_graph.executor import SUMS, VARIABLE, WORKSPACE
from analyzer.runtimes.static_graph.kernels import convolution_workspace, gradients_of_sums
from analyzer.runtimes.static_graph.variables import variables


def rules() -> tuple[Rule, ...]:
    """Every named rule both runtimes share."""
    return (
        carried_out_by(variables, VARIABLE),
        carried_out_by(convolution_workspace, WORKSPACE, sure=("exact", "measured", "bounded")),
        carried_out_by(gradients_of_sums, SUMS, sure=("bounded",)),
    )
