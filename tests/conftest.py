"""How tests run: in two processes where there are many of them, and on the same examples every time.

A folder's tests run in two processes, where pytest-xdist is installed; a file's stay together, in their order, so that what
they share is made once. Files or single tests that are named run in this process: starting others would take longer than
most of them do. `-n` says otherwise (`-n 0`, `-n auto`), and so does `--pdb`.

Of a test's many cases `@pytest.mark.sampled(n)` lets n run, spread over all of them; the others are the campaign's
(`-m campaign`). A case that is named runs.

Property tests draw the same examples in every run, so that one commit passes or fails everywhere alike;
`HYPOTHESIS_PROFILE=explore` draws new ones.

What is there when a file's tests begin (libraries, every test, what other files left) is garbage to nobody: it is not searched
again for cycles, which took a fifth of the time.

`pytest` tests the package that is installed, `python -m pytest` the sources of the checkout it is typed in: the checkout is the last
place that is imported from, so that a file the wheel lacks is missed here too. Tests run in a folder of their own, since a child
process (`python -m analyzer`) would import from the checkout if it were the current one.

What a shell starts in the background ignores SIGINT, and so would every process a test starts and interrupts: it is heard again.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

import analyzer.allocators
from analyzer import protection
from tests.paths import PACKAGE, PYTHONPATH, ROOT

# Whatever cuDNN this machine has, and whatever it was asked before: tests say themselves whom they ask.
os.environ["ANALYZER_CUDNN"] = "none"
os.environ["ANALYZER_CACHE"] = os.devnull
os.environ.pop("ANALYZER_PYTHON", None)

# A checkout from which the package was installed without `-e` has no compiled core beside its sources: these are what is tested.
with contextlib.suppress(pytest.skip.Exception):  # without a C compiler the simulators answer
    if not any(Path(analyzer.allocators.__file__).parent.glob("_best_fit*.so")):
        from tests.allocators.compiled import compiled

        sys.modules["analyzer.allocators._best_fit"] = analyzer.allocators._best_fit = compiled()  # type: ignore[attr-defined]

if protection.sandbox() is None:  # where it is not installed, the models of tests run as with --unprotected
    _enter = protection.enter
    protection.enter = lambda *given: _enter(*given[:-1], True)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What a machine that does other work takes for an example says nothing about it.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", PATIENT, derandomize=True)
settings.register_profile("explore", PATIENT, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# A capture makes objects by the hundred thousand and keeps them: looking for cycles among them every 700 takes a third of the time.
gc.set_threshold(20_000)

# The file whose tests run; none where what is there is to be put out of the search again. `what_if` thaws what it
# froze, and that with it; counting what is frozen (`gc.get_freeze_count`) walks through all of it, a fifth of a
# second a test in a process that has imported everything.
_running: list[Path] = []
_unfreeze = gc.unfreeze


def _thaw() -> None:
    _running.clear()
    _unfreeze()


gc.unfreeze = _thaw

# What takes longest begins first, so that all processes end at about the same time: few tests, of a quarter of a minute and more each.
LONGEST = (
    "test_documentation.py", "test_environments.py", "test_random_programs.py", "extensions/programs/world/test_wrapping.py",
    "extensions/programs/test_configurations.py", "extensions/programs/test_generation.py", "extensions/programs/test_ranks.py", "extensions/timing/test_advise.py",
    "planning/test_grid.py", "planning/test_recipes.py", "planning/test_sharing.py", "extensions/programs/test_kinds_of_programs.py",
    "planning/test_what_if.py", "report/test_page.py", "report/test_screens.py", "test_other_python.py",
    "runtimes/onnxruntime/test_recorded.py", "runtimes/pytorch/scratch/test_database.py",
)  # fmt: skip

PROCESS_COUNT = 2  # whatever the cores: each imports torch, ONNX Runtime and transformers for itself


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the options
def pytest_cmdline_main(config: pytest.Config) -> None:
    option = config.option
    chosen = getattr(option, "numprocesses", 0) is not None  # by -n; there is no -n without pytest-xdist
    if chosen or option.usepdb or hasattr(config, "workerinput"):
        return
    if any(Path(argument).is_dir() for argument in config.args):
        option.numprocesses, option.dist = PROCESS_COUNT, "loadfile"
        option.loadscopereorder = False  # in the order of `_longest_first`


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    if _running != [item.path]:
        _running[:] = [item.path]
        gc.collect()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    families: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is not None and item.get_closest_marker("campaign") is None:
            families[item.nodeid.partition("[")[0], mark.args[0]].append(item)
    for (_, count), family in families.items():
        kept = {len(family) * part // count for part in range(count)}
        for place, item in enumerate(family):
            if place not in kept:
                item.add_marker("campaign")
    if hasattr(config, "workerinput"):
        _longest_first(items)


def _longest_first(items: list[pytest.Item]) -> None:
    """Files in the order in which processes take them: LONGEST, then those with most tests."""
    longest = {Path(__file__).parent / name for name in LONGEST}
    counts = Counter(item.path for item in items)
    items.sort(
        key=lambda item: (item.path not in longest, -counts[item.path])
    )  # which keeps the order within a file


def pytest_report_header() -> str:
    return f"analyzer {analyzer.__version__} of {PACKAGE}"


@pytest.fixture(scope="session", autouse=True)
def _folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.chdir(tmp_path_factory.mktemp("current"))
    if PACKAGE == ROOT:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (PYTHONPATH, os.environ.get("PYTHONPATH"))))


@pytest.fixture(autouse=True)
def without_monais_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """MONAI sets cuBLAS's variable when it is imported; worker processes would take it for one they were started with."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test of the core that needs an extension is skipped where that is not installed."""
    del item
    try:
        return (yield)
    except analyzer.MissingDependencyError as error:
        if "needs the extension" in error.message:
            pytest.skip(error.message)
        raise


@pytest.fixture(scope="module")
def forked_ranks() -> Iterator[None]:
    """Ranks that are followed beside one another are children of a process that has imported torch (`tests/forked.py`)."""
    from analyzer_programs import peers
    from tests.forked import Forked, server

    server()  # begun here, outside of any sandbox
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peers, "subprocess", SimpleNamespace(Popen=Forked, DEVNULL=subprocess.DEVNULL))
        yield
