"""Public programs (`benchmarks/public`): the job files say what can be carried out, the data has the form that is read, and a
program of a repository is brought, made ready and followed. Nothing here needs a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.harness import pages, recorded
from benchmarks.public import job_files, prepared, record, score, sources
from tests.allocators.pytorch.histories import names
from tests.paths import PYTHONPATH, ROOT

STAND_INS = ROOT / "benchmarks/subjects/public/stand_ins"
COMMIT = "0" * 40


def test_every_job_can_be_made_ready() -> None:
    found, jobs = job_files.load()
    assert {job["repo"] for job in jobs} == set(found), "a source without a job, or a job without one"
    for job in jobs:
        assert job["processes"] in (1, 2) and job["seconds"] <= 300
        for name, _, *settings in job["data"]:
            maker = prepared.maker(name)
            assert len(settings) <= 1 and set(*settings or [()]) <= set(
                maker.__code__.co_varnames[: maker.__code__.co_argcount]
            ), (job["name"], name)


def test_what_was_measured_is_what_the_jobs_say() -> None:
    repositories = {job["name"]: job["repo"] for job in job_files.load()[1]}
    used: set[str] = set()
    for file, fewest in (("h200/public.json", 60), ("h100/public.json", 60), ("h200/public_first.json", 40)):
        rows = json.loads((ROOT / "tests/data" / file).read_text())
        assert all("error" not in row and row["peak_reserved"] >= row["peak_allocated"] > 0 for row in rows)
        assert len({row["name"] for row in rows}) >= fewest
        repos = {repositories[row["name"]] for row in rows}
        assert len(repos) >= 25 and not repos & used, "a round takes repositories that none before it used"
        used |= repos
    first = json.loads((ROOT / "tests/data/h200/public.json").read_text())
    assert {*names("public"), *names("public_2")} <= {recorded.named(row) for row in first}


def _job_file(folder: Path, **job: Any) -> Path:
    told = {"sources": {"owner/name": {"commit": COMMIT, "licence": "MIT"}}, "jobs": [job]}
    (folder / "domain.json").write_text(json.dumps(told))
    return folder


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"name": "one", "repo": "owner/name"}, "one has no script"),
        ({"name": "one", "repo": "owner/name", "script": "x.py", "argv": []}, "says argv"),
        ({"name": "One!", "repo": "owner/name", "script": "x.py"}, "a-z, 0-9 and _ only"),
        ({"name": "one", "repo": "other/name", "script": "x.py"}, "which sources do not name"),
    ],
)
def test_a_job_that_says_nonsense_is_an_error(job: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(job_files.JobError, match=said):
        job_files.load(_job_file(tmp_path, **job))


def test_jobs_are_named_one_by_one_by_their_beginning_or_by_domain(tmp_path: Path) -> None:
    _, jobs = job_files.load(_job_file(tmp_path, name="one_job", repo="owner/name", script="a/x.py"))
    assert jobs[0]["folder"] == "a" and jobs[0]["processes"] == 1
    for name in ("one_job", "one*", "domain/"):
        assert job_files.chosen(jobs, [name]) == jobs
    with pytest.raises(job_files.JobError, match="no job is called two"):
        job_files.chosen(jobs, ["two"])


_READ = """
from benchmarks.subjects.networks import torchvision_cpu
torchvision_cpu.enable()
from torchvision import datasets
folder = {folder!r}
print(len(datasets.MNIST(folder, train=False, download=True)), len(datasets.CIFAR10(folder, download=True)))
print(len(datasets.CIFAR100(folder, train=False, download=True)), len(datasets.ImageFolder(folder + "/train")))
print(datasets.MNIST(folder)[3][0].size, datasets.CIFAR10(folder)[3][0].size, datasets.ImageFolder(folder + "/train")[0][0].size)
try:
    datasets.KMNIST(folder, download=True)
except RuntimeError as error:
    print("no data maker made" in str(error))
"""


def test_torchvision_reads_what_the_makers_make(tmp_path: Path) -> None:
    pytest.importorskip("benchmarks.subjects.networks.torchvision_cpu").enable()
    pytest.importorskip("torchvision")
    prepared.maker("images.mnist")(tmp_path, train=20, test=10)
    prepared.maker("images.cifar10")(tmp_path, train=20, test=10)
    prepared.maker("images.cifar100")(tmp_path, train=20, test=10)
    prepared.maker("images.classes")(tmp_path, parts={"train": 2}, count=3, width=40, height=30)
    program = _READ.format(folder=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": f"{STAND_INS}{os.pathsep}{PYTHONPATH}"},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["10 20", "10 6", "(28, 28) (32, 32) (40, 30)", "True"], done.stderr[
        -2000:
    ]


_PROGRAM = """
import shutil
import sys
import torch
import wandb
from pathlib import Path

