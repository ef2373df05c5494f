"""What README, tutorial and recipes tell people to type is typed, in a fresh environment, and prints what they say; the
site builds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.fresh import Fresh, fresh
from tests.paths import ROOT
from tests.report.browser import chromium

# A block of commands, and the block of what they print if one follows.
BLOCKS = re.compile(
    r"^```sh\n(?P<commands>.*?)^```\n(?:\n(?:<!--.*?-->\n)?```text\n(?P<output>.*?)^```\n)?", re.M | re.S
)
TUTORIAL = ROOT / "docs/tutorial.md"
# What the README calls by a name of the reader's own.
PROGRAM = """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int)
batch = parser.parse_args().batch_size
model = torch.nn.Linear(64, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(batch, 64).cuda()).sum().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    made = fresh(tmp_path_factory.mktemp("fresh"))
    (made.folder / "train.py").write_text(PROGRAM)
    return made


def typed(place: Fresh, commands: str) -> str:
    """What the commands print, one after the other; each must succeed."""
    printed = []
    for command in commands.splitlines():
        ran = place.run(command)
        assert ran.returncode == 0, f"{command}\n{ran.stderr}"
        printed.append(ran.stdout)
    return "".join(printed)


def test_the_environment_has_the_wheel_and_nothing_of_the_checkout(place: Fresh) -> None:
    said = place.run("python -c 'import analyzer; print(analyzer.__file__)'").stdout.strip()
    assert Path(said).is_relative_to(place.bin.parent) and not Path(said).is_relative_to(ROOT)
    assert place.run("analyze --version").stdout.startswith("analyze 0.")


def test_the_tutorial_prints_what_it_says(place: Fresh) -> None:
    """`UPDATE_TUTORIAL=1 pytest tests/test_documentation.py` writes the outputs anew: look at the difference."""
    page = TUTORIAL.read_text()
    blocks = list(BLOCKS.finditer(page))
    assert sum(block["output"] is not None for block in blocks) >= 4
    made = page
    for block in blocks:
        printed = typed(place, block["commands"])
        if block["output"] is not None:
            whole = block[0]
            made = made.replace(whole, f"{whole.partition('```text')[0]}```text\n{printed}```\n")
    if os.environ.get("UPDATE_TUTORIAL"):
        TUTORIAL.write_text(made)
    else:
        assert made == page, "run: UPDATE_TUTORIAL=1 pytest tests/test_documentation.py"
    html = (place.folder / "resnet50.html").read_text()
    assert html.startswith("<!DOCTYPE html>") and (place.folder / "resnet50.svg").stat().st_size > 1000


def test_the_readmes_commands_run(place: Fresh) -> None:
    """The first two, which install, are what CI runs; their output here is that of the installed command."""
    page = (ROOT / "README.md").read_text()
    install, tests, *others = BLOCKS.finditer(page)
    assert "pip install" in install["commands"] and tests["commands"].strip().endswith("pytest")
    first = install["commands"].strip().rpartition(" && ")[2].removeprefix(".venv/bin/")
    shown = re.search(r"<!-- output of: analyze .*? -->\n```text\n(.*?)^```", page, re.M | re.S)
    assert shown is not None and place.run(first).stdout == shown[1]
    commands = [line for block in others for line in block["commands"].splitlines()]
    assert len(commands) >= 3
    for command in commands:
        ran = place.run(command.replace(".venv/bin/", ""))
        assert ran.returncode == 0, f"{command}\n{ran.stderr}"


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


@pytest.fixture
def own(place: Fresh) -> Fresh:
    for name, source in OWN.items():
        (place.folder / name).write_text(source)
    shutil.copy(ROOT / "benchmarks/networks/torchvision_cpu.py", place.folder)
    return place


