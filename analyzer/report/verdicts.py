"""The verdict on an estimate, in sentences: whether it fits, by how much, and what belongs beside that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from analyzer import devices
from analyzer.notes import CUT_SHORT
from analyzer.report.sentences import growing, parts_followed
from analyzer.report.words import clean, operator_name, percent, pieces, size, sizes, tail

if TYPE_CHECKING:
    from analyzer.results.estimate import Estimate, OutOfMemory, Room

# Cards with outputs for screens; of data centers' cards none has one.
_DESKTOP = ("rtx", "titan")
# A headroom that a desktop's own processes may use up.
_DISPLAY_BYTES = 2**30
DISPLAY = "a display on this card, and what the desktop draws, take some hundred MiB of that headroom"

# Progress that begins so is the verdict, which is shown at once.
DOES_NOT_FIT = "does not fit: "
# Words for each verdict, of the device and of a budget.
_FITS = {word: word for word in ("fits", "may not fit", "does not fit")}
_BUDGET = {"fits": "within budget", "may not fit": "may be over budget", "does not fit": "over budget"}


def verdicts(estimate: Estimate, budget_bytes: int | None = None) -> list[tuple[bool | None, str]]:
    """(holds, sentence) for the device and, when given, the budget; what does not hold comes first, before
    all why the runtime refuses it. Then with None what judges nothing: what the job would take with room, the
    request that finds no memory, a device that nobody named.

    budget_bytes: instead of the one the estimate was made with.
    """
    if estimate.engine == "recording":
        return [_recorded(estimate)]
    where = f"on {tail(clean(estimate.device), 20)}"
    held = f"{_used(estimate)} of {size(estimate.usable_bytes)} {where}"
    budget_bytes = budget_bytes or estimate.budget_bytes
    if estimate.incomplete is not None:
        return [(False, f"incomplete: {clean(estimate.incomplete)}; until then {held}")]
    sentences: list[tuple[bool | None, str]] = []
    if estimate.stopped:
        assert estimate.out_of_memory is not None
        sentences = [(False, f"out of memory: {_ended(estimate.out_of_memory)}")]
    elif not estimate.device_assumed:
        sentences = [_verdict(_FITS, estimate, estimate.usable_bytes, where)]
    if budget_bytes is not None:
        sentences.append(_verdict(_BUDGET, estimate, budget_bytes, "allowed"))
    sentences.sort(key=lambda entry: bool(entry[0]))
    if estimate.refused:
        sentences = [(None, f"if it ran: {sentence}") for _, sentence in sentences]
        sentences[:0] = [(False, sentence) for sentence in refusals(estimate)]
    if estimate.unreached:
        sentences.insert(0, (False, clean(estimate.unreached)))
    return sentences + [(None, sentence) for sentence in _other_sentences(estimate)]


def displays(estimate: Estimate, rest_bytes: int) -> bool:
    """Return whether a display would take what is left on a card that people work at."""
    fits = not estimate.device_assumed and estimate.verdict() != "does not fit"
    return fits and estimate.device.startswith(_DESKTOP) and 0 <= rest_bytes < _DISPLAY_BYTES


def refusals(estimate: Estimate) -> list[str]:
    """Return why the runtime would not run this; none where it would."""
    return [
        f"refused by {tail(clean(estimate.runtime), 20)}: {clean(message)}" for message in estimate.refused
    ]


def _recorded(estimate: Estimate) -> tuple[bool | None, str]:
    """Return the sentence on what was recorded."""
    if estimate.out_of_memory is not None:
        return False, f"out of memory: {_ended(estimate.out_of_memory)}"
    held, used = size(estimate.peak_reserved), size(estimate.peak_allocated)
    return None, f"recorded: the allocator held at most {held}, of which {used} in use at most"


def _other_sentences(estimate: Estimate) -> list[str]:
    """Return further sentences that belong to the verdict."""
    lines = []
    if estimate.device_assumed and estimate.budget_bytes is None and not estimate.stopped:
        takes = f"on {clean(estimate.device)} it would take {_used(estimate)}"
        lines.append(
            f"{takes}; --device NAME or SIZE says whether it fits"
            if estimate.device_used
            else "it uses no memory of a GPU"
        )
    lines += [clean(note) for note in parts_followed(estimate)]
    if estimate.out_of_memory is None and estimate.growth is not None:
        lines.append(growing(estimate))
    if displays(estimate, estimate.allowed_bytes - estimate.device_used):
        lines.append(DISPLAY)
    if not estimate.device_assumed and estimate.device in devices.names():
        lines += filter(None, [devices.missing_code(estimate.modelled, devices.load(estimate.device))])
    if estimate.with_room is not None:
        lines.append(_with_room(estimate, estimate.with_room))
    if estimate.doubt:
        fits = estimate.within(estimate.allowed_bytes)
        lines.append(f"it may {'fail' if fits else 'run nevertheless'}: {clean(estimate.doubt)}")
    if estimate.out_of_memory is not None and not estimate.stopped:
        lines.append(f"first failed allocation: {_ended(estimate.out_of_memory)}")
    lines += [f"it may take {_ends(estimate)}: {clean(note)}" for note in estimate.certainty.unasked]
    return lines


def _with_room(estimate: Estimate, room: Room) -> str:
    """Return the sentence on the need with room, and on the setting that holds a larger device to a budget:
    the runtime sees a device's memory, not a budget."""
    arena = estimate.runtime == "onnxruntime"
    here = "the arena takes smaller regions" if arena else "freed memory is given back"
    sentence = f"with room it would take {size(room.device_used)}; here {here}"
    budget = estimate.budget_bytes
    if budget is None or budget >= estimate.usable_bytes or not estimate.within(budget):
        return sentence
    beside = estimate.device_used - estimate.peak_reserved
    if arena:
        setting = f"gpu_mem_limit={budget - beside}"
    else:
        setting = f"torch.cuda.set_per_process_memory_fraction ({size(budget - beside)} of its bytes)"
    return f"{sentence}; on a larger GPU {setting} holds it to the budget"