wandb.init(project="p").log({})
size = int(Path("sizes/size.txt").read_text())
assert shutil.get_terminal_size() and sys.stdin.isatty()
x = torch.ones(size, 1024, device="cuda")
if "--fail" in sys.argv:
    raise SystemExit(3)
print(x.sum().item())
"""


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, str]:
    """A folder of git repositories as `sources.py --from` reads them, and the commit of its one."""
    work = tmp_path / "from" / "owner+name" / "repo"
    (work / "code").mkdir(parents=True)
    (work / "code/train.py").write_text(_PROGRAM)
    (work / "unused.bin").write_bytes(b"0" * 1000)
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(work), *words], check=True)
    commit = subprocess.run(["git", "-C", str(work), "rev-parse", "HEAD"], check=True, capture_output=True)
    return tmp_path / "from", commit.stdout.decode().strip()


def test_a_program_is_brought_made_ready_and_followed(repository: tuple[Path, str], tmp_path: Path) -> None:
    from benchmarks.public import followed

    local, commit = repository
    here = tmp_path / "sources"
    source = {"commit": commit, "licence": "MIT", "paths": ["code"]}
    brought = sources.bring("owner/name", source, here, local)
    assert (brought / "code/train.py").exists() and not (brought / "unused.bin").exists()
    job: dict[str, Any] = {
        "name": "one", "repo": "owner/name", "script": "code/train.py", "folder": "code", "args": [], "environment": {},
        "data": [["files.text", "sizes", {"name": "size.txt", "content": "2048"}]], "packages": [], "processes": 1,
        "spawns": False, "until": None,
    }  # fmt: skip
    found = followed.follow(job, here, tmp_path / "copies", 120)
    assert "error" not in found and 2048 * 1024 * 4 < found["allocated"] < 2050 * 1024 * 4, found
    again = followed.follow({**job, "script": "code/none.py"}, here, tmp_path / "copies", 120, again=True)
    assert "no such file" in again["error"]


def test_verdicts_and_the_page() -> None:
    row = {"name": "one", "peak_allocated": 1000, "peak_reserved": 2000, "nvml_peak": 4000}
    exact = {"allocated": 1000, "reserved": 2000, "device": 4000}
    assert score.verdict(row, exact) == "exact"
    assert score.verdict(row, {**exact, "allocated": 1019}) == "near"
    assert score.verdict(row, {**exact, "allocated": 900}) == "off"
    assert score.verdict(row, {"error": "no"}) == "not followed"
    job = {"name": "one", "repo": "owner/name", "domain": "vision"}
    runs = [
        (job, row, {**exact, "device": 5000}),
        (job, {**row, "rank": 1}, {"error": "it stopped"}),
        (job, {**row, "rank": 2}, {**exact, "device": 4004}),
        ({**job, "name": "two", "domain": "graphs"}, {**row, "name": "two"}, exact),
    ]
    part = score.page(runs)
    assert (
        "| vision | 3 | 2 of 3 | 0.00 / 0.00 % | 2 of 3 | 0.00 / 0.00 % | 0 of 3 | 12.55 / 25.00 % | one, device +25.00 % |"
        in part
    )
    assert "| graphs | 1 | 1 of 1 |" in part and "| all | 4 | 3 of 4 |" in part
    assert "| it stopped | `one.rank1` |" in part
    assert "| one.rank1 | owner/name | 0.0 | not followed |" in score.lines(runs)
    assert "| two | owner/name | 0.0 | exact |" in score.lines(runs)


def test_what_came_first_stays_beside_what_is_now() -> None:
    row = {"name": "one", "peak_allocated": 2**20, "peak_reserved": 2**21, "nvml_peak": 2**22}
    now = {"allocated": 2**20, "reserved": 2**21, "device": 2**22, "bounded": 0, "unknown": {}}
    then = {**now, "reserved": 2**20}
    assert score.silently_under(row, then) and not score.silently_under(row, now)
    assert not score.silently_under(row, {**then, "bounded": 1})
    lost = {**then, "notes": None}
    assert not score.silently_under(row, lost)
    assert "doubt: 0. Of one the notes were not recorded." in score.page(
        [({"name": "one", "repo": "o/n", "domain": "vision"}, row, lost)]
    )
    job = {"name": "one", "repo": "owner/name", "domain": "vision"}
    about = {"tool": COMMIT, "gpu": "H200", "driver": "580", "date": "today"}
    first = {**about, "runs": {"one": then}}
    part = score.page([(job, row, now)], first)
    assert "run on one H200 (driver 580, torch 2.11.0+cu130, today)" in part
    told = "| one | owner/name | 1.0 | exact | exact | 2.0 | -50.00 % | exact | 4.0 | exact | exact |"
    assert told in score.lines([(job, row, now)], first)
    assert "| all, the first time | 1 | 1 of 1 | 0.00 / 0.00 % | 0 of 1 | 50.00 / 50.00 % |" in part
    assert (
        "no word of a doubt: 1." in part.split("Now.")[0]
        and "no word of a doubt: 0." in part.split("Now.")[1]
    )


def test_what_is_followed_again_takes_the_place_of_what_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is made of the record: figures, doubts and by whom; a row that has not been followed again stays as it was."""
    monkeypatch.setattr(record, "RECORD", tmp_path / "followed.json")
    figures = {"allocated": 1, "reserved": 2, "device": 3, "bounded": 0, "code": 0, "seconds": 1.0}
    said = ["a.py:1: how many results index has depends on data", "followed through 2 optimizer steps"]
    for tool, found in (
        ("a" * 40, {"one": {"error": "late"}, "two": {**figures, "notes": []}}),
        (
            "b" * 40,
            {"one": {**figures, "said": "much", "notes": said}, "two": {"error": "not ended after 9 s"}},
        ),
    ):
        (tmp_path / "found.json").write_text(json.dumps(found))
        done = CliRunner().invoke(record.keep, [str(tmp_path / "found.json"), "--tool", tool])
        assert done.exit_code == 0, done.output
    now = record.load()
    assert now["one"] == {**figures, "tool": "b" * 40, "notes": said[:1]} and now["two"]["tool"] == "a" * 40
    row = {"name": "one", "peak_allocated": 1, "peak_reserved": 2, "nvml_peak": 3}
    job = {"repo": "owner/name", "domain": "vision"}
    runs = [({**job, "name": name}, {**row, "name": name}, now[name]) for name in now]
    assert "Followed last: 1 by commit bbbbbbbb, 1 by commit aaaaaaaa." in score.page(runs)


