"""The same table from a Ray cluster of two nodes on this machine; skipped where ray is not installed."""

from __future__ import annotations

import os

import pytest

from analyzer.planning.grid import jobs, run
from tests.paths import MODELS, ROOT

cluster_utils = pytest.importorskip("ray.cluster_utils")


def test_two_nodes_give_the_table_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that does not exist is a row there too."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
    todo = jobs(
        {"targets": [str(MODELS / "cnn.onnx"), "none.onnx"], "batches": [1, 2, 3], "devices": ["h200"]}
    )
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        assert run(todo, ray=cluster.address) == run(todo)
    finally:
        cluster.shutdown()
