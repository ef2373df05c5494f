"""The `if`s of a script whose outcome changes while it loops."""

from __future__ import annotations

import traceback

import pytest

pytest.importorskip("torch")

from analyzer_programs.following.branches import Branches

SCRIPT = """
import types
args = types.SimpleNamespace(ema=False, every=4)
state = types.SimpleNamespace(step=0)
def check(step):
    if step % args.every == 3:
        return step
for step in range(8):
    if args.ema:
        pass
    if step == 20:
        never = True
    if step > 90:
        raise ValueError
    if step % 2:
        odd = step
    elif step % 4 == 9:
        other = step
    state.step += 1
    check(step)
def counted():
    if state.step == 100:
        return True
for _ in range(8):
    counted()
1 / 0
"""


@pytest.fixture(scope="module")
def branches() -> Branches:
    found = Branches()
    names = dict(found.names)
    with pytest.raises(ZeroDivisionError) as error:
        exec(found.compiled(SCRIPT, "train.py"), names)
    assert traceback.extract_tb(error.value.__traceback__)[-1].lineno == len(SCRIPT.splitlines())
    return found


def test_tests_that_go_by_a_count_are_heard(branches: Branches) -> None:
    """Options are not, nor is a side that only raises."""
    assert sorted(line for line, _ in branches._places) == [6, 11, 15, 17, 22]


def test_one_with_a_side_that_never_ran_is_open(branches: Branches) -> None:
    assert branches.open(8) == 11
    assert branches.open(9) is None


def test_one_that_always_ran_has_nothing_else() -> None:
    script = Branches()
    exec(script.compiled("for i in range(9):\n    if i % 1 == 0:\n        a = 1\n", "train.py"), script.names)
    assert script.open(1) is None


def test_a_loop_of_another_package_is_not_the_scripts(branches: Branches) -> None:
    assert not branches.loops()
    script, answers = Branches(), []
    names = {**script.names, "answers": answers, "loops": script.loops, "call": lambda step: step()}
    text = "def step():\n    answers.append(loops())\nstep()\ncall(step)\n"
    exec(script.compiled(text, "train.py"), names)
    assert answers == [True, False]
