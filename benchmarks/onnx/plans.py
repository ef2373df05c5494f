"""Ask cuDNN's frontend on this machine's GPU for the plan that ONNX Runtime's CUDA provider would take for a convolution, and what it takes.

    python -m benchmarks onnx_plans list CALLS.npz               # what to ask: needs this project, no GPU
    python -m benchmarks onnx_plans measure CALLS.npz ANSWERS.npz     # needs nvidia-cudnn-frontend and cuDNN, nothing else
    python -m benchmarks onnx_plans merge ANSWERS.npz             # into analyzer/devices/profiles/h200.onnxruntime.npz

1. A call is a geometry as the table writes it (its `source`), batch, search mode, type and layout. First come some the table has
   already, as a control; then the convolutions of the recorded graphs in half precision and float32; then the table's geometries in
   half precision, in an order drawn once.
2. As `core/providers/cuda/nn/conv.cc` (`CreateCudnnFeExecutionPlan`) does it: one graph with the convolution, sums in float32, heuristics
   of the search mode, the first plan that is supported; nothing is executed and no data allocated.
3. `merge` refuses answers whose control differs from the table.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from analyzer.libraries.cudnn.table import strides_of
from benchmarks.harness.processes import in_parts

BATCHES = (1, 2, 4, 8, 16, 32, 64)
_CONTROL, _DRAWN = 1200, 60_000
_NONE = -1  # no plan


@click.command("list")
@click.argument("output", type=Path)
def calls(output: Path) -> None:
    """Write the list."""
    import onnx

    from analyzer.devices import load
    from analyzer.libraries.cudnn.frontend_plans import _load
    from analyzer.runtimes.onnxruntime import parse, prepare
    from analyzer.runtimes.onnxruntime.kernels.scratch.convolution import convolution_of
    from benchmarks.onnx.backend import cases
    from benchmarks.onnx.variants import ARCHITECTURES, graph

    table = _load(load("h200").data["onnxruntime"])
    random = np.random.default_rng(0)
    rows: list[tuple[int, ...]] = []
    for at in random.choice(len(table.row), _CONTROL, replace=False):
        mode = int(table.mode[at])
        control = (int(table.batch[at]), mode // 4, mode % 4 // 2, mode % 2, int(table.workspace[at]))
        rows.append((*(int(v) for v in table.geometry[table.row[at]]), *control))

    models: list[tuple[onnx.ModelProto, int | None]] = [(graph(name), 2) for name in ARCHITECTURES]
    models += [(case.model, None) for case in cases() if case.name.startswith("light_")]
    found = {}
    for model, batch in models:
        prepared = prepare(model, batch, parse({})).graph
        for node in prepared.walk():
            if node.op in ("Conv", "ConvTranspose"):
                convolution = convolution_of(node, prepared)
                if convolution is not None:
                    found[convolution.padded().row] = None
    rows += [(*row, batch, 0, dtype, 0, _NONE) for dtype in (1, 0) for batch in BATCHES for row in found]
    drawn = random.permutation(len(table.geometry) * len(BATCHES))[:_DRAWN]
    for number in drawn:
        geometry = table.geometry[number // len(BATCHES)]
        rows.append((*(int(v) for v in geometry), BATCHES[number % len(BATCHES)], 0, 1, 0, _NONE))
    np.savez_compressed(output, calls=np.array(rows, np.int64), control=_CONTROL)
    print(f"{len(rows)} calls, {len(found)} geometries of recorded graphs")


def workspace(cudnn: Any, handle: Any, call: list[int]) -> int:
    """Bytes of the plan for one call, or -1."""
    transposed, rank, groups = call[:3]
    x, w, stride, pad, dilation, y = (
        call[a:b] for a, b in ((3, 7), (7, 12), (12, 15), (15, 18), (18, 21), (21, 25))
    )
    batch, search, dtype, nhwc = call[25:29]
    del groups  # cuDNN reads it from the channels
    kind = cudnn.data_type.HALF if dtype else cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        handle=handle, io_data_type=kind, intermediate_data_type=kind, compute_data_type=cudnn.data_type.FLOAT
    )
    image, filters, result = [batch, *x[: rank + 1]], w[: rank + 2], [batch, *y[: rank + 1]]
    first = graph.tensor(name="x", dim=image, stride=strides_of(image, bool(nhwc)), data_type=kind)
    second = graph.tensor(name="w", dim=filters, stride=strides_of(filters, bool(nhwc)), data_type=kind)
    how = {"padding": pad[:rank], "stride": stride[:rank], "dilation": dilation[:rank]}
    if transposed:
        made = graph.conv_dgrad(loss=first, filter=second, compute_data_type=cudnn.data_type.FLOAT, **how)
    else:
        made = graph.conv_fprop(image=first, weight=second, compute_data_type=cudnn.data_type.FLOAT, **how)
    made.set_output(True).set_data_type(kind).set_dim(result).set_stride(strides_of(result, bool(nhwc)))
    graph.validate()
    graph.build_operation_graph()
    modes = (cudnn.heur_mode.B, cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK)
    graph.create_execution_plans([modes[search]])
    graph.check_support()
    graph.build_plans()
    return int(graph.get_workspace_size())


def _part(part: int, parts: int, path: Path, seconds: float) -> list[tuple[int, int]]:
    import torch  # brings cuDNN, and makes the context

    torch.zeros(1, device="cuda")
    import cudnn

    handle = cudnn.create_handle()
    listed = np.load(path)["calls"].tolist()
    rows, end, said = [], time.monotonic() + seconds, 0
    for number in range(part, len(listed), parts):
        if time.monotonic() > end:
            break
        try:
            rows.append((number, workspace(cudnn, handle, listed[number])))
        except Exception as error:  # no plan: kept as such
            rows.append((number, _NONE))
            if said < 3 and part == 0:
                print(listed[number], type(error).__name__, str(error)[:300], flush=True)
                said += 1
    return rows


@click.command("measure")
@click.argument("path", type=Path)
@click.argument("output", type=Path)
@click.option("--processes", default=14)
@click.option("--seconds", default=120.0)
def ask(path: Path, output: Path, processes: int, seconds: float) -> None:
    """Ask, each process every n-th call, until the time is over."""
    rows = [row for part in in_parts(_part, processes, path, seconds) for row in part]
    import cudnn
    import torch  # noqa: F401  brings cuDNN

    content = np.load(path)
    listed, control = content["calls"], int(content["control"])
    answers = np.array(sorted(rows), np.int64).reshape(-1, 2)
    known = {int(number): int(nbytes) for number, nbytes in answers}
    agree = [known[n] == listed[n][-1] for n in range(control) if n in known]
    print(f"{len(answers)} of {len(listed)} answered, {int((answers[:, 1] < 0).sum())} without a plan; "
          f"control: {sum(agree)} of {len(agree)} as the table has them")  # fmt: skip
    versions = f"cuDNN {cudnn.backend_version()}, cudnn-frontend {cudnn.__version__}"
    np.savez_compressed(output, calls=listed, control=control, answers=answers, versions=versions)


@click.command()
@click.argument("path", type=Path)
def merge(path: Path) -> None:
    """Add what was answered to the H200's table."""
    from analyzer.devices import load

    table = Path(str(load("h200").data["onnxruntime"]))
    content, found = dict(np.load(table)), np.load(path)
    listed, control = found["calls"], int(found["control"])
    answers = {int(number): int(nbytes) for number, nbytes in found["answers"]}
    differ = [n for n in range(control) if n in answers and answers[n] != listed[n][-1]]
    if differ:
        raise SystemExit(
            f"{len(differ)} of the control differ from the table: another cuDNN, or asked otherwise"
        )
    places = {tuple(row): place for place, row in enumerate(content["geometry"].tolist())}
    have = {tuple(row) for row in content["measurement"].tolist()}
    measurement, workspaces = [], []
    geometries = content["geometry"].tolist()
    for number, nbytes in sorted(answers.items()):
        row = listed[number].tolist()
        if number < control or nbytes < 0:
            continue
        geometry = tuple(row[:25])
        if geometry not in places:
            places[geometry] = len(geometries)
            geometries.append(list(geometry))
        key = (places[geometry], *row[25:29])
        if key not in have and max(key) < 2**16:
            have.add(key)
            measurement.append(key)
            workspaces.append(nbytes)
    content["geometry"] = np.array(geometries, np.uint16)
    content["measurement"] = np.vstack(
        [content["measurement"], np.array(measurement, np.uint16).reshape(-1, 5)]
    )
    content["workspace"] = np.concatenate([content["workspace"], np.array(workspaces, np.int64)])
    # How many, and by what, stands in the table itself; a second merge adds its own sentence.
    told = f"{len(workspaces):,} rows more by benchmarks/onnx/plans.py ({found['versions']})."
    content["source"] = np.array(f"{content['source']} {told}")
    np.savez(table, **content)
    print(f"{len(workspaces)} added, {len(content['workspace'])} in all")
