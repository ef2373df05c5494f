"""What TARGET may be, and each way of getting it wrong: one message, a hint, the user's line, never a traceback."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from analyzer import targets
from analyzer.errors import MissingDependencyError, TargetError

GOOD = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x):
        return self.linear(x)

def make_model():
    return Net()

def make_batch(batch):
    return torch.randn(batch, 8), torch.zeros(batch, dtype=torch.int64)

def loss(output, labels):
    return nn.functional.cross_entropy(output, labels)

model = Net()
number = 3
def nothing(): pass
def needs(width): return nn.Linear(width, 1)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(GOOD)
    return path


def loaded(path: Path, source: str, attr: str = "") -> targets.Program:
    path.write_text(source)
    return targets.load(targets.parse(f"{path}{attr}"))


@pytest.mark.parametrize("attr", ["", ":make_model", ":Net", ":model"])
def test_a_file_gives_a_model_without_weights(file: Path, attr: str) -> None:
    program = targets.load(targets.parse(f"{file}{attr}"))
    assert isinstance(program.model, nn.Module)
    assert {p.device.type for p in program.model.parameters()} == {"meta"}
    assert program.make_batch is not None and program.loss is not None
    inputs, labels = program.make_batch(5)
    assert [tuple(x.shape) for x in (*inputs, *labels)] == [(5, 8), (5,)]
    assert {x.device.type for x in (*inputs, *labels)} == {"meta"}


def test_a_package_module_gives_a_model() -> None:
    program = targets.load(targets.parse("torch.nn:ReLU"))
    assert isinstance(program.model, nn.ReLU)
    assert program.make_batch is None and program.loss is None


def test_kinds(tmp_path: Path) -> None:
    for name in ("a.onnx", "b.PT2"):
        (tmp_path / name).write_bytes(b"x")
    assert targets.parse(tmp_path / "a.onnx").kind == "onnx"
    assert targets.parse(str(tmp_path / "b.PT2")).kind == "pt2"
    assert targets.parse("package.module:attr") == targets.Target(
        "module", "package.module:attr", module="package.module", attr="attr"
    )


def test_a_constructor_that_reads_values_is_built_on_the_cpu(tmp_path: Path) -> None:
    program = loaded(
        tmp_path / "m.py",
        "import torch\nfrom torch import nn\ndef make_model():\n    return nn.Linear(int(torch.tensor(3).item()), 2)\n",
    )
    assert isinstance(program.model, nn.Linear) and program.model.in_features == 3


def test_neighbours_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_target.py").write_text("from torch import nn\nblock = nn.Linear\n")
    program = loaded(
        tmp_path / "m.py",
        "from neighbour_of_target import block\ndef make_model():\n    return block(2, 2)\n",
    )
    assert isinstance(program.model, nn.Linear)


def test_an_exported_program(tmp_path: Path) -> None:
    path = tmp_path / "linear.pt2"
    exported = torch.export.export(
        nn.Linear(8, 4), (torch.randn(2, 8),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    torch.export.save(exported, path)
    program = targets.load(targets.parse(path))
    assert program.make_batch is not None
    inputs, labels = program.make_batch(7)
    assert [tuple(x.shape) for x in inputs] == [(7, 8)] and labels == ()
    assert program.own_batch == 2


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "the target is empty", "model.onnx"),
        ("{folder}/absent.onnx", "absent.onnx: no such file", ""),
        ("{folder}/nets.py", "nets.py: no such file", "did you mean 'net.py'?"),
        ("{folder}", "is a folder", "empty.onnx"),
        ("{folder}/weights.bin", "no kind of model is known by the suffix '.bin'", "model.onnx"),
        ("{folder}/net.py:make_modle", "has no attribute 'make_modle'", "did you mean 'make_model'"),
        ("{folder}/net.py:zzz", "has no attribute 'zzz'", "it defines"),
        ("{folder}/net.py:number", "number is a int, which is no model", "must be a torch.nn.Module"),
        ("{folder}/net.py:nothing", "nothing gave nothing (None)", "must be, or return, a torch.nn.Module"),
        ("{folder}/net.py:needs", "needs arguments: width", "make_model()"),
        ("{folder}/empty.onnx:attr", "has no attributes", "alone"),
        ("no_such_package.sub:Model", "no module named no_such_package", "check the name"),
        ("torch.nn:Relu6", "has no attribute 'Relu6'", "ReLU6"),
        ("{folder}/weights.pt2", "cannot be opened as a torch.export program", "torch.export.save"),
    ],
)
def test_bad_targets(file: Path, text: str, message: str, hint: str) -> None:
    for name in ("weights.bin", "empty.onnx", "weights.pt2"):
        (file.parent / name).write_bytes(b"")
    with pytest.raises(TargetError) as caught:
        targets.load(targets.parse(text.format(folder=file.parent)))
    assert message in caught.value.message
    assert hint in caught.value.hint and caught.value.hint


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("make_model = 1\nraise ValueError('no weights here')\n", "m.py:2: ValueError: no weights here"),
        ("def make_model():\n    return 1 / 0\n", "m.py:2: ZeroDivisionError: division by zero"),
        ("def make_model(:\n", "m.py:1: SyntaxError"),
        ("import sys\nmake_model = sys.exit(3)\n", "it ended the program (exit code 3)"),
        ("import no_such_package_at_all as make_model\n", "m.py:1: ModuleNotFoundError"),
    ],
)
def test_code_that_raises_is_named_with_its_line(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(TargetError) as caught:
        loaded(tmp_path / "m.py", source)
    assert message in caught.value.message and caught.value.hint
    assert "\n" not in caught.value.message


def test_a_script_is_not_run_to_find_out_that_it_names_no_model(tmp_path: Path) -> None:
    source = "import argparse\nargparse.ArgumentParser().add_argument('--batch-size')\ndef main(): ...\nraise SystemExit\n"
    with pytest.raises(TargetError, match=r"m\.py has no function make_model\(\)") as caught:
        loaded(tmp_path / "m.py", source)
    run = f"analyze fit --vary=--batch-size --device NAME {tmp_path / 'm.py'}"
    assert "define make_model()" in caught.value.hint and "it defines main" in caught.value.hint
    assert run in caught.value.hint


def test_the_first_cause_of_an_import_that_fails_is_named(tmp_path: Path) -> None:
    """As transformers' parts, which are imported when they are asked for, fail where torchvision does."""
    source = "try:\n    {}['nms']\nexcept KeyError as error:\n    raise ImportError('no LlamaConfig') from error\nmake_model = 1\n"
    with pytest.raises(TargetError) as caught:
        loaded(tmp_path / "m.py", source)
    cause = f"(first KeyError: 'nms', {tmp_path.name}/m.py:2)"
    assert caught.value.message.endswith(f"m.py:4: ImportError: no LlamaConfig {cause}")
    assert "install" not in caught.value.hint and caught.value.hint


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 3", "make_batch(2) returned a int"),
        ("return 1, 2, 3", "make_batch(2) returned a tuple of 3"),
        ("return torch.zeros(batch), 3", "make_batch(2) returned a int among its tensors"),
        ("return {'x': object()}", "make_batch(2) returned a object among its tensors"),
        (
            "return {'x': [torch.zeros(batch), {1, 2}]}, None",
            "make_batch(2) returned a set among its tensors",
        ),
        ("raise RuntimeError('no data')", "m.py:4: RuntimeError: no data"),
    ],
)
def test_a_bad_batch_maker(tmp_path: Path, body: str, message: str) -> None:
    head = "import torch\nmake_model = torch.nn.ReLU\ndef make_batch(batch):\n    "
    program = loaded(tmp_path / "m.py", f"{head}{body}\n")
    assert program.make_batch is not None
    with pytest.raises(TargetError) as caught:
        program.make_batch(2)
    assert message in caught.value.message


def test_a_batch_without_targets(tmp_path: Path) -> None:
    program = loaded(
        tmp_path / "m.py",
        "import torch\nmake_model = torch.nn.ReLU\ndef make_batch(batch):\n    return [torch.zeros(batch)], None\n",
    )
    assert program.make_batch is not None
    inputs, labels = program.make_batch(2)
    assert ([tuple(x.shape) for x in inputs], labels) == ([(2,)], ())


def test_a_loss_by_name(file: Path) -> None:
    function = targets.load_function(f"{file}:loss")
    assert function(torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64)).shape == ()
    with pytest.raises(TargetError, match="not a function"):
        targets.load_function(f"{file}:number")


def test_without_torch_one_sentence_says_what_to_install(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError) as caught:
        targets.load(targets.parse(str(file)))
    assert "gpu-memory-analyzer[torch]" in caught.value.hint


def test_parsing_needs_no_torch() -> None:
    import subprocess

    code = "import sys; from analyzer import targets; targets.parse('a.b:c'); sys.exit('torch' in sys.modules or 'onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
