"""Which kernels ONNX Runtime registers: `analyzer/runtimes/onnxruntime/kernels/registered.json`, written anew.

    python -m benchmarks onnx_kernels table path/to/onnxruntime/docs/OperatorKernels.md

1. The CPU provider's come from the installed onnxruntime itself (`get_all_opkernel_def`).
2. The CUDA provider's come from the list its own build writes, `docs/OperatorKernels.md` of the sources; an operator that
   is not on it, but ran there in our recordings (`tests/data/ort/kernels.json.gz`, "sharing"), is added for any type.
3. A kernel is [first operator-set version, last (null: that version alone), {type parameter: element types}]. Types
   of sequences, optionals and maps are left out; a parameter that takes nothing else is not listed.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from analyzer.onnx.types import DTYPES
from analyzer.runtimes.onnxruntime.kernels.registered import TABLE
from benchmarks import ROOT
from benchmarks.harness import files

_ROW = re.compile(r"^\|(?P<op>[^|]*)\|(?P<formal>[^|]*)\|(?P<versions>[^|]*)\|(?P<types>[^|]*)\|$")
_ENDLESS = 2**31 - 1
_ONNX_NAMES = {"float": "float32", "double": "float64"} | {
    name.replace("_", "", 1): name for name in DTYPES.values() if name.startswith("float") and "_" in name
}
Kernels = dict[str, dict[str, list[Any]]]


def element_types(texts: Iterable[str]) -> list[str]:
    """The tensors among some types, by our names: tensor(float) is float32; sequences and the like are left out."""
    found = [text.removeprefix("tensor(").removesuffix(")") for text in texts if text.startswith("tensor(")]
    return sorted(_ONNX_NAMES.get(name, name) for name in found)


def cpu() -> tuple[str, Kernels]:
    """The installed onnxruntime's version and its CPU kernels."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for kernel in state.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider":
            first, last = kernel.version_range
            types = {name: element_types(some) for name, some in kernel.type_constraints.items()}
            found[kernel.domain][kernel.op_name].append([first, None if last >= _ENDLESS else last, types])
    return onnxruntime.__version__, found


def cuda(page: str) -> Kernels:
    """The CUDA kernels in the list that the sources carry."""
    section = page.split("## Operators implemented by CUDAExecutionProvider")[1].split("\n## ", maxsplit=1)[0]
    found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    domain = op = ""
    for line in section.splitlines():
        if "**Operator Domain:**" in line:
            name = (
                line.split("*ai.onnx*")[0]
                if "*ai.onnx*" in line
                else re.sub(r".*\*([\w.]+)\*\|.*", r"\1", line)
            )
            domain = "" if "*ai.onnx*" in line else name
            continue
        row = _ROW.match(line)
        if row is None or row["op"] in ("Op Name", "---------"):
            continue
        op = row["op"] or op
        numbers = [int(number) for number in re.findall(r"\d+", row["versions"])]
        if not numbers:
            continue
        last = None if row["versions"].endswith("+") else numbers[-1]
        types = {
            name: element_types(re.findall(r"\w+\((?:[^()]|\([^()]*\))*\)", some))
            for name, some in re.findall(r"\*\*(\w+)\*\* = ([^*]*)", row["types"])
        }
        found[domain][op].append([numbers[0], last, types])
    return found


# What 1.30 has beyond the list of 1.24, and what it does not take a newer operator's version for, as recorded on an H200
# (`tests/data/h200/onnx_cuda.json.gz`): kernels that are new, and operators whose kernels end before version 22.
_FLOATS = ["bfloat16", "float16", "float32"]
_NEW: dict[str, list[Any]] = {
    "Attention": [[23, None, {"T1": _FLOATS}]],
    "DeformConv": [[19, None, {"T": ["float16", "float32", "float64"]}]],
    "NonMaxSuppression": [[10, 10, {}], [11, None, {}]],
    "ReduceMean": [[18, None, {"T": ["bfloat16"]}]],
    "TensorScatter": [[24, None, {}]],
}
_ENDED = (
    "Dropout", "Elu", "EyeLike", "GRU", "InstanceNormalization", "MaxPool", "Selu", "ThresholdedRelu",
)  # fmt: skip
_END = 21


def recorded_changes(kernels: Kernels) -> None:
    """The list of 1.24 as 1.30 was seen to differ."""
    for op, added in _NEW.items():
        kernels[""].setdefault(op, []).extend(added)
    for op in _ENDED:
        kernels[""][op] = [
            [first, _END if last is None and first <= _END else last, types]
            for first, last, types in kernels[""][op]
        ]


def seen_on_cuda() -> set[str]:
    """ONNX's operators that a recorded session ran on the GPU, without copies around them."""
    recorded = files.read(ROOT / "tests/data/ort/kernels.json.gz")["sharing"]["cuda"]
    return {
        op
        for op, domain, _, rows in recorded
        if not domain and any(row[0] == op for row in rows) and not any("Memcpy" in row[0] for row in rows)
    }


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
@click.argument("listed_kernels", metavar="OperatorKernels.md", type=Path)
def main(listed_kernels: Path) -> None:
    """Write the table of kernels: the CPU's of the installed ONNX Runtime, CUDA's of this list."""
    version, own = cpu()
    listed = cuda(listed_kernels.read_text())
    for op in seen_on_cuda() - listed[""].keys():
        listed[""][op] = [[1, None, {}]]
    recorded_changes(listed)
    TABLE.write_text(written(version, {"cpu": merged(own), "cuda": merged(listed)}))
