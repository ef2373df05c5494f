"""ONNX files as a bad guest would send them: external data elsewhere, impossible sizes, graphs without end.

`written(folder)` writes them; each ends in an answer or in one clear error, within bounds (`test_bad_files.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto as T
from onnx import helper as H

EVIL = "<script>alert(1)</script>\x1b[31;1mRED\x1b]0;title\x07\x1b[2J\n\rnew\u202eevil\u2066\t\x9b31m\"'`}</style>"


def _value(name: str, shape: Any, kind: int = T.FLOAT) -> Any:
    return H.make_tensor_value_info(name, kind, shape)


def _model(
    nodes: Any,
    inputs: Any,
    outputs: Any,
    initial: Any = (),
    opset: int = 17,
    functions: Any = (),
    domains: Any = (),
    name: str = "g",
) -> Any:
    opsets = [H.make_opsetid("", opset), *(H.make_opsetid(domain, 1) for domain in domains)]
    graph = H.make_graph(nodes, name, inputs, outputs, list(initial))
    model = H.make_model(graph, opset_imports=opsets, functions=list(functions))
    model.ir_version = 10
    return model


def _x(*shape: int) -> Any:
    return _value("x", shape or (1, 4))


_Y = _value("y", None)


def _one(
    op: str,
    inputs: str = "x",
    shape: tuple[int, ...] = (1, 4),
    initial: Any = (),
    kind: int = T.FLOAT,
    opset: int = 17,
    **attributes: Any,
) -> Any:
    """A model of one operator that makes `y`."""
    node = H.make_node(op, inputs.split(), ["y"], **attributes)
    return _model([node], [_x(*shape)], [_value("y", None, kind)], initial, opset)


def _ints(name: str, *values: int) -> Any:
    return H.make_tensor(name, T.INT64, [len(values)], values)


def _scalars(kind: int, **values: float) -> list[Any]:
    return [H.make_tensor(name, kind, [], [value]) for name, value in values.items()]


def _external(
    location: str,
    offset: Any = None,
    length: Any = None,
    dims: Any = (4,),
    name: str = "w",
    kind: int = T.INT64,
) -> Any:
    tensor = T(name=name, dims=dims, data_type=kind, data_location=T.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def _reshaped(*entry: Any, dims: Any = (4,)) -> Any:
    return _one("Reshape", "x w", initial=[_external(*entry, dims=dims)])


def _field(number: int, content: bytes | int) -> bytes:
    """A field of a message, as it is on the wire."""
    body = _varint(content) if isinstance(content, int) else _varint(len(content)) + content
    return _varint(number << 3 | (0 if isinstance(content, int) else 2)) + body


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def _elsewhere(folder: Path) -> Iterator[tuple[str, Any]]:
    """External data outside the folder, in what is no file, and with offsets that cannot be."""
    (folder.parent / "secret.bin").write_bytes(bytes(32))
    (folder / "ok.bin").write_bytes(bytes([4, *[0] * 7]))
    (folder / "evil.bin").symlink_to(folder.parent / "secret.bin")
    (folder / "evildir").symlink_to(folder.parent)
    (folder / "devzero").symlink_to("/dev/zero")
    os.mkfifo(folder / "fifo.bin")
    secret = str(folder.parent / "secret.bin")
    for number, location in enumerate((
        secret, "../secret.bin", "a/../../secret.bin", "evil.bin", "evildir/secret.bin", "http://127.0.0.1/x", f"file://{secret}",
        "C:\\secret.bin", "..\\secret.bin", "/proc/self/environ", "fifo.bin", "devzero", "a\0b", "", ".", "a" * 5000, "~/x", "missing",
    )):  # fmt: skip
        yield f"external_{number}", _reshaped(location)
    for number, place in enumerate(((10**18, 8), (-5, 8), (0, 10**30), ("abc", "def"), ("9" * 5000, 8))):
        yield f"offset_{number}", _reshaped("ok.bin", *place, dims=(1,))
    yield "external_dims", _reshaped("ok.bin", 0, 8, dims=(2**40, 2**40))


def _sizes() -> Iterator[tuple[str, Any]]:
    """Shapes and numbers no device has."""
    weight = [_external("missing", dims=(8, 3, 3, 3), kind=T.FLOAT)]
    image = (1, 3, 8, 8)
    for number, shape in enumerate(
        ((2**31, 2**31), (-5, 4), (2**63 - 1,) * 3, (-(2**63), 4), (2,) * 1000, (1,) * 100_000, (0, 4))
    ):
        yield f"dims_{number}", _one("Relu", shape=shape)
    for name, attributes in {
        "pads": {"pads": [10**15] * 4}, "stride0": {"strides": [0, 0]}, "group0": {"group": 0}, "negative": {"dilations": [-3, -3], "kernel_shape": [-1, 2]},
    }.items():  # fmt: skip
        yield f"conv_{name}", _one("Conv", "x w", image, weight, **attributes)
    yield "pool", _one("MaxPool", "x", image, kernel_shape=[10**12, 1])
    for number, dims in enumerate(([10**15], [2**62, 2**62], [-5], [10**9], [2] * 1000)):
        yield f"constant_{number}", _one("ConstantOfShape", "s", initial=[_ints("s", *dims)])
    for number, (start, end, step) in enumerate(
        ((0, 10**18, 1), (0, 10, 0), (0, -(10**18), -1), (0, 5 * 10**7, 1))
    ):
        yield (
            f"range_{number}",
            _one("Range", "a b c", initial=_scalars(T.INT64, a=start, b=end, c=step), kind=T.INT64),
        )
    for number, delta in enumerate((0.0, float("nan"), float("inf"), 1e-30)):
        yield (
            f"range_float_{number}",
            _one("Range", "a b c", initial=_scalars(T.FLOAT, a=0.0, b=1e30, c=delta)),
        )
    for number, scale in enumerate(
        ([1e18, 1, 1e18, 1e18], [float("nan")] * 4, [float("inf")] * 4, [-1.0] * 4, [0.0] * 4)
    ):
        scales = [H.make_tensor("sc", T.FLOAT, [4], scale)]
        node = H.make_node("Resize", ["x", "", "sc"], ["y"])
        yield f"resize_{number}", _model([node], [_x(*image)], [_Y], scales)
    yield "expand", _one("Expand", "x s", initial=[_ints("s", 10**12, 4)])
    yield "tile", _one("Tile", "x r", initial=[_ints("r", -3, 10**18)])
    yield "pad", _one("Pad", "x p", initial=[_ints("p", 10**15, 0, -(10**15), 10**15)])
    yield "topk", _model([H.make_node("TopK", ["x", "k"], ["y", "i"])], [_x()], [_Y], [_ints("k", -(10**15))])
    yield (
        "slice",
        _one(
            "Slice",
            "x a b ax st",
            (10, 4),
            [_ints("a", 2**63 - 1), _ints("b", -(2**63)), _ints("ax", 0), _ints("st", 0)],
        ),
    )
    yield "gather", _one("Gather", "x i", initial=[_ints("i", 10**18)], axis=-7)
    yield "nonzero", _one("NonZero", shape=(10**6, 10**6), kind=T.INT64)
    yield "einsum", _one("Einsum", "x x", equation="a" * 100_000 + "->%s")
    yield "reshape", _one("Reshape", "x s", initial=[_ints("s", -1, -1, 0, 7)])
    yield "transpose", _one("Transpose", perm=[5, -9])
    yield "dft", _one("DFT", "x l", (1, 8, 1), _scalars(T.INT64, l=10**15), opset=20)
    yield "scan", _one("Scan", num_scan_inputs=10**9, body=H.make_graph([], "b", [], []))
    yield (
        "lstm",
        _one(
            "LSTM",
            "x w r",
            (10**9, 2, 3),
            [
                _external("no", dims=(1, 16, 3), kind=T.FLOAT),
                _external("no", dims=(1, 16, 4), name="r", kind=T.FLOAT),
            ],
            hidden_size=-3,
        ),
    )


def _loops() -> Iterator[tuple[str, Any]]:
    condition = [_value("it", [], T.INT64), _value("ci", [], T.BOOL), _value("v", None)]
    grow = [H.make_node("Identity", ["ci"], ["co"]), H.make_node("Concat", ["v", "v"], ["vo"], axis=0)]
    body = H.make_graph(grow, "b", condition, [_value("co", [], T.BOOL), _value("vo", None)])
    for number, trips in enumerate((10**12, 2**63 - 1, -5, 60)):
        node = H.make_node("Loop", ["M", "", "x"], ["y"], body=body)
        yield f"loop_{number}", _model([node], [_x()], [_Y], _scalars(T.INT64, M=trips))
    one, two = (
        H.make_graph([H.make_node("Relu", ["x"], [f"t{n}"])], "b", [], [_value(f"t{n}", None)][: n + 1])
        for n in (0, 1)
    )
    test = _value("c", [], T.BOOL)
    yield "if_no_else", _model([H.make_node("If", ["c"], ["y"], then_branch=one)], [_x(), test], [_Y])
    yield (
        "if_wrong",
        _model([H.make_node("If", ["c"], ["y"], then_branch=5, else_branch="x")], [_x(), test], [_Y]),
    )
    for depth in (20, 30):
        graph = one
        for level in range(depth):
            node = H.make_node("If", ["c"], [f"o{level}"], then_branch=graph, else_branch=two)
            graph = H.make_graph([node], f"g{level}", [], [_value(f"o{level}", None)])
        yield f"if_{depth}_deep", _model(graph.node, [_x(), test], graph.output)
    for name, start in (("of_input", "x"), ("of_constant", "w")):
        nodes = [
            H.make_node("Concat", [f"c{n - 1}" if n else start] * 2, [f"c{n}"], axis=0) for n in range(60)
        ]
        nodes.append(
            H.make_node("Reshape", ["x", "c59"], ["y"])
            if start == "w"
            else H.make_node("Relu", ["c59"], ["y"])
        )
        yield f"doubled_{name}", _model(nodes, [_x()], [_Y], [_ints("w", 1, 1)])


def _graphs() -> Iterator[tuple[str, Any]]:
    relu = H.make_node("Relu", ["x"], ["y"])
    yield (
        "cycle",
        _model(
            [H.make_node("Add", ["x", "b"], ["a"]), H.make_node("Relu", ["a"], ["b"]), relu], [_x()], [_Y]
        ),
    )
    yield "twice", _model([relu, relu], [_x()], [_Y])
    yield "nothing_reads", _model([H.make_node("Relu", ["missing"], ["y"])], [_x()], [_Y])
    yield "no_such_output", _model([relu], [_x()], [_value("zz", None)])
    yield "two_inputs", _model([relu], [_x(), _x(2, 3)], [_Y])
    yield "empty_graph", _model([], [], [])
    for name, calls, doubled in (("chain", 3000, False), ("doubled", 40, True), ("mutual", 2, False)):
        functions = []
        for n in range(calls + 1):
            to = f"F{(n + 1) % calls}" if name == "mutual" else f"F{n + 1}"
            last = [H.make_node("Relu", ["a"], ["b"])]
            first = [H.make_node(to, ["a"], ["c"], domain="d")] if doubled else []
            nodes = [*first, H.make_node(to, ["c" if doubled else "a"], ["b"], domain="d")]
            functions.append(
                H.make_function(
                    "d",
                    f"F{n}",
                    ["a"],
                    ["b"],
                    last if n == calls else nodes,
                    [H.make_opsetid("d", 1), H.make_opsetid("", 17)],
                )
            )
        call = H.make_node("F0", ["x"], ["y"], domain="d")
        yield f"functions_{name}", _model([call], [_x()], [_Y], functions=functions, domains=["d"])
    yield (
        "names",
        _model(
            [
                H.make_node("Relu", ["x"], [EVIL], name=EVIL, doc_string=EVIL),
                H.make_node("Add", [EVIL, EVIL], ["y"], name=EVIL),
            ],
            [_x()],
            [_Y],
            name=EVIL,
        ),
    )
    yield (
        "operator",
        _model([H.make_node(EVIL, ["x"], ["y"], name=EVIL, domain=EVIL)], [_x()], [_Y], domains=[EVIL]),
    )
    for name, kind in (("type_99", 99), ("type_0", 0), ("type_negative", -1)):
        model = _one("Relu")
        model.graph.input[0].type.tensor_type.elem_type = kind
        yield name, model
    for name, version in (("opset_0", 0), ("opset_999", 999), ("opset_negative", -(2**63))):
        model = _one("Relu")
        model.opset_import[0].version = version
        yield name, model
    model = _one("Relu")
    model.ir_version = 10**15
    yield "ir_version", model
    for count in (8_000, 20_000):
        node = H.make_node("Split", ["x"], [f"y{n}" for n in range(count)], num_outputs=count)
        yield f"split_{count}", _model([node], [_x(count, 4)], [_value("y0", None)], opset=18)
    yield "attributes", _one("Relu", **{f"a{n}": n for n in range(20_000)})
    transposed = H.make_node("Transpose", ["w"], ["t"], perm=[1, 0])
    gemms = [H.make_node("Gemm", ["x", "t"], [f"y{n}"], alpha=1.0 + n) for n in range(10_000)]
    results = [_value(f"y{n}", None) for n in range(10_000)]
    yield "shared_transpose", _model([transposed, *gemms], [_x(4, 32), _value("w", [32, 32])], results)
    copies = [H.make_node("Relu", ["x"], [f"v{n}"]) for n in range(12_000)]
    total = H.make_node("Sum", [f"v{n}" for n in range(12_000)], ["y"])
    yield "equal_nodes", _model([*copies, total], [_x()], [_Y])
    yield "operator_of_megabytes", _one("Q" * 5_000_000)
    yield (
        "dimensions_of_an_input",
        _model([H.make_node("Relu", ["x"], ["y"])], [_value("x", [f"d{n}" for n in range(20_000)])], [_Y]),
    )
    yield "wide", _model([H.make_node("Sum", ["x"] * 100_000, ["y"])], [_x()], [_Y])


def _bytes() -> Iterator[tuple[str, bytes]]:
    sound = _one("Relu").SerializeToString()
    yield from {
        "truncated": sound[: len(sound) // 2],
        "one_short": sound[:-1],
        "empty": b"",
        "zeros": bytes(1000),
        "text": b"hello world\n" * 20,
    }.items()
    yield from {
        "html": b"<html>404</html>",
        "gzip": b"\x1f\x8b\x08" + bytes(range(100)),
        "zip": b"PK\x03\x04" + bytes(range(100)),
    }.items()
    yield "lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 1\n"
    yield "pickle", b"cos\nsystem\n(S'true'\ntR."
    yield "claims", _field(1, 8) + b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f" + b"a" * 100
    yield "varint", b"\xff" * 40
    yield "nested", b"\x3a\xff\xff\xff\xff\x07" + b"\x0a" * 1000
    graph = _field(1, _field(2, b"y") + _field(4, b"Relu") + _field(1, b"x")) + _field(12, _field(1, b"y"))
    for _ in range(1000):
        attribute = _field(5, _field(1, b"then_branch") + _field(6, graph) + _field(20, 5))
        graph = _field(1, _field(2, b"y") + _field(4, b"If") + _field(1, b"c") + attribute) + _field(
            12, _field(1, b"y")
        )
    yield "deep_1000", _field(1, 8) + _field(7, graph) + _field(8, _field(2, 17))
    nodes = b"".join(
        _field(1, _field(1, b"t%d" % n) + _field(2, b"t%d" % (n + 1)) + _field(4, b"Relu"))
        for n in range(1_000_000)
    )
    ends = _field(11, _value("t0", [1, 4]).SerializeToString()) + _field(
        12, _value("t1000000", [1, 4]).SerializeToString()
    )
    yield "million_nodes", _field(1, 8) + _field(8, _field(2, 17)) + _field(7, nodes + ends)


def written(folder: Path) -> list[Path]:
    """Write every file; return their paths."""
    paths = []
    for name, content in (*_elsewhere(folder), *_sizes(), *_loops(), *_graphs(), *_bytes()):
        path = folder / f"{name}.onnx"
        path.write_bytes(content.SerializeToString() if isinstance(content, onnx.ModelProto) else content)
        paths.append(path)
    return paths
