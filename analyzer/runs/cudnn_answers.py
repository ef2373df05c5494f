"""The process that loads cuDNN and answers for a GPU that is not there: `python -m analyzer.runs.cudnn_answers LIBRARY CUBLASLT`.

A GPU's description comes as the first line of its input; what follows is a line of convolutions each (JSON), and a line of lists of plans
goes back. The library's 200 MB, and a crash of a release that knows no such GPU, stay in this process (`libraries/cudnn/asker.py` is the
other end).
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from dataclasses import astuple

from analyzer.libraries.cudnn.asker import convolution_of
from analyzer.runs.cudnn import Cudnn, CudnnError


def main(library: str, cublaslt: str) -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the library prints
    if cublaslt:
        ctypes.CDLL(cublaslt, mode=ctypes.RTLD_GLOBAL)
    cudnn = Cudnn(library, device_json=sys.stdin.readline().strip())
    print(json.dumps(cudnn.version), file=answers, flush=True)
    for line in sys.stdin:
        found = []
        for fields in json.loads(line):
            try:
                found.append([astuple(plan) for plan in cudnn.plans(convolution_of(fields))])
            except CudnnError:
                found.append([])
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
