"""Which convolutions a measured set runs that nobody asked cuDNN about, written as a list of calls for `ask.py`.

Run: `python -m benchmarks cudnn cases held_out_3 ... --output CALLS.npz`. Each case is followed as `report.py` follows it;
no measured figure is needed.
"""

from __future__ import annotations

import sys
from functools import partial

from benchmarks.accuracy.cases import SETS
from benchmarks.accuracy.predict import predict
from benchmarks.accuracy.sets import NAMES, load, unmeasured
from benchmarks.cudnn.programs import Met, command_line, met_while, write


def main() -> None:
    """The command line."""
    parser = command_line(__doc__)
    parser.add_argument("names", nargs="+", choices=dict.fromkeys((*NAMES, *SETS)))
    given = parser.parse_args()
    seen: set[Met] = set()
    for case in (
        case for name in given.names for case in (load(name) if name in NAMES else unmeasured(name))
    ):
        found = met_while(partial(predict, case))
        seen |= found
        print(f"{case.tag}: {len(found)}", file=sys.stderr)
    write(seen, (), given.output)


if __name__ == "__main__":
    main()
