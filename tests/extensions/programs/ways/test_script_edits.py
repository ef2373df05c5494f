"""Changes of a program's text: what they say, and that none of them harms what is trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzer.graph.calls import ModelCall
from analyzer.options import Options
from analyzer.pipeline.diagnosis import diagnosed
from analyzer_programs.program import follow
from analyzer_programs.ways.batch_edits import accumulated, smaller
from analyzer_programs.ways.script_edits import Symptoms, edits
from analyzer_programs.ways.way_out import _pairs, ways_out

MODEL = "import torch, torch.nn as nn\nnet = nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]).cuda()\n"
DISTILLED = (
    MODEL
    + """teacher = nn.Sequential(*[nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4)]).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(16384, 512, device="cuda")
    loss = (net(x) - teacher(x)).square().mean()
    loss.backward(); opt.step(); opt.zero_grad()
"""
)
# The second term is of a helper without a backward pass of its own: under no_grad the rest would still train.
TWO_TERMS = (
    MODEL
    + """opt = torch.optim.SGD(net.parameters(), lr=0.1)
def term():
    return net(torch.randn(16384, 512, device="cuda")).square().mean()
kept = []
for step in range(12):
    loss = term()
    kept.append(net(torch.randn(16384, 512, device="cuda")))
    loss.backward(); opt.step(); opt.zero_grad()
"""
)
RETRIED = (
    MODEL
    + """opt = torch.optim.SGD(net.parameters(), lr=0.1)
def train(batch):
    net(torch.randn(batch, 512, device="cuda")).square().mean().backward()
    opt.step(); opt.zero_grad()
for step in range(3):
    try:
        train(65536)
    except torch.OutOfMemoryError:
        train(32768)
"""
)
CYCLES = (
    MODEL
    + """class Step:
    def __init__(self, x):
        self.out = net(x)
        self.me = self
with torch.no_grad():
    for step in range(40):
        Step(torch.randn(16384, 512, device="cuda"))
"""
)


def found(tmp_path: Path, text: str, device: str):  # type: ignore[no-untyped-def]
    script = tmp_path / "program.py"
    script.write_text(text)
    options = Options.of({"device": device})
    analysis = diagnosed(follow(script, (), options, {})[0])
    assert analysis.estimate.out_of_memory is not None
    return analysis, ways_out(str(script), (), options, {}, "end", analysis).remedies


def test_gradients_of_what_no_optimizer_trains(tmp_path: Path) -> None:
    analysis, remedies = found(tmp_path, DISTILLED, "1700MiB")
    assert [model.optimized for model in analysis.graph.models] == [True, False]
    assert remedies[0].name == "no gradients of what no optimizer trains" and not remedies[0].numbers
    assert "+teacher.requires_grad_(False)" in remedies[0].typed and "net.requires" not in remedies[0].typed


def test_nothing_that_is_trained_loses_its_gradients(tmp_path: Path) -> None:
    _, remedies = found(tmp_path, TWO_TERMS, "1700MiB")
    assert remedies and not any("no_grad" in one.typed for one in remedies)
    assert any("kept.append((net" in one.typed and ".detach().cpu()" in one.typed for one in remedies)


def test_what_an_exception_keeps(tmp_path: Path) -> None:
    """The frames of the first attempt keep what it had made: less is left for the second."""
    analysis, remedies = found(tmp_path, RETRIED, "1700MiB")
    failed = analysis.estimate.out_of_memory
    # Inputs of four layers and more: 65,536 rows of 512 numbers of 4 bytes.
    assert failed.exception_bytes >= 4 * 65536 * 512 * 4
    assert failed.exception_bytes <= failed.allocated_bytes and not failed.cycle_bytes
    assert "clear_frames" in remedies[0].typed


def test_what_lies_in_cycles(tmp_path: Path) -> None:
    analysis, remedies = found(tmp_path, CYCLES, "900MiB")
    growth = analysis.estimate.growth
    assert growth.held_by == "a reference cycle" and growth.step_bytes == 16384 * 512 * 4
    assert growth.source == "program.py:5"
    assert "gc.collect()" in remedies[0].typed


LOOPS = {
    "range": "for step in range(N):\n    loss = f(x)\n    loss.backward(); opt.step(); opt.zero_grad()\n    log(loss)\n",
    "enumerate": "for n, (a, b) in enumerate(pairs):\n    opt.zero_grad()\n    loss = f(x)\n    loss.backward()\n    clip_grad_norm_(ps)\n    opt.step()  # it\n",
    "neither": "for a, b in pairs:\n    loss = f(x)\n    loss.backward()\n    opt.step()\n    log(loss)\n    opt.zero_grad()\n",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_an_optimizer_steps_after_so_many_parts(loop: str) -> None:
    """The loop itself says so, and the losses' mean is what it was."""
    head = "batch_size = 64\nopt = torch.optim.SGD(net.parameters())\n"
    (edit,) = accumulated(head + LOOPS[loop], (), [], 4)
    assert "batch_size = 16" in edit.text and "lambda" not in edit.text
    did: list[str] = []

    class Thing:
        def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
            return lambda *_: did.append(name) or self

        def __truediv__(self, by: int) -> Thing:
            did.append(f"/{by}")
            return self

    one = Thing()
    names = {"torch": one, "net": one, "N": 8, "pairs": [(1, 2)] * 8, "x": 1, "f": lambda _: one}
    names |= {"log": one.log, "ps": 1, "clip_grad_norm_": one.clip}
    program = edit.text.replace("torch.optim.SGD(net.parameters())", "net")
    exec(program, names)
    assert did.count("/4") == did.count("backward") == 8
    assert did.count("step") == did.count("zero_grad") == 2
    last = [name for name in did if name in ("backward", "step")]
    assert last == ["backward"] * 4 + ["step"] + ["backward"] * 4 + ["step"]
    assert did.count("clip") in (0, 2) and did.count("log") in (0, 8)


