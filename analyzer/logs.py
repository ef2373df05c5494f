"""Messages of a program's libraries that only following it here brings about, and no run on a GPU prints.

1. A library that is told of a GPU loads what it has for GPUs in C, which looks for CUDA's own libraries: a
   machine without them cannot load it, and the library logs that error with its traceback
   (`bitsandbytes.cextension`). Nothing of it is called.
2. A target's file is imported without a GPU, so that bitsandbytes loads its library for CPUs, and asks for
   kernels of that one (`bitsandbytes.backends.cpu.ops`, where the library has `has_avx512bf16_cpu`; that for
   CUDA has none).

Such records are dropped, every other one is handled as ever.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator

# The linker's words for a library that another one needs (glibc, `elf/dl-load.c`), of those CUDA installs.
_ABSENT = re.compile(
    r"lib(?:cuda|cudart|cublas\w*|cudnn\w*|cufft\w*|curand|cusolver\w*|cusparse\w*|nccl|nvrtc\S*|nvJitLink)"
    r"\.so[\w.]*: cannot open shared object file"
)
_OF_CPUS = "bitsandbytes.backends.cpu"


def _brought_about(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return record.name.startswith(_OF_CPUS) or (
        isinstance(error, OSError) and _ABSENT.search(str(error)) is not None
    )


@contextlib.contextmanager
def without_ours() -> Iterator[None]:
    """While open, drop what following a program makes its libraries log."""
    handle = logging.Logger.handle

    def other_records(self: logging.Logger, record: logging.LogRecord) -> None:
        if not _brought_about(record):
            handle(self, record)

    logging.Logger.handle = other_records  # type: ignore[method-assign]
    try:
        yield
    finally:
        logging.Logger.handle = handle  # type: ignore[method-assign]
