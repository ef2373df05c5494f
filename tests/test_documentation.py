"""What README, tutorial and recipes tell people to type is typed, in a fresh environment, and prints what they say; the
site builds."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import click
import pytest

from analyzer.cli import group
from tests.documents import commands
from tests.fresh import Fresh, forking, fresh
from tests.paths import PYTHONPATH, ROOT
from tests.report.browser import chromium, until

CONFIGS = "benchmarks/language_models/configs"
# Of an environment with a CUDA build of torch, as `tests/extensions/emulation` names it.
cuda_python = os.environ.get("ANALYZER_CUDA_PYTHON")

# What the pages call by names of the reader's own.
NET = """
import torch

def make_model():
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))

def make_batch(batch):
    return torch.empty(batch, 64), torch.empty(batch, dtype=torch.long)
"""
PROGRAM = """
import argparse
import torch
from net import make_model
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--epochs", type=int, default=1)
asked = parser.parse_args()
model = make_model().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2 * asked.epochs):
    optimizer.zero_grad()
    model(torch.randn(asked.batch_size, 64).cuda()).sum().backward()
    optimizer.step()
"""
RANKS = """
import os
import torch
import torch.distributed as dist
from net import make_model
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.parallel.DistributedDataParallel(make_model().cuda())
model(torch.randn(8, 64).cuda()).sum().backward()
dist.destroy_process_group()
"""
ERROR = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.20 GiB is free."
FILES = {"net.py": NET, "train.py": PROGRAM, "lora.py": PROGRAM, "ddp.py": RANKS}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    return fresh(tmp_path_factory)


@pytest.fixture(scope="module")
def forking_place(place: Fresh) -> Iterator[Fresh]:
    with forking(place) as made:
        yield made


@pytest.fixture
def own_place(forking_place: Fresh, tmp_path: Path) -> Fresh:
    """The environment, and a folder of one's own with what the pages talk of."""
    place = forking_place
    shutil.copytree(place.folder / "models", tmp_path / "models")
    shutil.copytree(ROOT / CONFIGS, tmp_path / CONFIGS)
    shutil.copy(ROOT / CONFIGS / "qwen2.5-0.5b/config.json", tmp_path)
    for name, source in FILES.items():
        (tmp_path / name).write_text(source)
    if cuda_python is not None:
        for name in ("other_venv", "venv"):
            (tmp_path / name).symlink_to(Path(cuda_python).parents[1])
    return replace(place, folder=tmp_path)


def test_the_environment_has_the_wheel_and_nothing_of_the_checkout(place: Fresh) -> None:
    said = place.run("python -c 'import analyzer; print(analyzer.__file__)'").stdout.strip()
    assert Path(said).is_relative_to(place.bin.parent) and not Path(said).is_relative_to(ROOT)
    assert place.run("analyze --version").stdout.startswith("analyze 0.")


def typed(place: Fresh, page: Path, *kinds: str) -> str:
    """The page, its blocks of these kinds typed in order, with what each then printed; what they end with is as the page says."""
    made = page.read_text()
    for block in commands.blocks(page):
        if block.kind in ("", *kinds):
            printed = ""
            for command in block.commands:
                ran = place.run(command.replace(".venv/bin/", ""))
                code = block.code if command == block.commands[-1] else 0
                assert ran.returncode == code, f"{page.name}: {command}\n{ran.stdout}\n{ran.stderr}"
                assert ran.stdout or " -o " in command or command.startswith("eval "), command
                printed += ran.stdout
            if block.output is not None:
                before = block.whole.partition("```text")[0]
                made = made.replace(block.whole, f"{before}```text\n{printed}```\n")
    return made


@pytest.mark.parametrize("page", commands.PAGES, ids=lambda page: page.name)
def test_a_page_prints_what_it_says(own_place: Fresh, page: Path) -> None:
    """`UPDATE_TUTORIAL=1 pytest tests/test_documentation.py` writes the outputs anew: look at the difference."""
    made = typed(own_place, page)
    if os.environ.get("UPDATE_TUTORIAL"):
        page.write_text(made)
    assert made == page.read_text(), "run: UPDATE_TUTORIAL=1 pytest tests/test_documentation.py"
    if page.name == "tutorial.md":
        assert (own_place.folder / "resnet50.html").read_text().startswith("<!DOCTYPE html>")
        assert (own_place.folder / "resnet50.svg").stat().st_size > 1000


