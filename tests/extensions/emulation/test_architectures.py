"""What a compute capability has: one record, which profiles agree with."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from analyzer.devices import from_dict, load, names
from analyzer.devices.architectures import ARCHITECTURES
from analyzer.devices.loader import PROFILES
from analyzer.errors import OptionError
from analyzer_emulation.device import described


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


@pytest.mark.parametrize("capability", [(8, 7), (12, 1)])
def test_without_a_known_l2_cache_it_is_not_emulated(capability: tuple[int, int]) -> None:
    with pytest.raises(
        OptionError, match=r"compute capability {}\.{}, whose L2 cache is not known".format(*capability)
    ):
        described(replace(load("h200"), compute_capability=capability), (13, 0))


@pytest.mark.parametrize("capability", [(6, 1), (11, 0), (13, 0)])
def test_an_unknown_one_is_refused_by_whatever_reads_it(capability: tuple[int, int]) -> None:
    """A profile when it is read, and the emulated runtime."""
    said = r"compute capability {}\.{} is not known".format(*capability)
    content = json.loads((PROFILES / "h200.json").read_text())
    with pytest.raises(OptionError, match=said):
        from_dict({**content, "compute_capability": list(capability)})
    with pytest.raises(OptionError, match=said):
        described(replace(load("h200"), compute_capability=capability), (13, 0))


def test_what_libraries_choose_by_architecture_is_what_their_code_says() -> None:
    """The conditions on the compute capability in PyTorch's code, as they stand there (`sdp_utils.cpp`,
    `GroupMM.cu`, `cudnn/RNN.cpp`, `kernel_backward.h`)."""
    for (major, minor), found in ARCHITECTURES.items():
        sm = 10 * major + minor
        assert found.ampere == (sm >= 80)
        assert found.narrow_backward == (86 <= sm <= 89 or major == 12)
        assert found.prefers_cudnn == found.grouped_products == (major in (9, 10))
        assert ((2, 14) in found.wide_heads) == (major in (9, 10))
        assert ((2, 13) in found.wide_heads) == (sm == 90)
        assert (found.large_workspace is None) == (major < 9)
        assert found.large_workspace is None or ((2, 11) in found.large_workspace) == (sm == 90)
        assert found.persistent_layers == (major >= 8 and minor != 6)
        assert found.roomy_tiles == ("all" if sm in (80, 90, 100) else "half" if major == 7 else "")
