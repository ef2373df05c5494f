"""What initializing a tensor takes from a generator, counted beside PyTorch's own; lengths a seeded program draws afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import analyzer
from analyzer.capture.pytorch.device.host_draws import even_numbers, normal_numbers

TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def taken(fill: Callable[[torch.Generator], object]) -> int:
    """Numbers of 32 bits that it takes, found by what is drawn next."""
    generator, beside = (torch.Generator().manual_seed(3) for _ in range(2))
    fill(generator)
    after, drawn = torch.rand(8, generator=generator), torch.rand(1 << 15, generator=beside)
    return next(at for at in range(len(drawn)) if torch.equal(drawn[at : at + 8], after))


@pytest.mark.parametrize("count", [16, 4096, 4101, 4111])
@pytest.mark.parametrize("dtype", TYPES)
def test_as_many_numbers_as_pytorch_takes(dtype: torch.dtype, count: int) -> None:
    tensor = torch.empty(count, dtype=dtype)
    assert taken(lambda generator: tensor.normal_(generator=generator)) == normal_numbers(tensor)
    assert taken(lambda generator: tensor.uniform_(generator=generator)) == even_numbers(tensor)


def test_elements_apart_and_pairs() -> None:
    apart, pairs = torch.empty(4096, 2)[:, 0], torch.empty(4096, dtype=torch.complex64)
    assert taken(lambda generator: apart.normal_(generator=generator)) == normal_numbers(apart)
    assert taken(lambda generator: pairs.normal_(generator=generator)) == normal_numbers(pairs)
    whole = torch.empty(4101, dtype=torch.int64)
    assert taken(lambda generator: whole.random_(0, 99, generator=generator)) == 4101


DRAWING = """
torch.manual_seed(5)
torch.nn.Embedding(5003, 96), torch.nn.Linear(700, 701), torch.nn.Linear(900, 901, device="meta"), torch.randn(700, 999), torch.rand(1 << 19)
torch.empty(1 << 18, dtype=torch.int64).random_(0, 9)
length = int(torch.randint(1, 1 << 20, ()))
"""


def test_lengths_drawn_after_large_parameters_are_those_of_a_real_run(tmp_path: Path) -> None:
    real: dict[str, int] = {}
    exec(f"import torch{DRAWING}", real)
    program = tmp_path / "program.py"
    program.write_text(f"import torch{DRAWING}x = torch.empty(length, dtype=torch.uint8, device='cuda')\n")
    assert analyzer.run(program, device="h200").peak_allocated == -(-real["length"] // 512) * 512
