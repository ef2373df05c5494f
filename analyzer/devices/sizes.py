"""Sizes as people write them: "24GiB" is 24 * 2^30 bytes, "24GB" and "24 gb" are 24 * 10^9, "8192MiB", "1.5
GiB".

On a card "24GB" is what its maker means, 24 * 2^30 (`as_on_the_box`): an RTX 4090 lists 24,564 MiB, which is
25.8 * 10^9 bytes. A prefix alone is binary: "24G" is 24 GiB, as GNU coreutils ("Block size") and `docker run
--memory` have it. A number alone is bytes, as programs write them; one below `SMALLEST_BARE` is questioned,
since nobody has 8 bytes.
"""

from __future__ import annotations

import re

from analyzer.errors import OptionError

UNITS: dict[str, int] = {
    "": 1,
    "b": 1,
    **{prefix: 1024**power for power, prefix in enumerate("kmgt", start=1)},
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)},
}
SMALLEST_BARE = 1 << 20
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def is_size(text: str) -> bool:
    """Return whether `text` is a number, alone or with a unit of memory."""
    match = _SIZE.fullmatch(text)
    return match is not None and match[2].lower() in UNITS


def parse_size(text: str) -> int:
    """Return bytes of a size such as "24GiB". Raises OptionError for others, and below one byte."""
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in UNITS:
        raise OptionError(f"{text!r} is no size", 'write a number with a unit: "24GiB", "24GB", "8192MiB"')
    integer, _, fraction = match[1].partition(".")
    scale = UNITS[match[2].lower()]
    if not match[2]:
        check_bare(match[1])
    nbytes = int(integer + fraction) * scale // int("1" + "0" * len(fraction))
    if nbytes < 1:
        raise OptionError(f"{text!r} is less than one byte", 'write a size such as "24GiB"')
    return nbytes


def check_bare(number: str | int) -> None:
    """Raise OptionError for a number without a unit that is too small to be meant as bytes."""
    if float(number) < SMALLEST_BARE:
        raise OptionError(
            f"{number!r} would be {number} bytes",
            f'write the unit: "{number}GiB", or "{number}B" for bytes',
        )


def as_on_the_box(text: str) -> int | None:
    """Return bytes of a whole number of "GB" as the makers of cards count them; None for any other size."""
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() != "gb" or "." in match[1]:
        return None
    return int(match[1]) << 30
