"""The captured graph as text, for `--dump-graph`.

A PyTorch step is printed as its `torch.fx` graph (the first iteration: the others repeat it). An ONNX graph
is printed in the same manner, a line a node: `%12 : float32[64,64,112,112] = Conv(%0, %5)  # node name`,
where %N is storage N.
"""

from __future__ import annotations

from analyzer.graph import Argument, Graph, Operator, TensorMeta


def dump(graph: Graph) -> str:
    """Return the text, ending with a newline."""
    if graph.framework == "pytorch":
        from analyzer.capture.pytorch import fx

        return fx.dump(graph)
    names = (
        f"%{storage.index} is {storage.category.value} {storage.name}"
        for storage in graph.storages
        if storage.name
    )
    return "".join(f"{line}\n" for line in (*map(_line, graph.operators), "", *names))


def _line(operator: Operator) -> str:
    results = ", ".join(_result(output) for output in operator.outputs)
    domain = f"{operator.domain}::" if operator.domain else ""
    keywords = (f"{name}={_argument(value)}" for name, value in operator.keywords.items())
    arguments = ", ".join((*map(_argument, operator.arguments), *keywords))
    place = " ".join(part for part in (operator.module, operator.source) if part)
    return f"{results} = {domain}{operator.name}({arguments})" + (f"  # {place}" if place else "")


def _result(output: TensorMeta | None) -> str:
    return (
        "_" if output is None else f"%{output.storage} : {output.dtype}[{','.join(map(str, output.shape))}]"
    )


def _argument(argument: Argument) -> str:
    if isinstance(argument, TensorMeta):
        return f"%{argument.storage}"
    if isinstance(argument, tuple):
        return f"[{', '.join(map(_argument, argument))}]"
    return repr(argument) if isinstance(argument, str) else str(argument)
