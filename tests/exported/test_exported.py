"""Exported programs are opened without running what is in them, and their weights stay where they are."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import analyzer  # noqa: E402
from analyzer.errors import TargetError  # noqa: E402
from analyzer.exported import pickles, program  # noqa: E402
from analyzer.exported.archive import Archive  # noqa: E402
from analyzer.files import UnreadableError  # noqa: E402
from analyzer.options import Options  # noqa: E402
from analyzer.targets import load, parse  # noqa: E402


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.large = torch.nn.Linear(128, 512)
        self.register_buffer("table", torch.arange(7))

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            scale = x.mean()
        return self.large(x) * scale + self.table.sum()


class _Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "sound.pt2"
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(_Net(), (torch.randn(4, 128),), dynamic_shapes=({0: batch},))
    torch.export.save(exported, path)
    return path


def rewritten(path: Path, out: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """Write the archive again, each member changed."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return out


def with_program(path: Path, out: Path, change: Callable[[Any], None]) -> Path:
    """Write the archive again with its program's JSON changed."""

    def changed(name: str, content: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return content
        document = json.loads(content)
        change(document)
        return json.dumps(document).encode()

    return rewritten(path, out, changed)


def test_figures_are_those_of_torchs_own_loading(sound: Path) -> None:
    """Weights on the meta device, guards left out: the same bytes."""
    ours, theirs = (analyzer.analyze(sound, batch=8, device="h200", trust=trust) for trust in (False, True))
    for name in ("peak_allocated", "peak_reserved", "device_used", "breakdown", "marks"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_weights_are_not_read(sound: Path) -> None:
    held = dict(load(parse(sound)).model.state_dict())
    assert held["large.weight"].device.type == "meta"
    assert held["table"].tolist() == list(range(7))  # small ones may decide sizes
    real = load(parse(sound), real=True).model.state_dict()
    assert torch.equal(real["large.weight"], torch.export.load(sound).state_dict["large.weight"])


@pytest.mark.parametrize("member", ["sample_inputs/model.pt", "weights/weight_0"])
def test_a_pickle_that_names_a_function_is_refused(sound: Path, tmp_path: Path, member: str) -> None:
    stream = io.BytesIO()
    torch.save(_Touch(tmp_path / "made"), stream)

    def change(name: str, content: bytes) -> bytes:
        if name.endswith("weights_config.json"):
            document = json.loads(content)
            for payload in document["config"].values():
                payload["use_pickle"] |= member.startswith("weights")
            return json.dumps(document).encode()
        return stream.getvalue() if name.endswith(member) else content

    evil = rewritten(sound, tmp_path / "evil.pt2", change)
    with pytest.raises(TargetError, match=r"runs code of its own.*posix\.mkdir") as refused:
        load(parse(evil))
    assert "--trust" in refused.value.hint
    assert not (tmp_path / "made").exists()


def test_what_is_trusted_is_loaded_as_pytorch_does(sound: Path, tmp_path: Path) -> None:
    def change(document: Any) -> None:
        document["graph_module"]["graph"]["nodes"][0]["target"] = "torch.os.getpid"

    evil = with_program(sound, tmp_path / "evil.pt2", change)
    with pytest.raises(TargetError, match=r"the operator 'torch\.os\.getpid'"):
        load(parse(evil))
    with pytest.raises(TargetError, match=r"cannot be opened"):  # PyTorch looks it up
        load(parse(evil), trust=True)
    assert Options.of({"trust": True}).trust


def _first_name(document: Any) -> Any:
    return next(part for part in document["graph_module"]["signature"]["input_specs"] if "user_input" in part)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda d: d["graph_module"]["graph"]["sym_int_values"].update(s={"as_expr": {"expr_str": "print(1)"}}), "size"),
        (lambda d: d["graph_module"]["graph"]["nodes"][0].update(target="torch.ops.aten.from_file.default"), "operator"),
        (lambda d: d["graph_module"]["graph"]["nodes"][0].update(target="torch.ops.aten.__init__"), "Operator"),
        (lambda d: d["graph_module"]["graph"]["nodes"][0].update(target="torch.ops.load_library"), "operator"),
        (lambda d: d["graph_module"]["module_call_graph"][0]["signature"].update(forward_arg_names=["x=print(1)"]), "name"),
        (lambda d: _first_name(d)["user_input"]["arg"]["as_tensor"].update(name="x\n  print(1)"), "name"),
        (lambda d: d["graph_module"]["module_call_graph"].append({"fqn": '"+print(1)+"'}), "name"),
        (
            lambda d: d["graph_module"]["module_call_graph"][0]["signature"].update(
                in_spec='[1, {"type": "collections.defaultdict", "context": {"default_factory_module": "os",'
                ' "default_factory_name": "getcwd", "dict_context": []}, "children_spec": []}]'
            ),
            "factory",
        ),
        (
            lambda d: d["graph_module"]["module_call_graph"][0]["signature"].update(
                in_spec='[1, {"type": "builtins.dict", "context":'
                ' "[{\\"__enum__\\": true, \\"fqn\\": \\"os:x\\", \\"name\\": \\"y\\"}]", "children_spec": []}]'
            ),
            "enumeration",
        ),
    ],
)  # fmt: skip
def test_a_program_that_names_code_is_refused(
    sound: Path, tmp_path: Path, change: Callable[[Any], None], found: str
) -> None:
    evil = with_program(sound, tmp_path / "evil.pt2", change)
    with pytest.raises(TargetError, match=f"(runs code of its own|cannot be opened).*{found}"):
        load(parse(evil))