@pytest.mark.campaign
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("page", commands.PAGES, ids=lambda page: page.name)
def test_a_page_prints_what_it_says_in_full(own_place: Fresh, page: Path) -> None:
    """Its long commands too, and those that need a CUDA build of torch where `ANALYZER_CUDA_PYTHON` names one."""
    for name, text in re.findall(
        r"^```yaml\n(?:# (\S+)\n)?(targets: .*?)^```", page.read_text(), re.M | re.S
    ):
        (own_place.folder / (name or "grid.yaml")).write_text(text)
    kinds = ("campaign", "cuda") if cuda_python is not None else ("campaign",)
    assert typed(own_place, page, *kinds) == page.read_text()


def test_the_readme_shows_what_the_installed_command_prints(place: Fresh) -> None:
    page = (ROOT / "README.md").read_text()
    shown = re.search(r"<!-- output of: (analyze .*?) -->\n```text\n(.*?)^```", page, re.M | re.S)
    _, estimate, tests, *_ = commands.blocks(ROOT / "README.md")
    assert shown is not None and estimate.commands == (f".venv/bin/{shown[1]}",)
    assert tests.commands[0].endswith("pytest")  # CI types both
    assert place.run(shown[1]).stdout == shown[2]


def prepared(place: Fresh) -> None:
    """What the examples of `--help` name besides."""
    small = "analyze models/cnn.onnx --device t4 --format json"
    for command in (
        f"{small} --batch 4 -o before.json",
        f"{small} --batch 4 -o after.json",
        "cp before.json estimate.json",
    ):
        assert place.run(command).returncode == 0
    (place.folder / "log.txt").write_text(ERROR)
    (place.folder / "grid.yaml").write_text("targets: [models/cnn.onnx]\nbatches: [1, 2]\ndevices: [t4]\n")
    shutil.copy(ROOT / "analyzer/devices/profiles/t4.json", place.folder / "mine.json")


def typed_help(place: Fresh, names: Iterable[str], *kinds: str) -> list[str]:
    prepared(place)
    done = []
    for name in names:
        for example in commands.of_help()[name]:
            kind, _ = commands.OF_HELP.get(example, ("", ""))
            if kind in ("", *kinds):
                ran = place.run(example)
                code = int("explain log.txt" in example)  # it ran out of memory
                assert ran.returncode == code, f"{example}\n{ran.stdout}\n{ran.stderr}"
                assert ran.stdout or " -o " in example, example
                done.append(example)
    return done


def test_the_examples_of_help_run(own_place: Fresh) -> None:
    """Those that need no torch, every time; the rest stands in the pages too, or in the campaign."""
    light = ("devices", "explain", "compare", "report", "grid")
    assert len(typed_help(own_place, light)) == 2 * len(light)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_all_examples_of_help_run(own_place: Fresh) -> None:
    names = list(commands.of_help())
    kinds = ("campaign", "cuda") if cuda_python is not None else ("campaign",)
    done = typed_help(own_place, names, *kinds)
    left = [kind for kind, _ in commands.OF_HELP.values() if kind not in kinds]
    assert len(done) + len(left) == sum(map(len, commands.of_help().values()))


def accepted(line: str) -> None:
    """Raises for a command line with an option that the command does not have."""
    names = group.list_commands(click.Context(group))
    words = shlex.split(line.partition("   #")[0].partition(" | ")[0])[1:]
    name = words.pop(0) if words and words[0] in names else "estimate"
    follows = name in ("run", "emulate") or words[:1] == ["run"]
    if name == "verify" and follows:
        from analyzer_verify.commands.verify_run import command
    else:
        command = group.get_command(click.Context(group), name)
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    for word in words:
        if word == "--" or (follows and word.endswith(".py")):  # what follows is the script's
            break
        if word.startswith("-") and word != "-":
            assert word.partition("=")[0] in known | {"--debug", "--help", "--help-all", "--version"}, (
                f"{line}: {word}"
            )


