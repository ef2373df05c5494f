"""Target → Graph → events → allocator → `Analysis`, whose `Estimate` people read: one entry, one file a front end."""

from analyzer.pipeline.analyze import analysis, analyze
from analyzer.pipeline.program import run

__all__ = ["analysis", "analyze", "run"]
