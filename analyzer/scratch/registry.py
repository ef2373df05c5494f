"""From an operator to its story (`script.py`): the rule by full name, then by name without overload, else none."""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator
from analyzer.scratch.script import RULES, Script, Step


@dataclass(frozen=True, slots=True)
class Story:
    """An operator's allocations, the library families it loads, and whether a rule told it."""

    steps: tuple[Step, ...]
    libraries: frozenset[str]
    known: bool


def story_of(operator: Operator, device: DeviceProfile) -> Story:
    """The allocations of one call on one device, in order."""
    function = RULES.get(operator.name) or RULES.get(operator.name.partition(".")[0])
    script = Script(len(operator.outputs))
    if function is not None:
        function(operator, device, script)
    return Story(script.finish(), frozenset(script.libraries), function is not None)