@pytest.mark.parametrize("page", commands.PAGES, ids=lambda page: page.name)
def test_no_page_names_an_option_that_is_not_there(page: Path) -> None:
    """Of commands that every run types and of those it does not, and of those inside sentences."""
    lines = [line for block in commands.blocks(page) for line in block.commands]
    for line in [*lines, *commands.spans(page)]:
        if line.removeprefix(".venv/bin/").startswith("analyze "):
            accepted(line.removeprefix(".venv/bin/"))


def test_what_no_run_types_is_little_and_says_why() -> None:
    """Where there is no GPU and no network nothing else is left out."""
    marked = [block for page in commands.PAGES for block in commands.blocks(page) if block.kind]
    assert all(len(block.why.split()) >= 3 for block in marked if block.kind)
    never = [block for block in marked if block.kind in ("gpu", "network")]
    assert sum(len(block.commands) for block in never) <= 4, [block.commands for block in never]
    assert sum(kind in ("gpu", "network") for kind, _ in commands.OF_HELP.values()) <= 4
    examples = {example for some in commands.of_help().values() for example in some}
    assert set(commands.OF_HELP) <= examples


# A user's own files, none of which this repository has seen: a model, an ONNX file made of it, a model of transformers.
OWN = {
    "mine.py": """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GELU(), nn.AdaptiveAvgPool2d(4))
        self.head = nn.Linear(256, 10)

    def forward(self, images):
        return self.head(self.body(images).flatten(1))

def make_model():
    return Mine()

def make_batch(batch):
    return torch.empty(batch, 3, 64, 64), torch.empty(batch, dtype=torch.long)
""",
    "export.py": """
import torch
from mine import Mine

torch.onnx.export(
    Mine().eval(), (torch.zeros(2, 3, 64, 64),), "mine.onnx", dynamo=False, input_names=["images"], output_names=["scores"],
    dynamic_axes={"images": {0: "batch"}, "scores": {0: "batch"}},
)
""",
    "hugging.py": """
import torch
import torchvision_cpu

torchvision_cpu.enable()  # as wherever torchvision's CUDA wheel stands beside a CPU build of torch
from transformers import BertConfig, BertForSequenceClassification

def make_model():
    return BertForSequenceClassification(BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128))

def make_batch(batch):
    words = torch.ones(batch, 32, dtype=torch.long)
    return {"input_ids": words, "attention_mask": words, "labels": torch.zeros(batch, dtype=torch.long)}
""",
}


def said(place: Fresh, lines: str) -> str:
    """What these commands print, one after the other; each must succeed."""
    printed = []
    for line in lines.splitlines():
        ran = place.run(line)
        assert ran.returncode == 0, f"{line}\n{ran.stderr}"
        printed.append(ran.stdout)
    return "".join(printed)


@pytest.fixture
def own(place: Fresh) -> Fresh:
    for name, source in {**FILES, **OWN}.items():
        (place.folder / name).write_text(source)
    shutil.copy(ROOT / "benchmarks/subjects/networks/torchvision_cpu.py", place.folder)
    return place


def test_a_users_own_models(own: Fresh) -> None:
    """A model of one's own made an ONNX file, and a transformers model, by the command the README begins with."""
    said(own, "python export.py")
    shown = said(own, "analyze mine.onnx --batch 8 --device t4")
    assert shown.startswith("fits: ") and "mine.onnx · onnxruntime · inference · batch 8" in shown
    shown = said(own, "analyze hugging.py --mode train --batch 4 --optimizer adamw --device t4")
    assert shown.startswith("fits: ") and "optimizer state" in shown


