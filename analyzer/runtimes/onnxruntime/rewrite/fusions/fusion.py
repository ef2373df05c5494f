"""Fusions: functions that join nodes, each with the operators it begins at, takes in and makes, and its
source.

Operators of ONNX go by their name, others by "domain.name".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor

MICROSOFT = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Fusion:
    """name: of ONNX Runtime's transformer; source: its file under `core/optimizer`.

    begins: operators it is tried at; takes: operators it looks for around them; makes: what the fused node
    may be.
    """

    name: str
    source: str
    begins: tuple[str, ...]
    takes: tuple[str, ...]
    makes: tuple[str, ...]
    apply: Callable[[Editor], None]

    @property
    def operators(self) -> frozenset[str]:
        """Every operator the fusion reads, removes or makes."""
        return frozenset((*self.begins, *self.takes, *self.makes))


def fusion(
    name: str, source: str, *, begins: tuple[str, ...], takes: tuple[str, ...], makes: tuple[str, ...]
) -> Callable[[Callable[[Editor, Node], None]], Fusion]:
    """Return a fusion from a function that looks at one node: tried at each node of `begins`, in execution
    order."""

    def register(fuse: Callable[[Editor, Node], None]) -> Fusion:
        @wraps(fuse)
        def apply(editor: Editor) -> None:
            for node in editor.ordered(*begins):
                nobody_runs = editor.partitioned and not node.provider
                if node.index in editor.graph.nodes and not nobody_runs:
                    fuse(editor, node)

        return Fusion(name, source, begins, takes, makes, apply)

    return register


def whole_graph(
    name: str, source: str, *, begins: tuple[str, ...], takes: tuple[str, ...], makes: tuple[str, ...]
) -> Callable[[Callable[[Editor], None]], Fusion]:
    """Return a fusion from a function that finds its nodes itself."""

    def register(apply: Callable[[Editor], None]) -> Fusion:
        return Fusion(name, source, begins, takes, makes, apply)

    return register
