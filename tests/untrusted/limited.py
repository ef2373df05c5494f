"""The command line in a process of its own, with limits: `python -m tests.untrusted.limited CASES.json`.

The package is imported once; every case is a fork of this process, with ten seconds of processor time. Of each
case one line of JSON goes to stdout: exit code (negative: the signal), seconds of processor time, most bytes
resident, stdout and stderr.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

SECONDS, MOST_BYTES = 10, 1 << 30


def followed(words: list[str]) -> dict[str, Any]:
    """Run `analyze WORDS` in a fork; return what came of it."""
    import analyzer.pipeline.onnx  # noqa: F401 (so that each case need not)
    from analyzer.cli import main

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            code = 70
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                code = main(words)
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        _, status, used = os.wait4(child, 0)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "replace"))
        return {
            "words": words,
            "code": os.waitstatus_to_exitcode(status),
            "seconds": used.ru_utime + used.ru_stime,
            "bytes": used.ru_maxrss << 10,
            "out": texts[0],
            "err": texts[1],
        }


if __name__ == "__main__":
    gc.disable()  # as the command line does
    for words in json.loads(Path(sys.argv[1]).read_text()):
        print(json.dumps(followed(words)), flush=True)
