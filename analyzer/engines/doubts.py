"""What tracing could not account for, so that PyTorch's own code should be asked."""

from __future__ import annotations

from analyzer.results.estimate import Estimate

_INTERRUPTED = "interrupted"  # `pipeline/program.py`


def doubt_of(estimate: Estimate) -> str | None:
    """Why the figures of a traced program may not be the program's; None: nothing was met that says so."""
    if estimate.incomplete is not None:
        return None if estimate.incomplete == _INTERRUPTED else estimate.incomplete
    if unknown := estimate.certainty.unknown_operators:
        return f"nobody knows what {', '.join(unknown)} takes besides its results"
    if estimate.caveats:
        return estimate.caveats[0].partition(": ")[0]
    return estimate.unreached if "caught an error" in estimate.unreached else None