def test_two_optimizers_are_left_alone() -> None:
    text = "a = optim.SGD(p)\nb = optim.SGD(q)\nbatch_size = 8\nloss.backward()\n"
    (edit,) = accumulated(text, (), [], 2)
    assert edit.text == "" and edit.why


def test_an_option_for_accumulation() -> None:
    text = "p.add_argument('--gradient_accumulation_steps', type=int, default=1)\n"
    (edit,) = accumulated(text, ("--batch-size", "8", "--gradient_accumulation_steps=2"), [], 2)
    assert edit.arguments == ("--batch-size", "4", "--gradient_accumulation_steps=4")
    (edit,) = accumulated(text, ("--batch-size", "8"), [], 2)
    assert edit.arguments == ("--batch-size", "4", "--gradient_accumulation_steps", "2")


def test_a_trainers_accumulation() -> None:
    (edit,) = accumulated("args = TrainingArguments('out', per_device_train_batch_size=8)\n", (), [], 2)
    assert "per_device_train_batch_size=4, gradient_accumulation_steps=2)" in edit.text


@pytest.mark.parametrize("name", ["num_batches", "n_batch", "max_batch", "batches"])
def test_a_number_of_batches_is_no_batch(name: str) -> None:
    assert smaller(f"{name} = 64\n", (), [], 2) == []


@pytest.mark.parametrize("name", ["per_device_train_batch_size", "batch_size", "BATCH", "bs", "microbatch"])
def test_names_of_batches(name: str) -> None:
    assert [edit.text for edit in smaller(f"{name} = 64\n", (), [], 2)] == [f"{name} = 32\n"]


def test_one_batch_of_two_alone() -> None:
    text = "a = DataLoader(d, batch_size=8)\nb = DataLoader(d, batch_size=64)\n"
    names = {edit.name: edit.text for edit in smaller(text, (), [], 2)}
    assert names["batch of line 2 divided by 2"] == text.replace("64", "32")
    assert names["batch divided by 2"] == text.replace("64", "32").replace("8)", "4)")


def test_a_loss_in_parts_is_the_loss() -> None:
    import torch

    text = "import torch\nx = make()\nloss = torch.nn.functional.cross_entropy(x, y)\n"
    (edit,) = [edit for edit in edits(text, [], Symptoms(True)) if edit.name == "loss in 8 parts"]
    x, y = torch.randn(37, 11, requires_grad=True), torch.randint(0, 11, (37,))
    names = {"make": lambda: x, "y": y}
    exec(edit.text, names)
    whole = torch.nn.functional.cross_entropy(x, y)
    torch.testing.assert_close(names["loss"], whole)
    (there,), (here,) = torch.autograd.grad(whole, x), torch.autograd.grad(names["loss"], x)
    torch.testing.assert_close(here, there)


def test_saved_tensors_on_the_host_are_the_same() -> None:
    import torch

    text = "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())\nout = net(x)\n"
    model = ModelCall("net", "program.py", 3)
    (edit,) = [edit for edit in edits(text, [model], Symptoms(True)) if "host" in edit.name]
    x = torch.randn(3, 4, requires_grad=True)
    names = {"x": x}
    exec(edit.text, names)
    names["out"].sum().backward()
    again = names["net"](x.detach().requires_grad_())
    torch.testing.assert_close(names["out"], again)
    assert x.grad is not None


SAVED = {
    "in a with": "    with torch.autocast('cpu', enabled=False):\n        out = net(x)\n        loss = out.sum()\n    loss.backward()\n",
    "in a line": "    out = net(x); loss = out.sum(); loss.backward()\n",
    "over lines": "    out = net(\n        x,\n    )\n    loss = out.sum()\n    loss.backward()\n",
    "elsewhere": "    loss = call(net, x).sum()\n    loss.backward()\n",
}


