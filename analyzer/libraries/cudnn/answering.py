"""The process that loads cuDNN and answers for a GPU that is not there: `python -m
analyzer.libraries.cudnn.answering LIBRARY CUBLASLT`.

A GPU's description comes as the first line of its input; what follows is a line of questions each (JSON), and
a line of answers goes back. The library's 200 MB, and a crash of a release that knows no such GPU, stay in
this process (`asker.py` is the other end).
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator

from analyzer.libraries.cudnn.backend import Cudnn, CudnnError
from analyzer.libraries.cudnn.convolution import PYTORCH, Plan, Question
from analyzer.libraries.cudnn.on_cublas import is_on_cublas


def wanted(question: Question, plans: Iterator[Plan], ranked: bool = True) -> Iterator[Plan]:
    """Yield all plans, or only those that are tried while there is room. ranked: the plans include those on
    cuBLAS; else where these stand is told from the others, of which more are needed.

    PyTorch takes the first, in deterministic mode the first that is, and without TF32 the first of float32
    that is not on tensor cores. The first that needs no GPU tells how likely one on cuBLAS adds up parts.
    """
    deterministic, strict, listed = False, question.call.dtype != "float32", False
    for plan in plans:
        yield plan
        deterministic |= plan.deterministic
        strict |= not plan.tensor_core
        listed |= not is_on_cublas(question.call.operation, plan)
        enough = question.searcher != PYTORCH or (question.first and ranked) or (deterministic and strict)
        if listed and enough and not question.whole:
            return


def main(library: str, cublaslt: str) -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the library prints
    if cublaslt:
        ctypes.CDLL(cublaslt, mode=ctypes.RTLD_GLOBAL)
    cudnn = Cudnn(library, device_json=sys.stdin.readline().strip())
    ranked = cudnn.ranks_unusable()
    print(json.dumps({"ranks_unusable": ranked}), file=answers, flush=True)
    for line in sys.stdin:
        answered = []
        for fields in json.loads(line):
            question = Question.read(fields)
            try:
                answered.append(list(wanted(question, cudnn.plans(question), ranked)))
            except CudnnError:
                answered.append([])
        print(json.dumps(answered), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
