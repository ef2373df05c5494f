"""cuDNN's CTC loss against what an H200 said."""

from __future__ import annotations

import gzip
import json

from analyzer.libraries.cudnn.ctc import workspace_bytes
from tests.paths import DATA


def test_every_size_that_was_asked_for() -> None:
    rows = json.loads(gzip.decompress((DATA / "h200" / "ctc.json.gz").read_bytes()))["rows"]
    assert len(rows) == 1620
    for steps, batch, labels, longest, _algorithm, older, newer in rows:
        assert workspace_bytes(steps, batch, labels, longest, newer=False) == older
        assert workspace_bytes(steps, batch, labels, longest, newer=True) == newer