def _ends(estimate: Estimate) -> str:
    """Return least and most of the device's memory; by how much it differs where both ends read the same."""
    low, high = estimate.device_range
    if size(low) != size(high):
        return sizes(low, high)
    differences = ((estimate.device_used - low, "less"), (high - estimate.device_used, "more"))
    return " or ".join(f"{size(nbytes)} {word}" for nbytes, word in differences if nbytes > 0)


def _ended(failed: OutOfMemory) -> str:
    """Return a sentence on the request without room, its place, and the free memory."""
    places = (operator_name(failed.label), failed.module, failed.source, failed.phase)
    place = ", ".join(clean(text) for text in dict.fromkeys(filter(None, places)))
    free = (
        f"{size(failed.free_bytes)} free in {pieces(failed.free_count)}"
        if failed.free_count
        else "nothing free"
    )
    kept = ""
    if failed.exception_bytes * 100 > failed.limit_bytes:
        kept += f"; {size(failed.exception_bytes)} are kept by nothing but the frames of an exception"
    if failed.cycle_bytes * 100 > failed.limit_bytes:
        kept += f"; {size(failed.cycle_bytes)} lie in reference cycles until Python collects garbage"
    return (
        f"{size(failed.requested_bytes)} for {place}; {size(failed.reserved_bytes)} of "
        f"{size(failed.limit_bytes)} held, {free}{kept}"
    )


def _verdict(words: Mapping[str, str], estimate: Estimate, limit: int, where: str) -> tuple[bool, str]:
    """Return whether it surely fits `limit`, and the sentence that says so; `words`: verdict to wording."""
    used, rest, verdict = _used(estimate), limit - estimate.device_used, estimate.verdict(limit)
    if any(CUT_SHORT.has(note) for note in estimate.notes):
        words = {word: f"{wording} as far as followed" for word, wording in words.items()}
    if verdict == "may not fit" and estimate.at_least:
        return False, f"{words[verdict]}: {used} of {size(limit)} {where}, {uncounted(estimate)}"
    if verdict == "may not fit":
        least, most = estimate.device_range
        sentence, certainty = f"{used} of {size(limit)} {where}", estimate.certainty
        if size(least) != size(most):
            sentence += f", between {size(least)} and {size(most)}"
            if cause := next(iter(certainty.causes), ""):
                sentence += f", depending on {clean(cause)}"
        if limit - certainty.kept_bytes < most <= limit:
            sentence += f", and the driver may keep {size(certainty.kept_bytes)} more of it"
        if least > limit >= estimate.usable_bytes and certainty.spare_bytes:
            sentence += f", and the driver may have {size(certainty.spare_bytes)} more"
        return False, f"{words[verdict]}: {sentence}"
    if verdict == "fits" and not estimate.device_used:
        return True, f"{words[verdict]}: it uses no memory of a GPU"
    if verdict == "fits":
        return (
            True,
            f"{words[verdict]}: {used} of {size(limit)} {where}, headroom {size(rest)}"
            f" ({percent(rest, limit)})",
        )
    return False, f"{words[verdict]}: needs {used} of {size(limit)} {where}, {size(-rest)} too much"


def _used(estimate: Estimate) -> str:
    return f"{'at least ' if estimate.at_least else ''}{size(estimate.device_used)}"


def uncounted(estimate: Estimate) -> str:
    """Why the figures are lower bounds."""
    first, *others = sorted(estimate.certainty.unknown_operators)
    take = f" and {len(others):,} more take for themselves" if others else " takes for itself"
    return f"not counting what {tail(operator_name(first), 44)}{take}"
