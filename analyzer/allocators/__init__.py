"""Allocator simulators, one a file, behind one small protocol (`base.Allocator`)."""

from analyzer.allocators.base import Allocator, OutOfMemoryError

__all__ = ["Allocator", "OutOfMemoryError"]
