"""cuFFT's workspace: what a plan needs besides its input and its output.

1. **Complex to complex**: nothing for lengths one kernel computes; one buffer of the whole result where a
   length takes several kernels: powers of two above `_LONGEST_KERNEL`, other long lengths, composites of a
   large prime (721 = 7 x 103).
2. **Bluestein**: long lengths with a prime factor above 127 are computed as a convolution of the first length
   of factors 2, 3 and 5 that is at least 2 n - 1: two buffers of that length.
3. **Real, even**: two real numbers are one complex one of half the length: a buffer of n / 2 of them, n / 2 +
   1 where the half takes several kernels; nothing for lengths that have a kernel of their own.
4. **Real, odd**: two signals of the batch are one complex signal: two buffers of the pairs, or one and
   Bluestein's two, which are one element longer; nothing for one dimension of up to 127 or of small factors.
5. Where several buffers follow each other each starts at a multiple of 1,024 bytes.

6. Which short lengths have kernels of their own is a list of cuFFT's (`_KERNELS`), not a rule.

Source: cuFFT's manual (Accuracy and Performance: factors up to 127, else Bluestein); sizes as recorded for
1,707 transforms (H200, cuFFT of CUDA 13.0; `tests/data/h200/fft.jsonl.gz`) and for every length up to 600
(H100, 27 November 2026, `tests/data/h100/fft_lengths.jsonl.gz`), on which
`tests/runtimes/pytorch/scratch/test_fourier_recorded.py` tries the rule.

Not modelled: 32,768 and 65,536 in large batches, which take less, and some long lengths of double precision
(6,000), which take none; other versions of cuFFT; the tables of long Bluestein plans, which cuFFT keeps
outside PyTorch's allocator (64 MiB for 1,000,003).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_ALIGNMENT_BYTES = 1024
_LARGEST_RADIX = 127
# Short lengths whose prime factors are at most this one have kernels of their own; strided even ones of real
# numbers, at most that.
_SMOOTH, _STRIDED_SMOOTH, _SHORT = 7, 5, 1000
# By the bytes of a real number: the longest power of two, and the longest other smooth length, that one
# kernel computes.
_LONGEST_KERNEL = {2: (8192, 1), 4: (16384, 11025), 8: (16384, 1500)}
# In double precision columns (every dimension but the last) of 720 take several; the longest recorded that do
# not.
_LONGEST_COLUMN = {2: 0, 4: 11025, 8: 224}
# The longest odd row of real numbers, of two or three dimensions, that was recorded to take nothing: 65 does.
_LONGEST_ODD_ROW = 7
# The longest length of a large prime factor that is computed without buffers of Bluestein's.
_SHORT_BLUESTEIN = 1009
_LARGEST_PRIME_OF_A_KERNEL = 31
# Lengths recorded besides powers of two and short smooth ones.
_RECORDED = {
    2: frozenset[int](),
    4: frozenset(
        {101, 127, 131, 255, 257, 509, 721, 1009, 1022, 1280, 1440, 1536, 2016, 2046, 3000, 4097, 6000, 10007}
        | {12000, 22050, 44100, 480000}
    ),
    8: frozenset({509, 1280, 3000, 6000, 12000, 480000}),
}
_RECORDED_IN_ROWS = frozenset({65, 101, 131, 721, 1009, 1280, 1440})
# By the number of dimensions, or strided.
_LONGEST_IN_PLANES, _LONGEST_IN_VOLUMES, _LONGEST_STRIDED = 4096, 131, 1440
_RECORDED_STRIDED = frozenset({14, 131, 720, 1009, 1440})
_LONGEST_POWER = {2: 2**20, 4: 2**22, 8: 2**22}
# Powers of two above the first and below the second were not recorded.
_POWERS_BETWEEN = {2: (4096, 16384), 4: (2**22, 2**22), 8: (4096, 32768)}


# Lengths up to the first number that took nothing, as bits: bit n of length n. By kind (of rows of complex
# numbers, of columns, from and to real numbers) and the bytes of a real number.
_KERNELS = {
    ("rows", 4): (
        600,
        int(
            "1febe1fbecf7dddfe13ff877df9feddd89ffff7dfbfb27f5b7bf7f7dff19fe3fff74d7dafdd5f676"
            "bffe5f3bdafc7fbb30f99fbed79efaf3feb9fbdf3bf7bffbfbbfbfffffffffffffffffc",
            16,
        ),
    ),
    ("columns", 4): (
        320,
        int("12f9d5f232b7fe1d3bd8b87fbb10f11fbe179afad33e19fbde3277bfb1f1bf3ddb9e7bf3bfffffffc", 16),
    ),
    ("columns", 8): (256, 0x11C0B82AB910C01F3A039A3AD20E11A99E3037ABB071BA3CDB9E7BF3BFFFFFFFC),
    ("from real", 4): (
        600,
        int(
            "10410010081004018030001010184410011410503010011002111031401130140810411081112030"
            "109411115090183110401412111832511411191e3037bbb171bb3ddb9e7bf3bfffffffc",
            16,
        ),
    ),
    ("from real", 8): (256, 0x114090083110401412011832500411091E3037ABB071BA3CDB9E7BF3BFFFFFFFC),
    ("to real", 4): (
        600,
        int(
            "10410010081004018030001010184410011410503010011002111031401130140810411081112030"
            "109411114090083110401412111832511411191e3037bbb071bb3ddb9e7bf3bfffffffc",
            16,
        ),
    ),
    ("to real", 8): (256, 0x114090083110401412011832500411091E3037ABB071BA3CDB9E7BF3BFFFFFFFC),
}


@dataclass(frozen=True, slots=True)
class FourierPlan:
    """A transform of `lengths` (one to three dimensions), `batch` times. real: input or output is real
    (to_real: the output); real_bytes: of one real number.

    strided: the numbers of a signal do not follow each other in memory.
    """

    lengths: tuple[int, ...]
    batch: int
    real: bool
    real_bytes: int
    strided: bool = False
    to_real: bool = False


def workspace_bytes(plan: FourierPlan) -> int:
    """Return the bytes cuFFT asks for to run the plan."""
    if not plan.lengths or not plan.batch or not all(plan.lengths):
        return 0
    if plan.real and not _has_real_kernel(plan):
        return _even(plan) if plan.lengths[-1] % 2 == 0 else _odd(plan)
    rest = plan.lengths[:-1] if plan.real else plan.lengths
    stored = (*rest, plan.lengths[-1] // 2 + 1) if plan.real else plan.lengths
    return _complex(rest, math.prod(stored) * plan.batch, plan)


def is_recorded(plan: FourierPlan) -> bool:
    """Return whether plans of such lengths were recorded, so that the workspace is exact."""
    last, dimensions, longest = plan.lengths[-1], len(plan.lengths), max(plan.lengths)
    kind = ("to real" if plan.to_real else "from real") if plan.real else "rows"
    columns = plan.lengths[:-1]
    if _kernel(kind, last, plan) is not None and None not in (_kernel("columns", n, plan) for n in columns):
        return True
    if dimensions > 1 and longest > (_LONGEST_IN_PLANES if dimensions == 2 else _LONGEST_IN_VOLUMES):
        return False
    if plan.strided and longest > _LONGEST_STRIDED:
        return False
    odd_rows = plan.real and dimensions > 1 and last % 2 == 1
    if odd_rows and last > _LONGEST_ODD_ROW and last not in _RECORDED_IN_ROWS:
        return False
    return all(_is_recorded(length, plan) for length in plan.lengths)


def _is_recorded(length: int, plan: FourierPlan) -> bool:
    """Return whether cuFFT's work area for this length was measured, or follows from measured ones."""
    if _is_power_of_two(length):
        above, below = _POWERS_BETWEEN[plan.real_bytes]
        return length <= _LONGEST_POWER[plan.real_bytes] and not above < length < below
    if plan.strided and plan.real:
        return length in _RECORDED_STRIDED and plan.real_bytes == 4
    if len(plan.lengths) > 1 and length not in _RECORDED_IN_ROWS and length > _SHORT:
        return False
    is_short = length <= _SHORT and _largest_prime(length) <= _SMOOTH
    return (
        is_short
        or length in _RECORDED[plan.real_bytes]
        or (len(plan.lengths) > 1 and plan.real_bytes == 4 and length in _RECORDED_IN_ROWS)
    )


