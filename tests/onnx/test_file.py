"""Files that are no sound model, or want to make the analyzer read elsewhere: an AnalyzerError each, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, parser

from analyzer.capture.onnx import capture_onnx
from analyzer.devices import resolve
from analyzer.errors import AnalyzerError, TargetError
from analyzer.graph import Category
from analyzer.onnx import file as onnx_file
from analyzer.onnx import model as onnx_model
from analyzer.runtimes.onnxruntime.runtime import predict
from benchmarks.subjects.damaged.damage import fields_of

H200, _ = resolve("h200")

HEADER = '<ir_version: 9, opset_import: ["":18]>'
SMALL = parser.parse_model(
    HEADER + "g (float[N,3,8,8] x) => (float[N,16] y) <float[4,3,3,3] w = {1}, int64[2] s = {0,-1}> "
    "{ c = Conv<kernel_shape=[3,3]>(x, w)  r = Relu(c)  p = MaxPool<kernel_shape=[3,3],strides=[3,3]>(r)  y = Reshape(p, s) }"
)


def weighted(location: str, *, name: str = "w") -> onnx.ModelProto:
    """A model whose weight lies in external data at `location`."""
    tensor = TensorProto(
        name=name, data_type=TensorProto.FLOAT, dims=[4, 4], data_location=TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value=location)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", name], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
        [tensor],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def refuse(path: Path, *words: str, kind: type[AnalyzerError] = TargetError) -> None:
    with pytest.raises(kind) as caught:
        capture_onnx(path, batch=2)
    text = str(caught.value)
    assert caught.value.hint
    assert text.isprintable() or "\n  hint" in text
    for word in words:
        assert word in text


def test_missing_file(tmp_path: Path) -> None:
    refuse(tmp_path / "no.onnx", "no.onnx", "No such file")


def test_folder(tmp_path: Path) -> None:
    refuse(tmp_path, "folder")


def test_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.onnx")
    refuse(tmp_path / "m.onnx", "no regular file")


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.touch()
    refuse(path, "empty")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git lfs pull"),
        (b"PK\x03\x04" + bytes(60), "zip"),
        (b"\x18\x00\x00\x00ORTM" + bytes(60), ".ort"),
        (b"hello, this is no model", "not an ONNX file"),
        (bytes(1000), "not an ONNX file"),
        (b'{"json": [1, 2, 3]}', "not an ONNX file"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    refuse(path, word)


def test_protobuf_without_a_graph(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(onnx.ModelProto(ir_version=8).SerializeToString())
    refuse(path, "no ONNX graph")


@pytest.mark.parametrize(
    ("ir_version", "opset", "word"),
    [
        (999, 18, "IR version 999"),
        (9, 9999, "operator set 9999"),
        (9, 0, "operator set 0"),
        (0, 18, "IR version 0"),
    ],
)
def test_versions(tmp_path: Path, ir_version: int, opset: int, word: str) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(SMALL)
    model.ir_version = ir_version
    model.opset_import[0].version = opset
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    refuse(path, word)


def test_operator_set_named_twice(tmp_path: Path) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(SMALL)
    model.opset_import.add(domain="ai.onnx", version=2**62)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    refuse(path, "operator set")


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("y = Reshape(x)", "has 1 inputs, not 2"),
        ("y = MatMul(x, )", "has 1 inputs, not 2"),
        ("y = Conv( , x)", "lacks its input X"),
        ("y = Concat<axis = 0>(x, , x)", "lacks its input inputs"),
        ("y = Relu(x, x)", "has 2 inputs, not 1"),
        ("y, z = Relu(x)", "has 2 outputs, not 1"),
        ("y, a, b = Split<num_outputs = 2>(x)", "has 3 outputs and says 2"),
        ("y = Softmax<axis = 1.5>(x)", "axis of the Softmax that makes 'y' has the wrong type"),
        ("y = com.microsoft.FusedMatMul(x)", "lacks some of its 2 inputs"),
        ("y = com.microsoft.RotaryEmbedding( , x, x, x)", "lacks some of its 4 inputs"),
    ],
)
def test_no_node_of_its_operator(tmp_path: Path, node: str, said: str) -> None:
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["":18, "com.microsoft":1]> g (float[N,4] x) => (float[N,4] y) {'
        + node
        + "}"
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    refuse(path, said)


def test_no_operator_set(tmp_path: Path) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(SMALL)
    del model.opset_import[:]
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    refuse(path, "operator set")


@pytest.mark.parametrize(
    "location",
    [
        "/etc/passwd",
        "../secret.bin",
        "a/../../secret.bin",
        "C:\\secret.bin",
        "..\\secret.bin",
        "\\\\host\\x",
        "",
    ],
)
def test_external_data_outside_is_refused(tmp_path: Path, location: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(weighted(location).SerializeToString())
    refuse(path, "external data of w")


def test_external_data_through_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "w.bin").write_bytes(bytes(64))
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "w.bin").symlink_to(tmp_path / "outside" / "w.bin")
    (inside / "m.onnx").write_bytes(weighted("w.bin").SerializeToString())
    refuse(inside / "m.onnx", "symbolic link")


def test_absent_external_data_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(weighted("w.bin").SerializeToString())
    graph = capture_onnx(path, batch=2)
    assert [s.nbytes for s in graph.storages if s.category is Category.PARAMETER] == [64]


def test_a_small_shape_in_external_data_is_read_and_named_when_absent(tmp_path: Path) -> None:
    model = parser.parse_model(
        HEADER + "g (float[N,6] x) => (y) <int64[3] s = {0,2,3}> { y = Reshape(x, s) }"
    )
    tensor = model.graph.initializer[0]
    data = onnx.numpy_helper.to_array(tensor).tobytes()
    tensor.ClearField("raw_data")
    tensor.ClearField("int64_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="s.bin")
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    (tmp_path / "s.bin").write_bytes(data)
    output = capture_onnx(path, batch=5).operators[0].outputs[0]
    assert output is not None
    assert output.shape == (5, 2, 3)
    (tmp_path / "s.bin").unlink()
    bounded = capture_onnx(path, batch=5)
    assert bounded.operators[0].outputs[0] is not None
    assert bounded.operators[0].outputs[0].element_count == 30
    assert "'y'" in bounded.notes[0]


def test_names_are_safe_to_print(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(weighted("w.bin", name="w\x1b[31m\n" + "x" * 5000).SerializeToString())
    graph = capture_onnx(path, batch=2)
    names = [s.name for s in graph.storages] + [op.module for op in graph.operators]
    assert all(name.isprintable() and len(name) < 400 for name in names)


def test_nothing_is_written_or_imported(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(SMALL.SerializeToString())
    code = f"from analyzer.capture.onnx import capture_onnx; capture_onnx({str(path)!r}, batch=2)"
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    modules = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in run.stderr.splitlines()}
    assert "onnx" in modules
    assert not modules & {"torch", "onnxruntime", "networkx", "transformers"}
    assert list(tmp_path.iterdir()) == [path]


def test_embedded_weights_take_no_host_memory(tmp_path: Path) -> None:
    """A sparse file of 3 GB, above protobuf's limit, with its weight embedded, in under 300 MiB of host memory."""
    count = 3 << 28  # float32: 3 GiB
    model = weighted("w.bin")
    tensor = model.graph.initializer[0]
    tensor.Clear()
    tensor.name, tensor.data_type = "w", TensorProto.FLOAT
    tensor.dims.extend([4, count // 4])
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = count // 4
    path = tmp_path / "m.onnx"
    _embed(path, model, count * 4)
    code = (
        "from pathlib import Path; from analyzer.capture.onnx import capture_onnx\n"
        f"g = capture_onnx({str(path)!r}, batch=2)\n"
        "peak = Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0]\n"  # KiB
        "print(max(s.nbytes for s in g.storages), peak)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert int(out[0]) == 3 << 30
    assert int(out[1]) < 300 * 1024


def _embed(path: Path, model: onnx.ModelProto, nbytes: int) -> None:
    """Write `model` with `nbytes` of raw_data (a hole in the file) in its only initializer."""
    field = b"\x4a" + onnx_file._encode_varint(nbytes)  # TensorProto.raw_data, field 9
    tensor = model.graph.initializer[0].SerializeToString() + field
    head = (
        b"\x2a" + onnx_file._encode_varint(len(tensor) + nbytes) + tensor
    )  # GraphProto.initializer, field 5
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    del graph.initializer[:]
    rest = graph.SerializeToString()
    shell = onnx.ModelProto()
    shell.CopyFrom(model)
    shell.ClearField("graph")
    start = (
        shell.SerializeToString()
        + b"\x3a"
        + onnx_file._encode_varint(len(rest) + len(head) + nbytes)
        + rest
        + head
    )
    with path.open("wb") as stream:
        stream.write(start)
        stream.truncate(len(start) + nbytes)


def test_stripped_reading_equals_whole_reading() -> None:
    model = onnx.ModelProto()
    model.CopyFrom(SMALL)
    big = onnx.numpy_helper.from_array(numpy.ones((100, 1000), "float32"), "w_big")
    model.graph.initializer.append(big)
    stripped = onnx.ModelProto.FromString(onnx_file.without_bulk(model.SerializeToString()))
    assert stripped.graph.initializer[-1].dims == [100, 1000]
    assert not stripped.graph.initializer[-1].raw_data
    del stripped.graph.initializer[-1], model.graph.initializer[-1]
    assert stripped == model


RAW = SMALL.SerializeToString()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(RAW) - 1))
def test_truncated_files(tmp_path: Path, length: int) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(RAW[:length])
    with pytest.raises(AnalyzerError):
        capture_onnx(path, batch=2)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(RAW) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_files(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    data = bytearray(RAW)
    for place, value in flips:
        data[place] = value
    path = tmp_path / "m.onnx"
    path.write_bytes(bytes(data))
    try:
        graph = capture_onnx(path, batch=2)
    except AnalyzerError as error:
        assert error.message
    else:
        assert all(storage.nbytes >= 0 for storage in graph.storages)


MANY = parser.parse_model(
    '<ir_version: 9, opset_import: ["":18, "com.microsoft":1]>'
    "g (int32[N,6] ids, float[N,3,8,8] image, float[6,N,8] steps) => (float[N,6,8] y, float z, float u, float v)"
    "<float[10,8] words, float[16,8] places, float[8] gamma, float[8] beta, float[8,24] wq, float[24] bq, float[8,8] w,"
    " uint8[8,1,8] packed, float[8] scales, float[1,16,8] lw, float[1,16,4] lr, float[3,4,2,2] cw, int64[1] k = {1}>"
    "{ e, mask = com.microsoft.EmbedLayerNormalization(ids, , words, places, , gamma, beta)"
    "  a = com.microsoft.Attention<num_heads = 2>(e, wq, bq)"
    "  s = com.microsoft.SkipLayerNormalization(a, e, gamma)"
    "  h = com.microsoft.MultiHeadAttention<num_heads = 2>(s, s, s)"
    "  f = com.microsoft.FusedMatMul<transB = 1>(h, w)  b = com.microsoft.BiasGelu(f, beta)"
    "  n = com.microsoft.MatMulNBits<K = 8, N = 8, bits = 4, block_size = 16>(b, packed, scales)"
    "  p, q = Split<axis = 2, num_outputs = 2>(n)  c = Concat<axis = 2>(p, q)"
    '  t = Transpose<perm = [0, 2, 1]>(c)  y = Einsum<equation = "bij,bjk->bik">(c, t)'
    "  best, where = TopK(y, k)  z = ReduceMean<keepdims = 0>(best)"
    "  u = ConvTranspose<strides = [2, 2]>(image, cw)  v = LSTM<hidden_size = 4>(steps, lw, lr)"
    "  found = NonZero(ids) }"
)
NUMBERS = st.sampled_from([0, 1, -1, 2, 3, 7, 2**31, 2**62, -(2**62), 2**63 - 1])
OPERATORS = st.sampled_from(
    ["x", "Reshape", "Concat", "Slice", "Split", "Loop", "If", "TopK", "Tile", "Unique", "LSTM", "Conv", "Pad", "Resize", "Expand", "Gather", "NonZero", "Squeeze", "com.microsoft", "Attention", "FusedMatMul", "MatMulNBits", ""]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_well_formed_nonsense(data: st.DataObject) -> None:
    """Valid protobuf with wrong numbers, names, and missing, doubled or reordered parts: captured, planned, or refused."""
    model = onnx.ModelProto()
    model.CopyFrom(data.draw(st.sampled_from([SMALL, MANY])))
    for _ in range(data.draw(st.integers(1, 3))):
        message, field = data.draw(st.sampled_from(fields_of(model)))
        value = getattr(message, field.name)
        if field.is_repeated:
            items = data.draw(st.permutations(list(value) * 2))[: data.draw(st.integers(0, len(value) + 1))]
            if items and isinstance(items[0], str) and data.draw(st.booleans()):
                items[data.draw(st.integers(0, len(items) - 1))] = ""
            del value[:]
            value.extend(items)
        elif isinstance(value, str):
            setattr(message, field.name, data.draw(OPERATORS))
        elif isinstance(value, int) and field.enum_type is None:
            try:
                setattr(message, field.name, data.draw(NUMBERS))
            except ValueError:
                continue  # the field holds 32 bits
    try:
        shaped = onnx_model.read(model.SerializeToString(), data.draw(st.sampled_from([1, 3, 10**12])))
        graph = capture_onnx(shaped)
        predicted = predict(
            shaped, options={"provider": data.draw(st.sampled_from(["cuda", "cpu"]))}, device=H200
        )
    except AnalyzerError as error:
        assert error.message
    else:
        assert all(storage.nbytes >= 0 for storage in graph.storages)
        assert predicted.held >= predicted.peak_in_use >= 0
