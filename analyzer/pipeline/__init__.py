"""Target → Graph → events → allocator → `Analysis`, whose `Estimate` people read: one entry, one file
a front end."""

from analyzer.pipeline.workload import analysis

__all__ = ["analysis"]
