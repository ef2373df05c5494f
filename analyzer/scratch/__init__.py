"""Operators' own temporary memory, one topic a file; importing this package registers every rule."""

from analyzer.scratch import reduction
from analyzer.scratch.registry import Story, story_of
from analyzer.scratch.script import Basis, Give, Output, Script, Step, Take, rule

__all__ = ["Basis", "Give", "Output", "Script", "Step", "Story", "Take", "reduction", "rule", "story_of"]
