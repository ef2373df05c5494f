"""Programs that start the processes of their ranks themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.extensions.programs.world.ranks import program

MAIN = """
import multiprocessing, os, torch, torch.distributed as dist, torch.multiprocessing as mp

def main(rank, size):
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29511", rank=rank, world_size=size)
    torch.cuda.set_device(rank)
    assert dist.get_rank() == 1
    held.append(torch.empty(2**20, device="cuda"))
    dist.barrier()

held = []
if __name__ == "__main__":
"""
STARTED = """
    started = [WHERE.Process(target=main, args=(rank, 2)) for rank in range(2)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    assert [process.exitcode for process in started] == [0, 0] and not any(p.is_alive() for p in started)
"""


@pytest.mark.parametrize(
    "text",
    [
        "    mp.spawn(main, args=(2,), nprocs=2, join=True)",
        "    assert mp.spawn(main, (2,), 2, join=False).join()",
        "    mp.start_processes(main, args=(2,), nprocs=2, start_method='fork')",
        STARTED.replace("WHERE", "mp"),
        STARTED.replace("WHERE", "multiprocessing.get_context('spawn')"),
    ],
)
def test_the_process_of_the_rank_is_followed(tmp_path: Path, text: str) -> None:
    found = program(tmp_path, MAIN + text, rank=1)
    # The barrier is called with a tensor, and adds one up.
    assert found.estimate.peak_allocated == 2**22 + 2 * 512


def test_any_other_process_is_not_and_the_estimate_says_so(tmp_path: Path) -> None:
    text = """
import multiprocessing, torch
def work(name):
    pass
if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=work, args=("a",))
    process.start()
    process.join()
    list(torch.utils.data.DataLoader(torch.zeros(4), num_workers=1))
"""
    (note,) = [note for note in program(tmp_path, text).estimate.notes if "process of its own" in note]
    assert note.startswith("program.py:7 starts a process of its own (work), which is not followed")


def test_a_barrier_keeps_its_tensor_until_the_next(tmp_path: Path) -> None:
    """As recorded (`dino_vit_tiny`, `histories_public.xz`): 1 byte and, for a moment, 4; the first barrier's go with the second."""
    found = program(
        tmp_path,
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('nccl')\ntorch.cuda.set_device(0)\n"
        "for _ in range(3):\n    dist.barrier()\n    assert torch.cuda.memory_allocated() == 512",
    )
    assert found.estimate.peak_allocated == 2 * 512


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.sampled(1)
def test_a_process_that_asks_for_the_gpu_ends_the_wait_for_it(tmp_path: Path, method: str) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\n"
        "def work(queue):\n    queue.put(torch.ones(4, device='cuda').shape)\n"
        "if __name__ == '__main__':\n"
        "    import multiprocessing\n"
        "    weights = torch.zeros(2**20, device='cuda')\n"
        f"    context = multiprocessing.get_context('{method}')\n"
        "    queue = context.Queue()\n    context.Process(target=work, args=(queue,)).start()\n    queue.get()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "analyzer", "run", "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False
    )  # fmt: skip
    assert ran.returncode == 2 and "4,194,304" in ran.stdout
    assert "program.py:9 starts a process of its own (work), which asks for the GPU" in ran.stderr
