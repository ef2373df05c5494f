"""`--parallel`: what its words mean, and what is said of those that mean nothing."""

from __future__ import annotations

import pytest

from analyzer.errors import OptionError
from analyzer.parallelism import parse
from analyzer.ranks import Rank


def test_words_and_settings() -> None:
    found = parse("FSDP2:16, mixed=BF16, wrap=layers.*, reshard_after_forward=false, rank=9")
    assert (found.kind, found.size, found.rank) == ("fsdp2", 16, Rank(9, 16, 8))
    assert found.settings == {
        "mixed": "bfloat16", "wrap": "layers.*", "reshard_after_forward": False, "rank": 9,
    }  # fmt: skip
    assert str(found) == "FSDP2 on 16 GPUs"
    assert (parse("ddp:1").rank, parse("tp:1").rank) == (Rank(0, 1, 1), Rank(0, 1, 1))
    assert (parse("ddp:8").rank.rank, parse("tp:8").rank.rank, parse("tp:8,rank=0").rank.rank) == (0, 1, 0)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("fsdp:8", "unknown way to spread a model 'fsdp'", "did you mean 'fsdp2'"),
        ("zero:8", "unknown way to spread a model 'zero'", "kinds: ddp, fsdp2, tp"),
        ("", "unknown way to spread a model ''", "kinds:"),
        ("ddp", "missing GPU count, e.g. ddp:8", "KIND:SIZE"),
        ("ddp:0", "'0' is not a number of GPUs", "KIND:SIZE"),
        ("tp:-2", "'-2' is not a number of GPUs", "KIND:SIZE"),
        ("tp:two", "'two' is not a number of GPUs", "KIND:SIZE"),
        ("tp:2,mixed=bf16", "tp has no setting 'mixed'", "settings: wrap, rank"),
        ("fsdp2:8,warp=layers.*", "fsdp2 has no setting 'warp'", "did you mean 'wrap'"),
        ("fsdp2:8,mixed=int8", "mixed is 'int8'", "bf16, fp16 or fp32"),
        ("fsdp2:8,mixed", "mixed is ''", "bf16, fp16 or fp32"),
        ("fsdp2:8,offload=maybe", "offload is 'maybe'", "true or false"),
        ("fsdp2:8,wrap=", "wrap is ''", "a pattern"),
        ("fsdp2:8,wrap=a,wrap=b", "wrap is given twice", "once"),
        ("ddp:8,bucket_cap_mb=0", "bucket_cap_mb is '0'", "at least 1"),
        ("ddp:8,rank=8", "there is no rank 8 among 8", "0 to 7"),
    ],
)
def test_what_means_nothing_is_named(text: str, message: str, hint: str) -> None:
    with pytest.raises(OptionError) as error:
        parse(text)
    assert message in error.value.message
    assert hint in error.value.hint
