"""Document 003, PaddlePaddle's "Memory Allocation and Optimization": every strategy and flag by one command line.

The figures are worked out by hand from the guide's text, on programs small enough for that: `model_003_chain.py` (a
feed and five results of 512 MiB each at batch 8; two are alive at a time), `model_003_reshape.py` and
`model_003_narrowing.py`. Sizes in MiB unless they say otherwise. The allocator rounds to 256 B, and auto_growth asks the
device for 256 B more than a chunk has.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from analyzer.cli import main
from tests.paths import ROOT

MIB, GIB = 2**20, 2**30
HERE = ROOT / "tests" / "documents"


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """The estimate of one command line, as JSON; `code` is its exit code."""

    def ask(model: str, *flags: str, batch: int = 8, device: str = "") -> dict[str, Any]:
        arguments = [
            str(HERE / f"model_003_{model}.py"),
            "--batch",
            str(batch),
            "--runtime",
            "paddle",
            "--format",
            "json",
        ]
        arguments += ["--device", device] if device else []
        for flag in flags:
            arguments += ["--runtime-option", flag]
        code = main([*arguments, "-q"])
        return {"code": code, **json.loads(capsys.readouterr().out)}

    return ask


def allocated_mib(estimate: dict[str, Any]) -> float:
    return round(estimate["peak_allocated"] / MIB, 1)


def test_auto_growth_asks_for_what_it_needs_and_caches_what_is_freed(ask: Any) -> None:
    """The feed, the first and the second result find no block: three chunks. The third result takes the first's, cached,
    and so on; also the next run's feed finds a cached block. Nothing is given back."""
    estimate = ask("chain", "FLAGS_allocator_strategy=auto_growth")
    assert allocated_mib(estimate) == 3 * 512
    assert estimate["peak_reserved"] == 3 * (512 * MIB + 256)
    assert ask("chain")["peak_reserved"] == estimate["peak_reserved"], "it is the default"


def test_auto_growth_splits_a_larger_block(ask: Any) -> None:
    """Chunks of 1,024 MiB: two tensors share one."""
    estimate = ask("chain", "FLAGS_auto_growth_chunk_size_in_mb=1024")
    assert estimate["peak_reserved"] == 2 * (1024 * MIB + 256)


def test_pre_allocation_takes_its_fraction_of_what_is_available(ask: Any) -> None:
    """0.92 by default, 0.4 if asked for, of what the card has left beside the process's own; all requests fit in."""
    for flags, fraction in (((), 0.92), (("FLAGS_fraction_of_gpu_memory_to_use=0.4",), 0.4)):
        estimate = ask("chain", "FLAGS_allocator_strategy=naive_best_fit", *flags, device="16GiB")
        available = 16 * GIB - (estimate["device_used"] - estimate["peak_reserved"])
        assert estimate["peak_reserved"] == pytest.approx(fraction * available, abs=1024)
        assert allocated_mib(estimate) == 3 * 512
        assert estimate["code"] == 0


def test_a_request_above_the_chunk_goes_to_the_device_and_back(ask: Any) -> None:
    """A tenth of 4 GiB is less than 512 MiB: nothing is cached, what is reserved is what is in use."""
    flags = ("FLAGS_allocator_strategy=naive_best_fit", "FLAGS_fraction_of_gpu_memory_to_use=0.1")
    estimate = ask("chain", *flags, device="4GiB")
    assert estimate["peak_reserved"] == estimate["peak_allocated"] == 3 * 512 * MIB
    reserved = estimate["timeline"]["reserved"]
    assert reserved == estimate["timeline"]["allocated"] and 2 * 512 * MIB in reserved


def test_fraction_zero_shows_the_use_of_the_network(ask: Any) -> None:
    """Every request and free goes to the device: nvidia-smi shows what the network needs."""
    flags = ("FLAGS_allocator_strategy=naive_best_fit", "FLAGS_fraction_of_gpu_memory_to_use=0")
    estimate = ask("chain", *flags)
    assert estimate["peak_reserved"] == 3 * 512 * MIB
    assert estimate["timeline"]["reserved"] == estimate["timeline"]["allocated"]


def test_chunks_of_a_size_of_ones_own(ask: Any) -> None:
    """1,024 MiB hold the feed and the first result; the second result needs another chunk, of 600; the third fits where
    the first was."""
    estimate = ask(
        "chain",
        "FLAGS_allocator_strategy=naive_best_fit",
        "FLAGS_initial_gpu_memory_in_mb=1024",
        "FLAGS_reallocate_gpu_memory_in_mb=600",
    )
    assert estimate["peak_reserved"] == (1024 + 600) * MIB


@pytest.mark.parametrize(("limit_mb", "code"), [(1536, 1), (1537, 0), (0, 0)])
def test_the_memory_limit_holds_though_the_card_has_more(ask: Any, limit_mb: int, code: int) -> None:
    """Three chunks of 512 MiB and 256 B each are 768 B too much for 1,536 MiB. 0 is no limit."""
    estimate = ask("chain", f"FLAGS_gpu_memory_limit_mb={limit_mb}")
    assert estimate["code"] == code
    assert any("runs out of memory" in note for note in estimate["notes"]) == bool(code)
    assert estimate["peak_reserved"] == 3 * (512 * MIB + 256)