def test_guards_are_left_out(sound: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    evil = with_program(
        sound,
        tmp_path / "evil.pt2",
        lambda d: d.update(guards_code=[f"__import__('os').mkdir({str(made)!r})"]),
    )
    analyzer.analyze(evil, batch=4)
    assert not made.exists()


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("2*s0 + u3//4", True),
        ("Max(1, FloorDiv(s77, 2))", True),
        ("Mul(Integer(2), Symbol('s77', positive=True, integer=True))", True),
        ("StrictGreaterThan(Symbol('s77', positive=True), Integer(4))", True),
        ("s0**2", True),
        ("9**9**9", False),
        ("9^9^9^9", False),
        ("1<<10**12", False),
        ("LShift(1, 1000000000000)", False),
        ("(s0**64)**99", False),
        ("__import__('os').system('x')", False),
        ("().__class__", False),
        ("Max('print(1)', 2)", False),
        ("[x for x in s0]", False),
        ("(" * 5000, False),
    ],
)
def test_sizes_are_arithmetic(text: str, holds: bool) -> None:
    assert program.is_arithmetic(text) is holds


def test_pickles_name_tensors_alone() -> None:
    stream = io.BytesIO()
    tensors = (
        (torch.ones(2, dtype=torch.bfloat16), torch.nn.Parameter(torch.ones(3))),
        {"n": torch.Size((2,))},
    )
    torch.save(tensors, stream)
    assert pickles.check(stream.getvalue()) == ""
    for evil in (bytearray, os.system, torch.hub.load, getattr):
        assert pickles.foreign(pickle.dumps(evil, 2))
    assert pickles.foreign(pickle.dumps(os.system, 4)) == "something by STACK_GLOBAL"
    with pytest.raises(UnreadableError, match="damaged"):
        pickles.foreign(b"\x80\x02cnothing")


def test_an_archive_is_bounded_before_it_is_unpacked(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a/b", "w") as member:
        for _ in range(64):
            member.write(bytes(1 << 20))
    with bomb.open("rb") as stream, pytest.raises(UnreadableError, match="more than 1,048,576 bytes"):
        Archive(stream).read("a/b", 1 << 20)
    for names in (("a", "a"), ("../a",), ("/a",)):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for name in names:
                archive.writestr(zipfile.ZipInfo(name), b"")
        with pytest.raises(UnreadableError):
            Archive(stream.getvalue())
    lzma = io.BytesIO()
    with zipfile.ZipFile(lzma, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", b"x")
    with pytest.raises(UnreadableError, match="packed"):
        Archive(lzma.getvalue())


def test_a_run_gets_batches_with_numbers(sound: Path) -> None:
    """What PyTorch itself runs (`analyze emulate`, `verify`) has no tensors of the meta device."""
    from analyzer.targets import load, parse

    program = load(parse(str(sound)), real=True)
    assert program.make_batch is not None
    inputs, _ = program.make_batch(3)
    assert {x.device.type for x in inputs} == {"cpu"} and inputs[0].shape[0] == 3


def test_an_older_pytorch_says_that_a_newer_one_wrote_it(
    sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("torch._export.serde.schema.PayloadConfig")
    with pytest.raises(TargetError, match=r"a newer PyTorch than this one \(2\..*\) wrote it"):
        load(parse(sound))