def _complex(lengths: tuple[int, ...], elements: int, plan: FourierPlan) -> int:
    """Complex transforms over `lengths` of an array of so many elements."""
    number_bytes = 2 * plan.real_bytes
    if any(_is_bluestein(length) for length in lengths):
        padded = max(
            elements // length * _convolution_length(length) for length in lengths if _is_bluestein(length)
        )
        copy_bytes = elements * number_bytes if len(lengths) > 1 else 0
        return copy_bytes + 2 * _aligned(padded * number_bytes)
    return elements * number_bytes if _takes_kernels(lengths, plan) else 0


def _even(plan: FourierPlan) -> int:
    """Return the workspace bytes of a real transform of even length: a complex one of half the length."""
    half = plan.lengths[-1] // 2
    others = plan.lengths[:-1]
    rows = math.prod(others) * plan.batch
    number_bytes = 2 * plan.real_bytes
    inner = _complex((*others, half), rows * half, plan)
    bluestein = inner if any(map(_is_bluestein, (*others, half))) else 0
    return rows * (half + bool(inner)) * number_bytes + bluestein


def _odd(plan: FourierPlan) -> int:
    """Return the workspace bytes of a real transform of odd length: two signals are one complex signal."""
    pairs = -(-plan.batch // 2)
    length, number_bytes = plan.lengths[-1], 2 * plan.real_bytes
    elements = math.prod(plan.lengths) * pairs
    if any(_is_bluestein(each) for each in plan.lengths) and len(plan.lengths) == 1:
        padded = (_convolution_length(length) + 1) * pairs
        return elements * number_bytes + 2 * _aligned(padded * number_bytes)
    inner = _complex(plan.lengths, elements, plan) if len(plan.lengths) > 1 else 0
    bluestein = inner if any(_is_bluestein(each) for each in plan.lengths) else 0
    second = elements // length * (length + _is_padded(plan))
    return elements * number_bytes + _aligned(second * number_bytes) + bluestein


def _is_padded(plan: FourierPlan) -> bool:
    """Return whether the second buffer of real planes of odd rows has a number more a row: where columns take
    several kernels, from real numbers because of a large prime."""
    if len(plan.lengths) != 2:
        return False
    column = plan.lengths[0]
    if plan.to_real:
        return _kernel("columns", column, plan) is False
    return _LARGEST_PRIME_OF_A_KERNEL < _largest_prime(column) < column


def _has_real_kernel(plan: FourierPlan) -> bool:
    """Return whether the last length has a kernel that takes real numbers as they are."""
    length = plan.lengths[-1]
    listed = _kernel("to real" if plan.to_real else "from real", length, plan)
    if listed is not None:
        return listed
    if _is_power_of_two(length):
        return length <= _LONGEST_KERNEL[plan.real_bytes][0]
    if length % 2 and length <= (_LARGEST_RADIX if len(plan.lengths) == 1 else _LONGEST_ODD_ROW):
        return True
    if length % 2 and len(plan.lengths) > 1:
        return False
    smooth = _STRIDED_SMOOTH if plan.strided and length % 2 == 0 else _SMOOTH
    return length <= _SHORT and _largest_prime(length) <= smooth


def _kernel(kind: str, length: int, plan: FourierPlan) -> bool | None:
    """Return whether a length of one or two contiguous dimensions has a kernel; None: not listed."""
    longest, lengths = _KERNELS.get((kind, plan.real_bytes), (0, 0))
    if not 1 < length <= longest or plan.strided or len(plan.lengths) > 2:
        return None
    return bool(lengths >> length & 1)


def _takes_kernels(lengths: tuple[int, ...], plan: FourierPlan) -> bool:
    """Return whether a complex transform takes more than one kernel for one of its lengths."""
    power, row = _LONGEST_KERNEL[plan.real_bytes]
    column = _LONGEST_COLUMN[plan.real_bytes]
    dimensions = len(plan.lengths)
    for dim, length in enumerate(lengths):
        listed = _kernel("rows" if dim == dimensions - 1 else "columns", length, plan)
        if listed is not None:
            if not listed:
                return True
            continue
        longest = power if _is_power_of_two(length) else row if dim == dimensions - 1 else column
        if length > longest or _LARGEST_PRIME_OF_A_KERNEL < _largest_prime(length) < length:
            return True
    return False


def _is_bluestein(length: int) -> bool:
    return length > _SHORT_BLUESTEIN and _largest_prime(length) > _LARGEST_RADIX


def _convolution_length(length: int) -> int:
    """Return the first length of factors 2, 3 and 5 that is at least 2 n - 1."""
    least = 2 * length - 1
    best = 1 << (least - 1).bit_length()
    fives = 1
    while fives < best:
        threes = fives
        while threes < best:
            best = min(best, threes << max(-(-least // threes) - 1, 0).bit_length())
            threes *= 3
        fives *= 5
    return best


def _largest_prime(number: int) -> int:
    """Return the largest prime factor, 1 of 1."""
    largest, factor = 1, 2
    while factor * factor <= number:
        while number % factor == 0:
            largest, number = factor, number // factor
        factor += 1
    return max(largest, number)


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