@pytest.mark.parametrize(
    ("gigabytes", "peak"),
    [
        # The feed, an operand and a result.
        ("0", 3 * 512),
        # The first result is garbage after the second operator, and waits: 0.5 GB. The third operator's operand makes it
        # 1 GB, and both go. So beside feed, operand and result one garbage tensor is held.
        ("1", 4 * 512),
        # Nothing goes: the feed, five results, and the next run's feed.
        ("-1", 7 * 512),
    ],
)
def test_garbage_is_collected_at_the_threshold(ask: Any, gigabytes: str, peak: int) -> None:
    assert allocated_mib(ask("chain", f"FLAGS_eager_delete_tensor_gb={gigabytes}")) == peak


def test_garbage_is_collected_at_once_by_default(ask: Any) -> None:
    assert allocated_mib(ask("chain")) == 3 * 512


@pytest.mark.parametrize(
    ("fraction", "units"),
    [
        # Feed 4, then 4, 3, 2, 1 and 1 more for the last operator, in units of 64 MiB.
        # All: the most is feed 4, operand 4, result 3.
        ("1", 4 + 4 + 3),
        # 60 % of 11 are 6.6: the variables of 4 and 3 suffice. 2, 1 and 1 stay, and with both feeds make 12.
        ("0.6", 4 + 2 + 1 + 1 + 4),
        # 30 % of 11 are 3.3: the variable of 4 alone; 3, 2, 1 and 1 stay.
        ("0.3", 4 + 3 + 2 + 1 + 1 + 4),
        # None: garbage collection is off.
        ("0", 4 + 4 + 3 + 2 + 1 + 1 + 4),
    ],
)
def test_the_fraction_collects_the_largest_variables_only(ask: Any, fraction: str, units: int) -> None:
    estimate = ask("narrowing", f"FLAGS_memory_fraction_of_eager_deletion={fraction}", batch=1)
    assert allocated_mib(estimate) == 64 * units


def test_the_fraction_zero_is_no_garbage_collection(ask: Any) -> None:
    off = ask("narrowing", "FLAGS_eager_delete_tensor_gb=-1", batch=1)
    assert allocated_mib(off) == 64 * (4 + 4 + 3 + 2 + 1 + 1 + 4)


def test_fast_deletion_is_the_default_and_the_slow_one_is_said(ask: Any) -> None:
    """Fast: without waiting for the kernel to end. Waiting takes time, which has no place in an order of events."""
    fast = ask("chain", "FLAGS_fast_eager_deletion_mode=True")
    slow = ask("chain", "FLAGS_fast_eager_deletion_mode=False")
    assert fast["peak_allocated"] == slow["peak_allocated"] == ask("chain")["peak_allocated"]
    assert [note for note in slow["notes"] if note not in fast["notes"]]


@pytest.mark.parametrize(
    ("in_place", "garbage", "tensors"),
    [
        # The feed and one buffer, which reshape, relu and tanh pass on.
        ("True", "0", 2),
        # Each writes a result of its own: feed, operand, result.
        ("False", "0", 3),
        # Never collected: the feed and one buffer, and the next feed; or the feed, four results, and the next feed.
        ("True", "-1", 3),
        ("False", "-1", 6),
    ],
)
@pytest.mark.parametrize("name", ["enable_inplace", "FLAGS_pir_apply_inplace_pass"])
def test_in_place_an_output_reuses_its_input(
    ask: Any, name: str, in_place: str, garbage: str, tensors: int
) -> None:
    estimate = ask("reshape", f"{name}={in_place}", f"FLAGS_eager_delete_tensor_gb={garbage}", batch=1)
    assert allocated_mib(estimate) == 64 * tensors


def test_the_recommended_settings_are_the_default(ask: Any) -> None:
    """Threshold 0 and in place, since 1.6."""
    recommended = ask("reshape", "FLAGS_eager_delete_tensor_gb=0", "enable_inplace=True")
    assert recommended["peak_allocated"] == ask("reshape")["peak_allocated"]


def test_flags_of_the_environment(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the guide sets them; an option wins."""
    monkeypatch.setenv("FLAGS_eager_delete_tensor_gb", "-1")
    assert allocated_mib(ask("chain")) == 7 * 512
    assert allocated_mib(ask("chain", "FLAGS_eager_delete_tensor_gb=0")) == 3 * 512


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("FLAGS_eager_delete_tensor=0", "did you mean 'FLAGS_eager_delete_tensor_gb'?"),
        ("FLAGS_allocator_strategy=auto_grow", "did you mean 'auto_growth'?"),
        ("FLAGS_fraction_of_gpu_memory_to_use=1.5", "between 0 and 1"),
        ("FLAGS_gpu_memory_limit_mb=-5", "must not be negative"),
        ("FLAGS_eager_delete_tensor_gb=much", "give a number"),
        ("enable_inplace=perhaps", "True or False"),
    ],
)
def test_mistakes_have_a_hint(capsys: pytest.CaptureFixture[str], flag: str, hint: str) -> None:
    model = str(HERE / "model_003_chain.py")
    assert main([model, "--runtime", "paddle", "--runtime-option", flag]) == 2
    assert hint in capsys.readouterr().err
