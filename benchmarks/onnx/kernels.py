"""Which kernels ONNX Runtime registers: `analyzer/runtimes/onnxruntime/kernels/registered.json`, written anew.

    python -m benchmarks onnx_kernels table FOLDER --python CUDA_VENV/bin/python

1. The CPU provider's come from the installed onnxruntime itself (`get_all_opkernel_def`).
2. The CUDA provider's come from onnxruntime-gpu of the same release (`get_registered_ep_kernel_defs`), whose provider is
   loaded on the emulated CUDA runtime: no GPU is needed.
3. A kernel is [first operator-set version, last (null: that version alone), {type parameter: element types}]. Types
   of sequences, optionals and maps are left out; a parameter that takes nothing else is not listed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from analyzer.devices import resolve
from analyzer.onnx.types import DTYPES
from analyzer.runtimes.onnxruntime.kernels.registered import TABLE
from analyzer_emulation import library
from analyzer_emulation.cudnn import CudnnAnswers
from analyzer_emulation.device import described
from analyzer_emulation.launch import interpreter
from analyzer_emulation.questions import QuestionServer
from benchmarks import ROOT

_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_ENDLESS = 2**31 - 1
_ONNX_NAMES = {"float": "float32", "double": "float64"} | {
    name.replace("_", "", 1): name for name in DTYPES.values() if name.startswith("float") and "_" in name
}
Kernels = dict[str, dict[str, list[Any]]]


def element_types(texts: Iterable[str]) -> list[str]:
    """The tensors among some types, by our names: tensor(float) is float32; sequences and the like are left out."""
    found = [text.removeprefix("tensor(").removesuffix(")") for text in texts if text.startswith("tensor(")]
    return sorted(_ONNX_NAMES.get(name, name) for name in found)


def kernels_of(listed: Iterable[Any]) -> Kernels:
    """Kernel definitions, as onnxruntime's bindings give them, by domain and operator."""
    found: Kernels = defaultdict(lambda: defaultdict(list))
    for first, last, domain, op, types in listed:
        named = {name: element_types(some) for name, some in types.items()}
        found[domain][op].append([first, None if last >= _ENDLESS else last, named])
    return found


def ask(provider: str) -> tuple[str, list[Any]]:
    """The release of the onnxruntime that this Python imports, and the kernels of one of its providers."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    if provider == "cuda":
        library = Path(onnxruntime.__file__).parent / "capi" / "libonnxruntime_providers_cuda.so"
        onnxruntime.register_execution_provider_library(_CUDA, str(library))
        kernels = state.get_registered_ep_kernel_defs(_CUDA)
    else:
        kernels = [kernel for kernel in state.get_all_opkernel_def() if kernel.provider == _CPU]
    rows = [
        (*kernel.version_range, kernel.domain, kernel.op_name, kernel.type_constraints) for kernel in kernels
    ]
    return onnxruntime.__version__, rows


def ask_cuda(packages: Path, python: Path) -> tuple[str, list[Any]]:
    """Ask the onnxruntime-gpu in a folder. Its CUDA libraries are those of `python`'s CUDA build of torch; the CUDA
    runtime is the emulated one; and the PCI device that onnxruntime looks for is a file, mounted for this process."""
    profile, _ = resolve("h200")
    native = library.path()
    with tempfile.TemporaryDirectory() as folder:
        links, pci = Path(folder, "links"), Path(folder, "pci", "0000:01:00.0")
        for made in (links, pci):
            made.mkdir(parents=True)
        for name in library.OPENED_AS:
            (links / name).symlink_to(native)
        for name, text in {"class": "0x030200", "vendor": "0x10de", "device": "0x2335"}.items():
            (pci / name).write_text(f"{text}\n")
        nvidia = next((interpreter(python).parent.parent / "lib").glob("python3*/site-packages/nvidia"))
        found = [str(links), *(str(nvidia / part / "lib") for part in ("cu13", "cudnn", "nccl"))]
        with QuestionServer(CudnnAnswers(profile).topics) as questions:
            environment = {
                **os.environ,
                **questions.environment,
                "LD_PRELOAD": str(native),
                "LD_LIBRARY_PATH": ":".join(found),
                "ANALYZER_EMULATED_DEVICE": described(profile, (13, 0), 1),
                "ANALYZER_EMULATED_LIBRARIES": str(links),
                "PYTHONPATH": f"{packages}{os.pathsep}{ROOT}",
            }
            asked = [
                sys.executable,
                "-c",
                "import json; from benchmarks.onnx.kernels import ask; print(json.dumps(ask('cuda')))",
            ]
            mounted = f'mount --bind "{pci.parent}" /sys/bus/pci/devices && exec "$@"'
            done = subprocess.run(
                ["unshare", "-rm", "sh", "-c", mounted, "sh", *asked],
                env=environment, stdout=subprocess.PIPE, check=True,
            )  # fmt: skip
    version, rows = json.loads(done.stdout.splitlines()[-1])
    return version, rows


def merged(kernels: Kernels) -> Kernels:
    """Kernels of one version and one type parameter are one, of all their types."""
    result: Kernels = {}
    for domain in sorted(kernels):
        result[domain] = {}
        for op in sorted(kernels[domain]):
            known: dict[Any, Any] = {}
            for first, last, listed in kernels[domain][op]:
                types = {name: some for name, some in listed.items() if some}
                if len(types) == 1:
                    ((name, some),) = types.items()
                    key = (first, last or 0, name)
                    known.setdefault(key, [first, last, {name: []}])[2][name].extend(some)
                else:
                    known[(first, last or 0, json.dumps(types, sort_keys=True))] = [first, last, types]
            result[domain][op] = [
                [first, last, {name: sorted(set(some)) for name, some in sorted(types.items())}]
                for _, (first, last, types) in sorted(known.items())
            ]
    return result


def written(version: str, tables: dict[str, Kernels]) -> str:
    """The file: an operator a line."""
    lines = [f'{{"onnxruntime": {json.dumps(version)}']
    for provider, kernels in tables.items():
        for domain, operators in kernels.items():
            body = ",\n".join(f"  {json.dumps(op)}: {json.dumps(some)}" for op, some in operators.items())
            lines.append(f"{json.dumps(f'{provider}:{domain}')}: {{\n{body}\n}}")
    return ",\n".join(lines) + "\n}\n"


@click.command("table")
@click.argument("packages", metavar="FOLDER", type=click.Path(exists=True, path_type=Path))
@click.option("--python", required=True, type=Path, help="A Python with a CUDA build of torch.")
def main(packages: Path, python: Path) -> None:
    """Write the table of kernels. FOLDER: where a wheel of onnxruntime-gpu is unpacked (pip install --no-deps --target
    FOLDER onnxruntime-gpu), of the release installed here."""
    version, own = ask("cpu")
    gpu_version, cuda = ask_cuda(packages.absolute(), python)
    if gpu_version != version:
        raise click.ClickException(f"installed is {version}, in {packages} is {gpu_version}")
    tables = {"cpu": merged(kernels_of(own)), "cuda": merged(kernels_of(cuda))}
    TABLE.write_text(written(version, tables))
