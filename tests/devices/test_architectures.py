"""What a compute capability has: one record, which profiles agree with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzer.devices import load, names
from analyzer.devices.architectures import ARCHITECTURES
from analyzer.emulation.device import described
from analyzer.errors import OptionError


@pytest.mark.parametrize("name", names())
def test_a_profile_says_what_its_architecture_says(name: str) -> None:
    profile = load(name)
    architecture = ARCHITECTURES[profile.compute_capability]
    assert profile.max_threads_per_sm == architecture.threads_per_sm
    asked = profile.cudnn_device
    if asked:
        assert asked["maxCtasPerSM"] == architecture.blocks_per_sm
        assert asked["maxSharedMemoryPerBlockOptin"] == architecture.block_shared_bytes


def test_a_block_has_no_more_than_its_multiprocessor() -> None:
    for architecture in ARCHITECTURES.values():
        assert architecture.block_shared_bytes <= architecture.shared_bytes


@pytest.mark.parametrize("capability", [(6, 1), (8, 7), (12, 1), (13, 0)])
def test_what_is_not_emulated_is_refused(capability: tuple[int, int]) -> None:
    with pytest.raises(
        OptionError, match=r"compute capability {}\.{}, which is not emulated".format(*capability)
    ):
        described(replace(load("h200"), compute_capability=capability), (13, 0))
