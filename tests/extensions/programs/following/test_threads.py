"""Threads of a program: followed like the main one, with handles of the libraries as PyTorch's pool gives them out."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from analyzer.analysis import Analysis  # noqa: E402
from analyzer.graph import Category  # noqa: E402
from analyzer.options import Options  # noqa: E402
from analyzer.runtimes.events import Malloc  # noqa: E402
from analyzer_programs.following.threads import Handles  # noqa: E402
from analyzer_programs.program import follow  # noqa: E402

WORKSPACE = 32 << 20  # cuBLAS on an H200
START = """
import re
import threading
import torch
x = torch.zeros(64, 64, device="cuda")

def product():
    return x @ x
"""


@pytest.fixture
def followed(tmp_path: Path) -> Any:
    def run(text: str) -> Analysis:
        script = tmp_path / "program.py"
        script.write_text(START + text)
        return follow(script, (), Options.of({"device": "h200"}), {})[0]

    return run


def workspaces(analysis: Analysis) -> list[int]:
    return [e.nbytes for e in analysis.events if isinstance(e, Malloc) and e.category is Category.WORKSPACE]


def test_a_thread_that_follows_another_takes_over_its_handle(followed: Any) -> None:
    one_by_one = """
for _ in range(3):
    thread = threading.Thread(target=product)
    thread.start()
    thread.join()
"""
    assert workspaces(followed(one_by_one)) == [WORKSPACE]
    assert workspaces(followed("product()\n" + one_by_one)) == [WORKSPACE] * 2


def test_threads_that_live_at_once_have_a_handle_each(followed: Any) -> None:
    """The third, which multiplies nothing, needs none."""
    found = followed("""
all_there = threading.Barrier(3)

def multiply():
    product()
    all_there.wait()

def copy():
    y = torch.ones(1000).to("cuda")
    all_there.wait()

threads = [threading.Thread(target=each) for each in (copy, multiply, multiply)]
for thread in threads:
    thread.start()
""")
    assert workspaces(found) == [WORKSPACE] * 2
    assert any(isinstance(e, Malloc) and e.nbytes == 4000 for e in found.events)


def test_the_backward_pass_has_its_own(followed: Any) -> None:
    found = followed("""
weight = torch.zeros(64, 64, device="cuda", requires_grad=True)

def train():
    (x @ weight).sum().backward()

for _ in range(2):
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
assert weight.grad.is_cuda
""")
    assert workspaces(found) == [WORKSPACE] * 2


def test_each_thread_knows_its_stream_and_its_modules(followed: Any) -> None:
    found = followed("""
inside, go = threading.Event(), threading.Event()

class Waits(torch.nn.Module):
    def forward(self):
        inside.set()
        go.wait()
        return x * 3

waits = torch.nn.ModuleDict({"slow": Waits()})
waits.forward = lambda: waits["slow"]()

def other():
    inside.wait()
    y = x * 2
    go.set()

thread = threading.Thread(target=other)
thread.start()
with torch.cuda.stream(torch.cuda.Stream()):
    waits()
thread.join()
""")
    mine = {operator.arguments[1]: operator for operator in found.graph.operators if "mul" in operator.name}
    assert (mine[3].module, mine[3].stream != 0) == ("slow", True)
    assert (mine[2].module, mine[2].stream) == ("", 0)


def test_the_program_is_over_when_its_threads_are(followed: Any) -> None:
    found = followed("""
import time

def late():
    time.sleep(0.05)
    torch.zeros(12345, device="cuda")

threading.Thread(target=late).start()
""")
    assert any(isinstance(e, Malloc) and e.nbytes == 4 * 12345 for e in found.events)


def test_what_cannot_be_followed_ends_the_program_that_waits_for_it(followed: Any) -> None:
    found = followed("""
import queue
answers = queue.Queue()

def ask():
    answers.put(torch.zeros(1 << 23, device="cuda").add(1).mul(torch.rand(1 << 23, device="cuda")).tolist())

threading.Thread(target=ask).start()
answers.get()
""")
    assert re.search(r"program.py:\d+ reads", found.estimate.incomplete or "")


def test_an_error_of_the_programs_own_ends_its_thread(
    followed: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: seen.append(str(told.exc_value)))
    found = followed("""
def fails():
    raise ValueError("its own")

thread = threading.Thread(target=fails)
thread.start()
thread.join()
torch.zeros(777, device="cuda")
""")
    assert seen == ["its own"] and capsys.readouterr().out == ""
    assert any(isinstance(e, Malloc) and e.nbytes == 4 * 777 for e in found.events)


def test_steps_in_a_thread_may_end_the_program(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        START
        + """
weight = torch.zeros(4, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
done = threading.Event()

def train():
    while True:
        weight.sum().backward()
        optimizer.step()

threading.Thread(target=train).start()
done.wait()
"""
    )
    analysis, error = follow(script, (), Options.of({"device": "h200"}), {}, until=2)
    assert error is None
    assert any(note.startswith("followed in part: 2 optimizer steps;") for note in analysis.estimate.notes)


def test_threads_started_elsewhere_are_left_alone() -> None:
    start = threading.Thread.start
    assert start.__module__ == "threading"


def test_the_handle_given_back_last_is_handed_on_first() -> None:
    handles = Handles()
    assert [handles.take(0), handles.take(0), handles.take(0)] == [1, 2, 3]
    handles.give(1, 4)
    handles.give(3, 4)
    assert [handles.take(4), handles.take(5), handles.take(5), handles.take(5)] == [4, 3, 1, 5]


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (
            "[t.start() for t in ts]; [t.join() for t in ts]",
            3,
        ),  # at work at once, however soon each ends here
        ("[(t.start(), t.join()) for t in ts]", 1),
        (
            "for t in ts:\n    t.start()\n    while t.is_alive(): pass\n    torch.ones(2, device='cuda') + 1",
            1,
        ),
    ],
)
def test_threads_started_one_behind_the_other_have_workspaces_of_their_own(
    followed: Any, lines: str, count: int
) -> None:
    """As PyTorch's own build, emulated: a workspace a thread that lives, whatever takes how long."""
    text = f"ts = [threading.Thread(target=product) for _ in range(3)]\n{lines}\n"
    assert workspaces(followed(text)) == [WORKSPACE] * count


def test_each_thread_has_a_default_device_of_its_own(followed: Any) -> None:
    """A thread begins without one (the host); two that have chosen do not see each other's."""
    found = followed("""
kinds, both = {}, threading.Barrier(2)

def work(name, device, wait=lambda: None):
    if device:
        torch.set_default_device(device)
    wait()
    made = torch.zeros(1 << 20), torch.tensor([1.0]), torch.nn.Linear(512, 512).weight
    kinds[name] = [tensor.device.type for tensor in made] + [torch.get_default_device().type]
    wait()

torch.set_default_device("cuda")
for together in [("a", None)], [("b", "cuda:0")], [("c", "cuda", both.wait), ("d", "cpu", both.wait)]:
    threads = [threading.Thread(target=work, args=args) for args in together]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
assert torch.zeros(3).is_cuda
assert kinds == {"a": ["cpu"] * 4, "b": ["cuda"] * 4, "c": ["cuda"] * 4, "d": ["cpu"] * 4}, kinds
""")
    assert found.estimate.incomplete is None
    assert 5 << 20 <= found.estimate.peak_allocated < 6 << 20
