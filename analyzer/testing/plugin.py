"""The pytest plugin: a budget of GPU memory for a model, as a fixture and a marker.

    def test_fits(gpu_memory_budget):
        gpu_memory_budget("16GiB").check("train.py", batch=32, mode="train", device="rtx4090")

    @pytest.mark.gpu_memory_budget("16GiB", device="rtx4090")
    def test_also_fits(gpu_memory_budget):
        gpu_memory_budget.check(model, inputs, mode="train")

1. The check is whether the job runs in that much device memory, as `nvidia-smi` counts it (`analyze
   --budget`).
2. Over the budget the test fails with the expected and the needed memory, and the largest holder at the
   peak: "expected at most 16.0 GiB, needs 17.3 GiB: saved for backward in encoder 8.1 GiB, ...". With
   `baseline`, a saved estimate (`analyze --format json`), it says what grew since instead: "... saved for
   backward in encoder +1.1 GiB".
3. Keywords of the marker are options of every analysis of the test; those of a call win.

Nothing is imported before a test asks for a budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from analyzer.results.estimate import Estimate

_NAME = "gpu_memory_budget"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Budget:
    """limit: bytes, a size ("16GiB") or None (none yet). options: for every analysis."""

    limit: str | int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, limit: str | int, **options: Any) -> Budget:
        """Return the budget with another limit, and more options."""
        return Budget(limit, {**self.options, **options})

    def check(self, target: Any, inputs: Any = None, *, baseline: Any = None, **options: Any) -> Estimate:
        """Analyse as `analyzer.analyze`; fail the test above the limit. Returns the estimate.

        Raises AnalyzerError for what is wrong with target or options.
        """
        __tracebackhide__ = True
        import analyzer

        if self.limit is None:
            raise pytest.UsageError('no budget: give gpu_memory_budget("16GiB"), here or as a marker')
        estimate = analyzer.analyze(target, inputs, **{**self.options, **options, "budget": self.limit})
        limit = estimate.budget_bytes
        assert limit is not None
        if estimate.at_least or not estimate.within(limit):
            pytest.fail(_explained(estimate, limit, baseline), pytrace=False)
        return estimate


def _explained(estimate: Estimate, limit: int, baseline: Any) -> str:
    """Return the failure message: expected, needed, largest shares; or growth over a baseline."""
    from analyzer.planning.compare import compare, shares
    from analyzer.report.words import clean, size

    head = f"expected at most {size(limit)}, needs {size(estimate.device_used)}"
    if baseline is None:
        held = [f"{clean(share.name)} {size(share.after)}" for share in shares(None, estimate)[:_SHOWN]]
        return f"{head}: {', '.join(held)} at the peak"
    grown = [share for share in compare(baseline, estimate).shares if share.grown > 0]
    more = [f"{clean(share.name)} +{size(share.grown)}" for share in grown[:_SHOWN]]
    return f"{head}: {', '.join(more) or 'nothing grew since the baseline'}"


@pytest.fixture(name=_NAME)
def gpu_memory_budget(request: pytest.FixtureRequest) -> Budget:
    """The test's budget: that of its marker, or one to be given a limit."""
    marker = request.node.get_closest_marker(_NAME)
    if marker is None:
        return Budget()
    return Budget(marker.args[0] if marker.args else None, dict(marker.kwargs))


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{_NAME}(limit, **options): the GPU memory a model may need, for the fixture of the same name",
    )
