"""What tests of followed programs share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def asked(tmp_path: Path) -> Any:
    """(operator, bytes) of every request of a program, from the line `# from here` on."""
    from analyzer.options import Options
    from analyzer.runtimes.events import Malloc
    from analyzer_programs.program import follow

    def run(text: str, **options: Any) -> list[tuple[str, int]]:
        script = tmp_path / "program.py"
        script.write_text(text)
        first = next((n for n, line in enumerate(text.splitlines(), 1) if "# from here" in line), 0)
        analysis, _ = follow(script, (), Options.of({"device": "h200", **options}), {}, whole=True)
        assert not analysis.estimate.incomplete
        found = []
        for event in analysis.events:
            if isinstance(event, Malloc) and event.operator >= 0 and event.nbytes:
                operator = analysis.graph.operators[event.operator]
                line = operator.source.rpartition(":")[2]
                if line.isdigit() and int(line) >= first:
                    found.append((operator.name.removesuffix(".default"), event.nbytes))
        return found

    return run