@pytest.mark.campaign
def test_a_users_own_way(own: Fresh) -> None:
    """Further: a script, a training step compared with a larger one, the largest batch and the next."""
    assert said(own, "analyze run --device t4 train.py --batch-size 8").startswith("fits: ")
    model = "analyze mine.py --mode train --device t4 --format json"
    assert said(own, f"{model} --batch 16 -o small.json\n{model} --batch 32 -o large.json") == ""
    grown = own.run("analyze compare small.json large.json")
    assert grown.returncode == 1 and grown.stdout.startswith("needs more: ")
    said(own, "python export.py")
    for target in ("mine.onnx", "mine.py --mode train", "hugging.py --mode train"):
        largest = said(own, f"analyze fit {target} --device 1GiB").split()[2].replace(",", "")
        assert said(own, f"analyze {target} --batch {largest} --device 1GiB").startswith("fits: ")
        beyond = own.run(f"analyze {target} --batch {int(largest) + 1} --device 1GiB")
        assert beyond.returncode == 1 and beyond.stdout.startswith("does not fit: ")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(made)],
        cwd=ROOT, capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return made


def test_the_site_builds_and_has_its_reference(site: Path) -> None:
    assert "analyze what-if" in (site / "reference/commands/index.html").read_text()
    python = (site / "reference/python/index.html").read_text()
    for name in ("analyze", "run", "fit", "sweep", "what_if", "compare", "emulate", "advise", "Estimate"):
        anchor = f"analyzer{name.lower()}"
        assert f'href="#{anchor}"' in python and f'id="{anchor}"' in python, name  # linked from the tables
    assert "<td><code>peak_reserved</code></td>" in python and "<td><code>--optimizer</code></td>" in python
    assert "<td><code>TargetError</code></td>" in python
    assert all(f"{figure}_range" in python for figure in ("allocated", "reserved", "device"))
    rules = (site / "reference/rules/index.html").read_text()
    assert 'id="cudnn-convolution"' in rules and 'id="caching-allocator"' in rules
    assert (site / "pictures/resnet50.svg").exists() and not (site / "reference.py").exists()
    # Nothing on the site asks another server for anything.
    for page in site.rglob("*.html"):
        assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=\"https?://", page.read_text()), page


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder's address on this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_the_site_runs_without_error_and_its_tables_stay_on_the_page(site: Path) -> None:
    """In a real browser: each page on a desk, turned into a phone, light and then dark as it lies there."""
    with served(site) as address, chromium() as driver:
        # From this machine alone: the site's search starts a worker, which a file may not.
        online = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", online)
        for page in (
            "index.html",
            "PARALLEL/index.html",
            "architecture/index.html",
            "evidence/PROGRAMS/index.html",
        ):
            for width in (1280, 375):
                driver.execute_cdp_cmd(
                    "Emulation.setDeviceMetricsOverride",
                    {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
                )
                for theme in ("light", "dark"):
                    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
                    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
                    if (width, theme) == (1280, "light"):
                        driver.get(address + page)
                    until(driver, "return document.documentElement.dataset.bsTheme === arguments[0]", theme)
                    wide = "return document.documentElement.scrollWidth"
                    assert driver.execute_script(wide) <= width, (page, width, theme)
            errors = [e["message"] for e in driver.get_log("browser") if e["source"] == "javascript"]
            assert errors == [], page


def test_what_is_read_stays_short() -> None:
    """What one reads to use or to change this project, without the evidence: at most 20,000 words."""
    read = [ROOT / "CONTRIBUTING.md", *commands.PAGES]
    assert sum(len(path.read_text().split()) for path in read) <= 20_000
    readme = re.sub(r"```.*?```", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert max(map(len, readme.splitlines())) <= 110
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_page_of_emulation_leaves_its_tables_to_the_evidence_and_says_the_same() -> None:
    page = (ROOT / "docs/EMULATION.md").read_text()
    assert len(page.split()) < 1500 and "written by benchmarks" not in page
    exact = re.search(r"(\d+) of the (\d+) cases that run", (ROOT / "docs/evidence/EMULATION.md").read_text())
    assert exact is not None
    assert f"{exact[1]} of the {exact[2]} that run are exact" in page
