"""PYTORCH_ALLOC_CONF: what PyTorch accepts is accepted, what it refuses is refused, and settings act."""

from __future__ import annotations

import pytest

from analyzer import allocators
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.settings import PyTorchSettings, settings_from_conf
from analyzer.errors import OptionError

MIB = 2**20


def test_conf() -> None:
    settings = settings_from_conf(
        "max_split_size_mb:128, expandable_segments:True,garbage_collection_threshold:0.8,"
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8],pinned_use_background_threads:True",
        limit_bytes=5,
    )
    assert settings == PyTorchSettings(
        max_split_size_mb=128,
        expandable_segments=True,
        garbage_collection_threshold=0.8,
        roundup_power2_divisions=(*([1] * 9), 2, 4, *([8] * 5)),
        limit_bytes=5,
    )
    assert settings_from_conf("") == PyTorchSettings()


CONFS = [
    ("large_segment_size_mb:10", False),
    ("large_segment_size_mb:11", True),
    ("max_split_size_mb:19", False),
    ("max_split_size_mb:20", True),
    ("large_segment_size_mb:30,max_split_size_mb:21", False),
    ("max_non_split_rounding_mb:10", False),
    ("garbage_collection_threshold:1.0", False),
    ("garbage_collection_threshold:0.5", True),
    ("roundup_power2_divisions:3", False),
    ("roundup_power2_divisions:4", True),
    ("roundup_power2_divisions:[3:1]", False),
    ("roundup_power2_divisions:[256:1,512:2,>:8]", True),
    ("expandable_segments:true", False),
    ("expandable_segments:True", True),
]


@pytest.mark.parametrize(("conf", "good"), CONFS)
def test_same_verdict_as_pytorch(conf: str, good: bool) -> None:
    """PyTorch's own parser, which works without a GPU, gives the same verdict."""
    torch = pytest.importorskip("torch")
    try:
        if good:
            settings_from_conf(conf)
        else:
            with pytest.raises(OptionError):
                settings_from_conf(conf)
        if good:
            torch._C._accelerator_setAllocatorSettings(conf)
        else:
            with pytest.raises(ValueError):
                torch._C._accelerator_setAllocatorSettings(conf)
    finally:
        torch._C._accelerator_setAllocatorSettings("large_segment_size_mb:20,expandable_segments:False")


@pytest.mark.parametrize(
    "conf", ["foo:1", "max_split_size_mb", "max_split_size_mb:x", "a:[1", "backend:mine"]
)
def test_refused(conf: str) -> None:
    with pytest.raises(OptionError):
        settings_from_conf(conf)


def test_unknown_names() -> None:
    with pytest.raises(OptionError, match="did you mean 'pytorch'"):
        allocators.create("pytorhc")
    with pytest.raises(OptionError, match="max_split_size_mb"):
        allocators.create("pytorch", max_split_size=1)


@pytest.mark.parametrize(
    ("divisions", "nbytes", "size"),
    [
        (4, 1200, 1536),  # not above 512 * 4: plain rounding
        (4, 5000, 5120),  # 4096 + 1024 * k
        (4, 5121, 6144),
        (4, 8192, 8192),
        (8, 5 * MIB + 1, 5 * MIB + MIB // 2),
        (1, 5000, 5120),
        ("[1:0,>:4]", 5001, 5120),
        ("[1:8,2:4,>:2]", 5 * MIB, 6 * MIB),
        ("[1:8,2:4,>:2]", 3 * MIB + 1, 3 * MIB + MIB // 2),
        ("[1:8,2:4,>:2]", 700_000, 720_896),  # below 1 MiB: the first entry, 524,288 + 3 * 65,536
        (4, 100, 512),
    ],
)
def test_power2_rounding(divisions: int | str, nbytes: int, size: int) -> None:
    allocator = allocators.create("pytorch", roundup_power2_divisions=divisions)
    assert isinstance(allocator, PyTorchAllocator)
    assert allocator.rounded(nbytes) == size


def test_max_split_size() -> None:
    """A cached 40 MiB block (>= 32) serves no 4 MiB request, and no 15 MiB one; a request of 36 MiB takes it whole;
    one of 64 MiB does not take 100 MiB, which is 20 MiB or more larger."""
    allocator = PyTorchAllocator(settings_from_conf("max_split_size_mb:32"))
    allocator.free(allocator.malloc(40 * MIB))
    allocator.malloc(4 * MIB)
    assert allocator.reserved == 60 * MIB
    allocator.malloc(15 * MIB)
    assert allocator.reserved == 60 * MIB
    whole = allocator.malloc(36 * MIB)
    assert (allocator.size_of(whole), allocator.reserved) == (40 * MIB, 60 * MIB)
    allocator.free(allocator.malloc(100 * MIB))
    allocator.malloc(64 * MIB)
    assert allocator.reserved == (60 + 100 + 64) * MIB


def test_max_split_size_releases_enough_before_everything() -> None:
    """With 200 MiB of room and 100 + 60 cached, 80 MiB are found by returning the 100 MiB block alone."""
    allocator = PyTorchAllocator(settings_from_conf("max_split_size_mb:32", limit_bytes=200 * MIB))
    held = [allocator.malloc(size * MIB) for size in (110, 60)]
    for handle in held:
        allocator.free(handle)
    allocator.malloc(80 * MIB)
    assert allocator.reserved == 140 * MIB
    assert [event.size // MIB for event in allocator.segment_events if event.action == "segment_free"] == [
        110
    ]


def test_garbage_collection_skips_split_blocks() -> None:
    """Half of 200 MiB, threshold 0.5: with 60 reserved, the next segment first returns the block not split."""
    allocator = _collecting()
    first, second = allocator.malloc(40 * MIB), allocator.malloc(20 * MIB)
    allocator.free(first)
    allocator.malloc(16 * MIB)
    allocator.free(second)
    allocator.malloc(30 * MIB)
    assert _returned(allocator) == [20]


def test_garbage_collection_takes_the_old() -> None:
    """20 MiB are two searches old, 24 MiB one: above the average age there is only the first, and it is enough."""
    allocator = _collecting()
    old, young, other = (allocator.malloc(size * MIB) for size in (20, 24, 12))
    allocator.free(old)
    allocator.free(other)
    allocator.malloc(12 * MIB)
    allocator.free(young)
    allocator.malloc(30 * MIB)
    assert _returned(allocator) == [20]


def _collecting() -> PyTorchAllocator:
    conf = "garbage_collection_threshold:0.5,per_process_memory_fraction:0.5"
    return PyTorchAllocator(settings_from_conf(conf, device_total_bytes=200 * MIB))


def _returned(allocator: PyTorchAllocator) -> list[int]:
    return [event.size // MIB for event in allocator.segment_events if event.action == "segment_free"]


def test_fraction() -> None:
    conf = "per_process_memory_fraction:0.5"
    allocator = PyTorchAllocator(settings_from_conf(conf, device_total_bytes=100 * MIB))
    allocator.malloc(50 * MIB)
    with pytest.raises(allocators.OutOfMemoryError) as caught:
        allocator.malloc(1)
    assert caught.value.limit == 50 * MIB


def test_a_fraction_of_one_is_none() -> None:
    """PyTorch sets no bound then, so that nothing is collected either."""
    conf = "garbage_collection_threshold:0.5,per_process_memory_fraction:1.0"
    allocator = PyTorchAllocator(settings_from_conf(conf, device_total_bytes=100 * MIB))
    allocator.free(allocator.malloc(80 * MIB))
    allocator.malloc(120 * MIB)
    assert allocator.reserved == 200 * MIB