def test_every_measured_program_is_recorded_and_the_page_is_made_of_that() -> None:
    found = record.load()
    assert {recorded.named(row) for row in score.measured()} == found.keys()
    jobs = {job["name"]: job for job in job_files.load()[1]}
    runs = [(jobs[row["name"]], row, found[recorded.named(row)]) for row in score.measured()]
    for name, some, first in score.rounds(runs):
        assert pages.part(score.PAGE, name).strip() == score.page(some, first).strip()


def test_texts_graphs_and_points_have_the_form_that_is_read(tmp_path: Path) -> None:
    import pickle

    import numpy as np

    prepared.maker("texts.words")(tmp_path, {"train.txt": 500}, vocabulary=40)
    assert len(set((tmp_path / "train.txt").read_text().split())) == 40
    prepared.maker("texts.tokens")(tmp_path, {"train.bin": 300}, vocabulary=65, vocabulary_file=True)
    tokens = np.fromfile(tmp_path / "train.bin", dtype=np.uint16)
    assert len(tokens) == 300 and tokens.max() < 65
    assert pickle.loads((tmp_path / "meta.pkl").read_bytes())["vocab_size"] == 65
    prepared.maker("ratings.sequences")(tmp_path, users=50, items=100)
    rows = [tuple(map(int, row.split())) for row in (tmp_path / "ml-1m.txt").read_text().splitlines()]
    assert {item for _, item in rows} == set(range(1, 101)) and rows == sorted(rows, key=lambda row: row[0])
    prepared.maker("points.modelnet_normals")(tmp_path, train=4, test=4, points=10)
    names = (tmp_path / "modelnet40_test.txt").read_text().split()
    assert np.loadtxt(tmp_path / names[0].rsplit("_", 1)[0] / f"{names[0]}.txt", delimiter=",").shape == (
        10,
        6,
    )
    prepared.maker("graphs.cora_content")(tmp_path, nodes=20, features=8, edges=15)
    content = [row.split("\t") for row in (tmp_path / "cora.content").read_text().splitlines()]
    known = {row[0] for row in content}
    assert len(content) == 20 and {len(row) for row in content} == {10}
    assert all(set(row.split("\t")) <= known for row in (tmp_path / "cora.cites").read_text().splitlines())


def test_a_planetoid_graph_is_read(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    planetoid = pytest.importorskip("torch_geometric.datasets").Planetoid
    prepared.maker("graphs.planetoid")(tmp_path, nodes=1400, features=16)
    graph = planetoid(str(tmp_path), "Cora")[0]
    assert (
        tuple(graph.x.shape) == (1400, 16)
        and int(graph.train_mask.sum()) == 140
        and int(graph.test_mask.sum()) == 1000
    )
