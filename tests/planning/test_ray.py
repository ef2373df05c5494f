"""The same table from a Ray cluster of two nodes on this machine, byte for byte; a worker there may die, too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from analyzer.cli import main
from analyzer.planning.grid import jobs, run
from tests.paths import MODELS, PYTHONPATH

cluster_utils = pytest.importorskip("ray.cluster_utils", reason="ray has no package for this platform")
DIES = """import os, torch
def make_model():
    os._exit(9)
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a cluster with two nodes of one processor each, that know where this package is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (PYTHONPATH, os.environ.get("PYTHONPATH")))))
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        try:
            cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes()
            yield cluster.address
        finally:
            cluster.shutdown()


def test_two_nodes_give_the_table_of_one_machine(address: str, tmp_path: Path) -> None:
    """A target that does not exist is a row there too, and what was in the journal stays."""
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        f"targets: [{MODELS / 'cnn.onnx'}, none.onnx]\nbatches: [1, 2, 3]\ndevices: [h200, 24GiB]\n"
    )
    words = ["grid", str(grid), "--journal", str(tmp_path / "journal.jsonl"), "-o"]
    assert main([*words, str(tmp_path / "ray.csv"), "--ray", address]) == 1
    assert main(["grid", str(grid), "--workers", "2", "-o", str(tmp_path / "cores.csv")]) == 1
    assert (tmp_path / "ray.csv").read_bytes() == (tmp_path / "cores.csv").read_bytes()
    assert main([*words, str(tmp_path / "again.csv")]) == 1  # from the journal
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "cores.csv").read_bytes()


def test_a_worker_that_dies_is_a_row(address: str, tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(DIES)
    rows = run(
        jobs({"targets": [str(tmp_path / "dies.py"), str(MODELS / "cnn.onnx")], "batches": [1]}), ray=address
    )
    assert [row["error"] for row in rows] == ["the process that analysed it died", ""]


def test_no_cluster(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What `--ray` says when nothing answers; "auto" without a cluster is answered at once."""
    grid = tmp_path / "grid.yaml"
    grid.write_text(f"targets: [{MODELS / 'cnn.onnx'}]\n")
    assert main(["grid", str(grid), "--ray", "no such place"]) == 2
    said = capsys.readouterr().err
    assert "no Ray cluster answers at no such place" in said and "Traceback" not in said
