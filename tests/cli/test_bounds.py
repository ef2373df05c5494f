"""Inputs without end are refused early, with the limit named: 10 seconds of processor and 1 GiB for each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import helper

from tests.commands import refuses

GIB = 1 << 30
FLOAT = helper.make_tensor_value_info("x", 1, [4])
RESULT = helper.make_tensor_value_info("y", 1, [4])


def one_node(path: Path) -> None:
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [FLOAT], [RESULT])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)


def functions(folder: Path) -> Path:
    """40 functions, each of which calls the next twice: 2^39 nodes where they are called."""
    own = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    made = []
    for number in range(40):
        callee, domain = (f"f{number + 1}", "own") if number < 39 else ("Relu", "")
        nodes = [
            helper.make_node(callee, [a], [b], domain=domain)
            for a, b in (("a", "b"), ("b", "c"))[: 1 + (number < 39)]
        ]
        made.append(helper.make_function("own", f"f{number}", ["a"], [nodes[-1].output[0]], nodes, own))
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="own")], "g", [FLOAT], [RESULT])
    path = folder / "functions.onnx"
    onnx.save(helper.make_model(graph, opset_imports=own, functions=made), path)
    return path


def zeros_behind_a_model(folder: Path) -> Path:
    path = folder / "sparse.onnx"
    one_node(path)
    with path.open("r+b") as stream:
        stream.truncate(20 * GIB)
    return path


def a_comment_of_20_gib(folder: Path) -> Path:
    """`ModelProto.doc_string`, field 6, most of which is a hole in the file."""
    path = folder / "comment.onnx"
    one_node(path)
    length, written = 20 * GIB, bytearray([6 << 3 | 2])
    while length > 0x7F:
        written.append(length & 0x7F | 0x80)
        length >>= 7
    with path.open("r+b") as stream:
        stream.seek(0, 2)
        stream.write(bytes([*written, length]))
        stream.truncate(stream.tell() + 20 * GIB)
    return path


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (functions, "549,755,813,888 nodes where they are called: more than 100,000 are not read"),
        (zeros_behind_a_model, "is truncated or is not an ONNX file (field 0 at byte"),
        (a_comment_of_20_gib, "more than 256 MiB of it are no tensor's content"),
    ],
)
def test_inputs_without_end(made: Callable[[Path], Path], said: str, tmp_path: Path) -> None:
    refuses(made(tmp_path), said)
