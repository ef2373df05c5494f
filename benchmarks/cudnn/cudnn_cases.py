"""Which convolutions a measured set runs that nobody asked cuDNN about, written as a list of calls for `cudnn_ask.py`.

Run: `python benchmarks/cudnn/cudnn_cases.py held_out_3 ... --output CALLS.npz`. Each case is followed as `report.py` follows it;
no measured figure is needed.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import numpy as np
from cudnn_calls import GROUPS
from cudnn_programs import unknown_while

sys.path.insert(0, str(Path(__file__).parents[1] / "accuracy"))
from cases import SETS
from predict import predict
from sets import NAMES, load, unmeasured


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", choices=dict.fromkeys((*NAMES, *SETS)))
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    seen: dict[tuple[str, tuple[int, ...], int], None] = {}
    for case in (
        case for name in given.names for case in (load(name) if name in NAMES else unmeasured(name))
    ):
        found = unknown_while(partial(predict, case))
        seen |= dict.fromkeys(sorted(found))
        print(f"{case.tag}: {len(found)}", file=sys.stderr)
    families = sorted({family for _, family, _ in seen})
    rows = {family: row for row, family in enumerate(families)}
    entries = [(rows[family], GROUPS.index(group), batch) for group, family, batch in seen]
    np.savez_compressed(
        given.output, families=np.array(families, np.int32), entries=np.array(entries, np.int32)
    )
    print(f"{len(entries)} calls of {len(families)} convolutions", file=sys.stderr)


if __name__ == "__main__":
    main()
