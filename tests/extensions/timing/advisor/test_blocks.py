"""What computing blocks again gives, read off one program, beside the analysis of the program that does it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from analyzer.capture.pytorch.module.blocks import matching_any, pattern_of, repeated
from analyzer.errors import OptionError
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer_timing.advisor.blocks import Blocks, blocks_of
from analyzer_timing.advisor.knapsack import cheapest


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Tower(nn.Module):
    def __init__(self, count: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


OPTIONS = Options(
    mode="train", inputs=(torch.empty(2048, 256, device="meta"),), loss="sum", optimizer="adam", device="h100"
)


@pytest.fixture(scope="module")
def blocks() -> Blocks:
    return blocks_of(analysis(Tower(), OPTIONS), list(repeated(Tower())))


def test_a_block_frees_what_its_backward_pass_alone_reads(blocks: Blocks) -> None:
    """Of a block that is relu(x up) down the product and its relu are kept in one: 2048 x 1024 floats, made again
    from x."""
    assert [block.path for block in blocks.blocks] == [f"blocks.{place}" for place in range(4)]
    assert {block.freed_bytes for block in blocks.blocks} == {2048 * 1024 * 4}
    assert {block.operations for block in blocks.blocks} == {2 * 2048 * 256 * 1024}


def test_windows_lie_in_one_another(blocks: Blocks) -> None:
    """What is made first is needed last."""
    firsts = [block.first for block in blocks.blocks]
    lasts = [block.last for block in blocks.blocks]
    assert firsts == sorted(firsts) and lasts == sorted(lasts, reverse=True)
    assert all(first <= last for first, last in zip(firsts, lasts, strict=True))


def test_its_cost_is_the_time_of_what_runs_again(blocks: Blocks) -> None:
    """As the whole analysis of the changed program says it, within what the cache does to a few kernels."""
    plain, changed = (
        analysis(Tower(), replace(OPTIONS, checkpoint=pattern)).estimate.step_seconds
        for pattern in (None, "blocks.*")
    )
    assert plain is not None and changed is not None
    if plain.bound == "host":
        assert sum(blocks.costs) < changed.host_seconds - plain.host_seconds
    else:
        assert changed.device_seconds - plain.device_seconds == pytest.approx(sum(blocks.costs), rel=0.1)


@pytest.mark.parametrize("chosen", [(0,), (0, 1), (1, 3), (0, 1, 2, 3)])
def test_what_is_alive_then_is_what_the_changed_program_has(blocks: Blocks, chosen: tuple[int, ...]) -> None:
    """The knapsack's rows beside the peak of the program that computes these again: never less than a tenth of a
    block away."""
    pattern = pattern_of(Tower(), [blocks.blocks[place].path for place in chosen])
    changed = analysis(Tower(), replace(OPTIONS, checkpoint=pattern)).estimate
    plain = analysis(Tower(), OPTIONS).estimate
    said = max(row.bytes_of(chosen) for row in blocks.rows)
    beside = plain.peak_allocated - blocks.peak_bytes
    assert abs(said + beside - changed.peak_allocated) <= 2048 * 1024 * 4 // 4


def test_the_choice_fits_what_it_was_made_for(blocks: Blocks) -> None:
    limit = blocks.peak_bytes - 2 * 2048 * 1024 * 4
    chosen = cheapest(blocks.costs, blocks.rows, limit)
    assert chosen is not None and 2 <= len(chosen) <= 4
    assert max(row.bytes_of(chosen) for row in blocks.rows) <= limit


def test_patterns_name_these_blocks_and_no_others() -> None:
    tower = Tower(23)
    for places, pattern in {
        (0, 1, 2, 3): "blocks.[0-3]",
        (0, 2): "blocks.[02]",
        (7,): "blocks.7",
        (8, 9, 10, 11, 21): "blocks.[8-9],blocks.1[0-1],blocks.21",
        tuple(range(23)): "blocks.*",
    }.items():
        paths = [f"blocks.{place}" for place in places]
        assert pattern_of(tower, paths) == pattern
        assert set(matching_any(tower, pattern, "checkpoint")) == set(paths)


def test_every_pattern_must_match() -> None:
    with pytest.raises(OptionError, match=r"no module matches the checkpoint pattern 'layers\.\*'"):
        matching_any(Tower(), "blocks.0, layers.*", "checkpoint")
    assert list(matching_any(Tower(), "blocks.0.up,blocks.0", "checkpoint")) == ["blocks.0"]
