"""Operators' own temporary memory, one topic a file; importing this package registers every rule."""

from analyzer.scratch import (
    attention,
    blas,
    convolution,
    foreach,
    indexing,
    loss,
    normalization,
    pooling,
    recurrent,
    reduction,
    reduction_operators,
    softmax,
    sorting,
    transformer,
)
from analyzer.scratch.registry import Story, is_known, story_of
from analyzer.scratch.script import Basis, Give, Output, Script, Step, Take, rule

__all__ = [
    "Basis",
    "Give",
    "Output",
    "Script",
    "Step",
    "Story",
    "Take",
    "attention",
    "blas",
    "convolution",
    "foreach",
    "indexing",
    "is_known",
    "loss",
    "normalization",
    "pooling",
    "recurrent",
    "reduction",
    "reduction_operators",
    "rule",
    "softmax",
    "sorting",
    "story_of",
    "transformer",
]
