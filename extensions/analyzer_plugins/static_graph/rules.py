"""The named rules behind the requests of PaddlePaddle's and TensorFlow's executors, for `analyze explain`."""

from __future__ import annotations

from analyzer.runtimes.rules import Rule, carried_out_by, concept
from analyzer_plugins.static_graph.executor import SUMS, VARIABLE, WORKSPACE
from analyzer_plugins.static_graph.kernels import convolution_workspace, gradients_of_sums
from analyzer_plugins.static_graph.variables import variables


def rules() -> tuple[Rule, ...]:
    """Return the rules and concepts shared by both runtimes."""
    return (
        carried_out_by(variables, VARIABLE),
        carried_out_by(convolution_workspace, WORKSPACE, sure=("exact", "measured", "bounded")),
        carried_out_by(gradients_of_sums, SUMS, sure=("bounded",)),
        concept("static-executor", "analyzer_plugins.static_graph.executor"),
        concept("static-variables", "analyzer_plugins.static_graph.variables"),
    )
