"""Which operators have a kernel on a GPU, by the dispatcher of a CUDA build of torch: `tests/data/releases/kernels`.

    python -m benchmarks releases kernels PYTHON

PYTHON: of an environment with a CUDA build; no GPU is asked. One file a release: each operator ("aten::mm.dtype") and the dispatch keys it has
a kernel for, of those a GPU's tensors bring along (`KEYS`), and of those that say who makes it of others.
"""

from __future__ import annotations

import json
import subprocess

import click

from benchmarks.harness import files
from benchmarks.releases.schemas import FOLDER

KEYS = ("CUDA", "SparseCUDA", "SparseCsrCUDA", "NestedTensorCUDA", "QuantizedCUDA")
COMPOSITE = (
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)
_ASK = f"""
import json, torch
has, keys = torch._C._dispatch_has_kernel_for_dispatch_key, {(*KEYS, *COMPOSITE, "Meta")!r}
found = {{name: [key for key in keys if has(name, key)] for name in torch._C._dispatch_get_all_op_names()}}
print("@" + json.dumps([torch.__version__, found]))
"""


def recorded() -> dict[str, dict[str, list[str]]]:
    """Release -> operator -> its keys, of those that have a GPU's."""
    paths = sorted((FOLDER / "kernels").glob("*.json.gz"))
    return {path.name.removesuffix(".json.gz"): files.read(path) for path in paths}


@click.command("kernels")
@click.argument("python")
def main(python: str) -> None:
    """Write the file of this Python's release."""
    printed = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=True).stdout
    version, found = json.loads(next(line[1:] for line in printed.splitlines() if line.startswith("@")))
    kept = {name: keys for name, keys in sorted(found.items()) if not set(keys).isdisjoint(KEYS)}
    path = FOLDER / "kernels" / f"{'.'.join(version.split('.')[:2])}.json.gz"
    path.parent.mkdir(exist_ok=True)
    files.write(path, kept)
    click.echo(f"{path}: {len(kept)} of {len(found)} operators")
