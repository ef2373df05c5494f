"""`nn.DataParallel` and what it is made of, on the one GPU there is. Sizes by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from analyzer.analysis import Analysis
from analyzer.errors import CaptureError
from analyzer.options import Options
from analyzer.runtimes.events import Malloc, Use
from analyzer_programs.program import follow

MIB = 2**20


def followed(folder: Path, text: str) -> Analysis:
    """The analysis of a program of this text."""
    script = folder / "program.py"
    script.write_text("import torch\nfrom torch import nn\n" + text)
    found, error = follow(script, [], Options(device="h200"), {}, gpus=1)
    if error is not None:
        raise error
    return found


def sizes(found: Analysis) -> list[tuple[int, int]]:
    """Bytes and stream of every request, libraries' aside."""
    return [
        (event.nbytes, event.stream)
        for event in found.events
        if isinstance(event, Malloc) and event.nbytes and event.label.startswith("aten")
    ]


@pytest.mark.parametrize("ids", ["", ", device_ids=[0]", ", device_ids=range(torch.cuda.device_count())"])
def test_host_tensors_are_copied_on_a_stream_of_their_own(tmp_path: Path, ids: str) -> None:
    found = followed(
        tmp_path,
        f"""
model = nn.DataParallel(nn.ReLU(){ids}).cuda()
for _ in range(2):
    y = model(torch.zeros(2**18))
assert y.device == torch.device("cuda", 0)
y = model(torch.ones(2**18, device="cuda"))
""",
    )
    copied = [(MIB, 1), (MIB, 0)]
    assert sizes(found) == [*copied, *copied, (MIB, 0), (MIB, 0)]  # what is on the GPU is taken as it is
    assert sum(isinstance(event, Use) for event in found.events) == 2


def test_a_model_is_trained(tmp_path: Path) -> None:
    """As the module by itself, but for the stream its inputs are copied on."""
    text = """
model = WRAPPED.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(64, 512).cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    alone = followed(tmp_path, text.replace("WRAPPED", "nn.Linear(512, 512)"))
    spread = followed(tmp_path, text.replace("WRAPPED", "nn.DataParallel(nn.Linear(512, 512))"))
    assert (spread.estimate.peak_allocated, spread.estimate.peak_reserved) == (
        alone.estimate.peak_allocated,
        alone.estimate.peak_reserved,
    )


def test_the_functions_it_is_made_of(tmp_path: Path) -> None:
    found = followed(
        tmp_path,
        """
from torch.cuda import comm
from torch.nn.parallel import data_parallel, gather, parallel_apply, replicate, scatter
x = torch.zeros(2**18, device="cuda")
whole = comm.gather([x, x])
assert whole.shape == (2**19,) and comm.gather([x, x], destination="cpu").device.type == "cpu"
assert comm.scatter(whole, [0])[0].data_ptr() == whole.data_ptr()
assert comm.broadcast(x, [0])[0] is x and comm.reduce_add([x]) is x
assert len(comm.broadcast_coalesced([x, x], [0])[0]) == 2
y, = scatter(whole, [0])
replica, = replicate(nn.ReLU(), [0])
out, = parallel_apply([replica], [(x,)])
assert gather([out, out], 0).shape == (2**19,)
assert data_parallel(nn.ReLU(), x).shape == x.shape
""",
    )
    joined = (2 * MIB, 0)
    assert sizes(found) == [(MIB, 0), joined, joined, (MIB, 0), joined, (MIB, 0)]


def test_images_that_are_channels_last_are_gathered_so(tmp_path: Path) -> None:
    followed(
        tmp_path,
        """
from torch.cuda import comm
x = torch.zeros(2, 3, 4, 5, device="cuda")
last = x.to(memory_format=torch.channels_last)
assert comm.gather([last, last]).is_contiguous(memory_format=torch.channels_last)
assert comm.gather([last, x]).is_contiguous()
""",
    )


@pytest.mark.parametrize("x", ["torch.zeros(4, 4)", "torch.zeros(4, 4).cuda()"])
def test_a_second_gpu_is_an_error_that_says_so(tmp_path: Path, x: str) -> None:
    with pytest.raises(CaptureError, match=r"uses cuda:1, and there is one GPU here: cuda:0") as caught:
        followed(tmp_path, f"nn.DataParallel(nn.Linear(4, 4).cuda(), device_ids=[0, 1])({x})")
    assert "--gpus 2" in str(caught.value.hint)
