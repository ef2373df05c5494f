"""What ranks tell each other by value: the other rank is followed beside, and nobody waits for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from analyzer.errors import CaptureError
from analyzer.options import Options
from analyzer_programs.program import follow

pytestmark = pytest.mark.usefixtures("forked_ranks")

JOIN = """
import os, torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
"""


def run(folder: Path, text: str, ranks: int = 2, rank: int = 0) -> None:
    script = folder / "program.py"
    script.write_text(JOIN + text)
    _, error = follow(script, [], Options(device="h200"), {}, "end", ranks, rank)
    if error is not None:
        raise error


def test_values_and_objects_come_from_the_rank_that_has_them(tmp_path: Path) -> None:
    """Sizes by send and receive, on the device and in host memory; objects sent, broadcast, scattered; the store."""
    run(
        tmp_path,
        """
host = dist.new_group([0, 1], backend="gloo")
store = dist.TCPStore("localhost", 29501, world, rank == 0)
got = torch.empty(2, dtype=torch.int64, device="cuda")
flag = torch.empty(1)
objects, part, told = [None, None], [None], [None]
if rank == 0:
    store.set("name", "seven")
    dist.send(torch.tensor([5, 7], device="cuda"), 1)
    dist.send(torch.tensor([0.25]), 1, group=host)
    dist.send(torch.randn(8, device="cuda"), 1)  # an activation: received, its value unknown
    dist.send_object_list([{"shape": (3, 4)}], 1)
    objects, told = ["of rank 0", 2], ["own"]
    dist.scatter_object_list(part, ["zero", "one"], src=0)
else:
    dist.recv(got, 0)
    dist.recv(flag, 0, group=host)
    dist.recv(torch.empty(8, device="cuda"), 0)
    dist.recv_object_list(told, 0)
    dist.scatter_object_list(part, src=0)
    assert got.tolist() == [5, 7] and flag.item() == 0.25
    assert told == [{"shape": (3, 4)}] and part == ["one"]
    assert store.get("name") == b"seven"
dist.broadcast_object_list(objects, src=0)
assert objects == ["of rank 0", 2]
work = dist.batch_isend_irecv([dist.P2POp(dist.isend, got, 1 - rank), dist.P2POp(dist.irecv, got.clone(), 1 - rank)])
for one in work:
    one.wait()
dist.monitored_barrier(host)
""",
        rank=1,
    )


def test_a_value_goes_there_and_back(tmp_path: Path) -> None:
    """Each rank waits for the other in turn, as a pipeline's stages vote."""
    run(
        tmp_path,
        """
count = torch.tensor([1], device="cuda")
if rank == 0:
    dist.send(count, 1)
    dist.recv(count, 1)
else:
    dist.recv(count, 0)
    count *= 21
    dist.send(count, 0)
assert count.item() == (21 if rank == 0 else 21)
""",
    )


@pytest.mark.parametrize(
    ("text", "rank", "message"),
    [
        # Both wait for the other to begin.
        ("dist.recv(torch.empty(1, dtype=torch.int64), 1 - rank)", 0, "rank 1 waits too, at program.py:6"),
        # The sender's program ends without sending.
        ("rank or dist.recv(torch.empty(1, dtype=torch.int64), 1)", 0, "rank 1 ended without it"),
        # The sender fails.
        ("assert rank\\ndist.recv(torch.empty(1, dtype=torch.int64), 0)", 1, "program.py:6: AssertionError"),
        ("dist.TCPStore('localhost', 1).get('nothing')", 0, "program.py:6 reads 'nothing' from the store"),
    ],
    ids=["both wait", "never sent", "sender fails", "store"],
)
@pytest.mark.sampled(2)
def test_a_value_that_never_comes_is_an_error_with_its_line(
    tmp_path: Path, text: str, rank: int, message: str
) -> None:
    with pytest.raises(CaptureError, match=r"waits for a value of .* that never comes") as error:
        run(tmp_path, text.replace("\\n", "\n"), rank=rank)
    assert message in str(error.value)
    assert str(error.value).startswith("program.py:")
