"""Which functions of CUDA's libraries PyTorch's builds import, and which of them have no answer: `native/refused.inc`.

    python -m benchmarks emulation interface VENV [VENV ...]

VENV: environments with a CUDA build of torch each. What none of the sources answers is written down by name, with its library's code for "not
supported": a program that calls it is told so (`native/errors.c`). Functions that need no device (versions, texts of errors,
compiling with NVRTC, CUPTI, cuFile) stay the library's own.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import click

from benchmarks import ROOT

NATIVE = ROOT / "extensions/analyzer_emulation/native"
# Names as they begin -> "not supported" in that library: cuda.h, cublas_api.h, cusolver_common.h, cusparse.h, cusparseLt.h, cufft.h,
# nccl.h (invalid usage), cudnn_graph.h.
CODES = {
    "cudnn": 3000,
    "cusparse": 10,
    "cusolver": 9,
    "cublas": 15,
    "cufft": 16,
    "nccl": 5,
    "nvml": 3,
    "cuda": 801,
    "__cuda": 801,
    "cu": 801,
}
# Of the driver, PyTorch looks these up by name (c10/cuda/driver_api.h), and most programs never call them.
LOOKED_UP = {
    "cuCtxFromGreenCtx", "cuDeviceGetDevResource", "cuGreenCtxCreate", "cuGreenCtxDestroy", "cuGreenCtxStreamCreate",
    "cuKernelGetAttribute", "cuMemExportToShareableHandle", "cuMemGetAllocationPropertiesFromHandle",
    "cuMemImportFromShareableHandle", "cuMemRetainAllocationHandle", "cuMulticastAddDevice", "cuMulticastBindMem",
    "cuMulticastCreate", "cuMulticastUnbind", "cuStreamGetCtx", "cuStreamWriteValue32", "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetHandleByUUID",
}  # fmt: skip
OWN = re.compile(
    r"cuFile|cupti|nvrtc|cuda?ungqr|cu(ngqr|nmqr)_|\w+Get(Version|ErrorString|LastErrorString|Property|CudartVersion)$"
)


def imported(venv: Path) -> set[str]:
    """Names of CUDA's libraries that torch's import."""
    found = set[str]()
    for library in venv.glob("lib/python3.*/site-packages/torch/lib/lib*.so"):
        listed = subprocess.run(
            ["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True
        )
        names = (line.split()[-1].partition("@")[0] for line in listed.stdout.splitlines() if line.strip())
        found |= {name for name in names if re.match(r"(__cuda|cu[A-Z]|cu[a-z]+[A-Z]|nccl[A-Z])\w+$", name)}
    return found


def answered() -> set[str]:
    """Names the sources answer, as the compiler sees them, without those they refuse."""
    files = [str(path) for path in sorted(NATIVE.glob("*.c"))]
    told = ["cc", "-E", "-P", "-DREFUSED(name, code)=", *files]
    text = subprocess.run(told, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r'visibility\("default"\)\)\)[\w\s*]*?\b(\w+)\s*\(', text))


@click.command("interface")
@click.argument("venvs", nargs=-1, required=True, type=Path)
def main(venvs: tuple[Path, ...]) -> None:
    """Write down what these environments' torch imports and no source answers."""
    names = LOOKED_UP.union(*map(imported, venvs)) - answered()
    lines = [
        f"REFUSED({name}, {next(code for start, code in CODES.items() if name.startswith(start))})"
        for name in sorted(names)
        if not OWN.match(name)
    ]
    (NATIVE / "refused.inc").write_text(
        "/* Written by benchmarks/emulation/interface.py. */\n" + "\n".join(lines) + "\n"
    )
    print(f"refused.inc: {len(lines)}")