@pytest.mark.parametrize("place", SAVED)
@pytest.mark.parametrize("change", ["host", "bf16"])
def test_a_copy_of_the_model_runs_its_own_layers(place: str, change: str) -> None:
    """An EMA copies the model behind the change: its forward pass must not be the original's."""
    import torch

    text = (
        "import copy, torch\nnet = torch.nn.Linear(4, 4)\nema = copy.deepcopy(net)\nfor step in range(2):\n"
        + SAVED[place]
    )
    call = next(n for n, line in enumerate(text.splitlines(), 1) if "net(" in line or "net," in line)
    (edit,) = [
        edit for edit in edits(text, [ModelCall("net", "", call)], Symptoms(True)) if change in edit.name
    ]
    names: dict[str, object] = {"x": torch.ones(1, 4), "call": lambda model, x: model(x)}
    packed: list[int] = []
    real = torch.autograd.graph.save_on_cpu

    class Counted(real):  # type: ignore[misc,valid-type]
        def __init__(self) -> None:
            packed.append(1)
            super().__init__()

    torch.autograd.graph.save_on_cpu = Counted
    try:
        exec(edit.text, names)
    finally:
        torch.autograd.graph.save_on_cpu = real
    assert len(packed) == (2 if change == "host" else 0)
    with torch.no_grad():
        for parameter in names["ema"].parameters():  # type: ignore[attr-defined]
            parameter.fill_(1)
        assert names["ema"](torch.ones(1, 4)).tolist() == [[5] * 4]  # type: ignore[operator]


def test_a_model_that_is_assigned_in_a_branch_too() -> None:
    """The lines go behind the branch: in it they would be of the compiled model alone."""
    text = (
        "import torch\nnet = make()\nif compiled:\n    net = torch.compile(net)\nopt = f(net)\nout = net(x)\n"
    )
    model = ModelCall("net", "", 6, blocks=("blocks.0", "blocks.1"))
    (edit,) = [edit for edit in edits(text, [model], Symptoms(True)) if edit.name == "checkpointing"]
    lines = edit.text.splitlines()
    assert lines[4].startswith("import functools") and lines[5].startswith("for block in net.blocks")
    assert lines[6] == "opt = f(net)"


def test_a_main_part_that_runs_the_model_keeps_its_lines() -> None:
    text = "import torch\ndef train(net):\n    return net(x)\nif main:\n    net = make()\n    train(net)\n"
    model = ModelCall("net", "", 3, blocks=("blocks.0", "blocks.1"))
    (edit,) = [edit for edit in edits(text, [model], Symptoms(True)) if edit.name == "checkpointing"]
    assert edit.text.splitlines()[5].startswith("    import functools")


def test_a_model_without_a_name_here_is_said() -> None:
    model = ModelCall("net", "", 3, blocks=("blocks.0", "blocks.1"))
    (edit,) = [
        edit
        for edit in edits("import torch\nx = 1\nnet(x)\n", [model], Symptoms(True))
        if "checkp" in edit.name
    ]
    assert "`net`" in edit.why and not edit.text


def test_half_precision_is_not_proposed_twice() -> None:
    text = "import torch\nnet = make()\nout = net(x)\n"
    for half in (False, True):
        names = [edit.name for edit in edits(text, [ModelCall("net", "", 3)], Symptoms(True, half=half))]
        assert ("autocast bf16" in names) is not half


def test_a_changed_forward_pass_keeps_its_signature() -> None:
    """A Trainer drops the columns of a data set that `forward` does not name."""
    import inspect

    import torch

    class Named(torch.nn.Linear):
        def forward(self, input_ids, labels=None):  # type: ignore[no-untyped-def,override]
            return super().forward(input_ids if labels is None else labels)

    (edit,) = [
        edit
        for edit in edits(
            "import torch\nnet = Named(4, 4)\ntrain(net)\n", [ModelCall("net", "", 3)], Symptoms(True)
        )
        if "host" in edit.name
    ]
    names: dict[str, object] = {"Named": Named, "train": lambda net: net(torch.ones(1, 4))}
    exec(edit.text, names)
    assert list(inspect.signature(names["net"].forward).parameters) == ["input_ids", "labels"]  # type: ignore[attr-defined]


def test_pairs_are_not_of_one_optimizer(tmp_path: Path) -> None:
    """Other optimizers have no keyword `fused`; a pair that frees what the forward pass saved comes first."""
    script = tmp_path / "program.py"
    script.write_text(DISTILLED)
    analysis = follow(script, (), Options.of({"device": "1700MiB"}), {})[0]
    names = [edit.name for edit in _pairs(DISTILLED, analysis)]
    assert names and not any(
        all(part.startswith("optimizer ") for part in name.split(" + ")) for name in names
    )
    assert not names[0].startswith("optimizer ")
