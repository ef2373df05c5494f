"""The cuDNN tests ask: the real ones there are, and one that answers what it is told to."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from analyzer.libraries.cudnn import choices
from analyzer.libraries.cudnn.convolution import Convolution, Plan, Question
from analyzer.libraries.cudnn.finding import within_reach

# Beside this Python, or of the environment that this variable names.
LIBRARIES = within_reach("", os.environ.get("ANALYZER_PYTHON", ""))
needs_cudnn = pytest.mark.skipif(
    not LIBRARIES, reason="no cuDNN here: pip install 'gpu-memory-analyzer[cudnn]'"
)


class FakeAsker:
    """Stands in for `Asker`. asked: every question that came. others: what any other convolution has."""

    release = (9, 19)
    lists_compiled = True
    has_library = False
    ranks_unusable = False

    def __init__(
        self, plans: Mapping[Convolution, tuple[Plan, ...] | None], others: tuple[Plan, ...] | None = None
    ) -> None:
        self.plans, self.others = plans, others
        self.asked: list[Question] = []

    def ask(self, questions: Sequence[Question]) -> list[tuple[Plan, ...] | None]:
        self.asked += questions
        return [self.plans.get(question.call, self.others) for question in questions]


def with_asker(monkeypatch: pytest.MonkeyPatch, asker: FakeAsker) -> None:
    """What `choices_of` gives asks this one."""

    def made(table: str, _description: str, _library: Any, *figures: Any) -> choices.Choices:
        return choices.Choices(choices.record(table) if table else None, asker, *figures)  # type: ignore[arg-type]

    monkeypatch.setattr(choices, "_choices", made)