def test_a_users_own_models(own: Fresh) -> None:
    """A model of one's own made an ONNX file, and a transformers model, by the command the README begins with."""
    typed(own, "python export.py")
    shown = typed(own, "analyze mine.onnx --batch 8 --device t4")
    assert shown.startswith("fits: ") and "mine.onnx · onnxruntime · inference · batch 8" in shown
    shown = typed(own, "analyze hugging.py --mode train --batch 4 --optimizer adamw --device t4")
    assert shown.startswith("fits: ") and "optimizer state" in shown


@pytest.mark.campaign
def test_a_users_own_way(own: Fresh) -> None:
    """Further: a script, a training step compared with a larger one, the largest batch and the next."""
    assert typed(own, "analyze run --device t4 train.py --batch-size 8").startswith("fits: ")
    model = "analyze mine.py --mode train --device t4 --format json"
    assert typed(own, f"{model} --batch 16 -o small.json\n{model} --batch 32 -o large.json") == ""
    grown = own.run("analyze compare small.json large.json")
    assert grown.returncode == 1 and grown.stdout.startswith("needs more: ")
    typed(own, "python export.py")
    for target in ("mine.onnx", "mine.py --mode train", "hugging.py --mode train"):
        largest = typed(own, f"analyze fit {target} --device 1GiB").split()[2].replace(",", "")
        assert typed(own, f"analyze {target} --batch {largest} --device 1GiB").startswith("fits: ")
        beyond = own.run(f"analyze {target} --batch {int(largest) + 1} --device 1GiB")
        assert beyond.returncode == 1 and beyond.stdout.startswith("does not fit: ")


def test_the_recipes_commands_run(place: Fresh) -> None:
    page = (ROOT / "docs/howto.md").read_text()
    commands = [line for block in BLOCKS.finditer(page) for line in block["commands"].splitlines()]
    commands = [command for command in commands if "your own script" not in command]
    assert len(commands) >= 7
    for command in commands:
        ran = place.run(command)
        assert ran.returncode == 0 and (ran.stdout or "-o " in command), f"{command}\n{ran.stderr}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(made)],
        cwd=ROOT, capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return made


def test_the_site_builds_and_has_its_reference(site: Path) -> None:
    assert "analyze what-if" in (site / "reference/commands/index.html").read_text()
    assert "analyzer.analyze" in (site / "reference/python/index.html").read_text()
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
    """In a real browser, on a desk and on a phone, light and dark."""
    with served(site) as address, chromium() as driver:
        # From this machine alone: the site's search starts a worker, which a file may not.
        online = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", online)
        for theme in ("light", "dark"):
            media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            for width in (1280, 375):
                driver.execute_cdp_cmd(
                    "Emulation.setDeviceMetricsOverride",
                    {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
                )
                for page in (
                    "index.html",
                    "PARALLEL/index.html",
                    "architecture/index.html",
                    "evidence/PROGRAMS/index.html",
                ):
                    driver.get(address + page)
                    errors = [
                        entry["message"]
                        for entry in driver.get_log("browser")
                        if entry["source"] == "javascript"
                    ]
                    assert errors == [], page
                    assert driver.execute_script("return document.documentElement.dataset.bsTheme") == theme
                    wide = "return document.documentElement.scrollWidth"
                    assert driver.execute_script(wide) <= width, (page, width)


def test_what_is_read_stays_short() -> None:
    """What one reads to use or to change this project, without the evidence: at most 20,000 words."""
    read = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    assert sum(len(path.read_text().split()) for path in read) <= 20_000


def test_the_page_of_emulation_leaves_its_tables_to_the_evidence_and_says_the_same() -> None:
    page = (ROOT / "docs/EMULATION.md").read_text()
    assert len(page.split()) < 1500 and "written by benchmarks" not in page
    exact = re.search(r"(\d+) of the (\d+) cases that run", (ROOT / "docs/evidence/EMULATION.md").read_text())
    assert exact is not None
    assert f"{exact[1]} of the {exact[2]} that run are exact" in page
