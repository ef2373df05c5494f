"""From the measured rows to the file that comes with the package, and how well it says a row that is left out of it.

The rows were measured once, by `benchmarks/timing` of commit cf817472 (`measure`, `keep`, and `programs` for whole steps).
"""

from __future__ import annotations

import random
import zipfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from analyzer.devices import load
from analyzer.graph.model import TensorMeta, contiguous_strides
from analyzer_timing import attention, convolutions, elementwise, moves, products, table, traffic
from analyzer_timing.rates import Rates, rates_of
from analyzer_timing.work import Work, log
from benchmarks import ROOT
from benchmarks.accuracy.sets import zoo
from benchmarks.harness import files


def of_gpu(name: str) -> Path:
    """Where what was measured on a GPU is kept."""
    return ROOT / "tests" / "data" / name / "timing"


RAW = of_gpu("h100")
# Rows kept of a category whose measurements are many.
_ALL_BUT_MANY = 480
_MOST = {"mm": 420, "bmm": 260, "conv": 500}
_MOVED = {
    "clone": 2, "relu": 2, "relu_": 2, "gelu": 2, "silu": 2, "sigmoid": 2, "tanh": 2, "exp": 2, "pow2": 2, "pow3": 2, "rsqrt": 2, "hardswish": 2,
    "leaky_relu": 2, "neg": 2, "sin": 2, "mul.Scalar": 2, "add": 3, "add_": 3, "mul": 3, "mul_": 3, "sub": 3, "div": 3, "threshold_backward": 3,
    "gelu_backward": 3, "silu_backward": 3, "hardswish_backward": 3, "lerp_": 3, "addcmul": 3, "bernoulli_": 1, "fill_": 1, "zero_": 1, "normal_": 1,
}  # fmt: skip
_HOSTED = 2**20
_OLD_POOLS = ("max_pool", "avg_pool", "adaptive", "nearest", "bilinear")
# Positions that become one, of what was pooled.
_WINDOWS = {"max_pool": 9, "avg_pool": 4}


def outside(spec: dict[str, Any]) -> int:
    """Elements of one side of a convolution's result."""
    p, r, s = spec["p"], spec["r"], spec["stride"]
    reach = spec["dilation"] * (r - 1)
    pad = 0 if s == r and not spec["transposed"] else reach // 2
    return (p - 1) * s + reach + 1 - 2 * pad if spec["transposed"] else (p + 2 * pad - reach - 1) // s + 1


def work_of(spec: dict[str, Any], rates: Rates) -> Work | None:
    """The same piece of work as `analyzer_timing` makes of an operator like it."""
    kind, itemsize = spec["kind"], 2 if "float16" in spec["dtype"] else 4
    match kind:
        case "mm":
            return products.product(
                spec["m"], spec["n"], spec["k"], spec["b"], spec["dtype"], spec["layout"], rates
            )
        case "grouped_mm":
            return products.grouped(spec["m"] // spec["b"], spec["n"], spec["k"], spec["b"], rates)
        case "conv":
            d, out = spec["d"], outside(spec)
            conv = convolutions.Convolution(
                spec["part"], spec["dtype"], spec["layout"] == "nhwc", d, spec["n"], spec["c"], spec["k"], spec["p"] ** d, out**d,
                spec["r"] ** d, spec["stride"], spec["dilation"], spec["groups"], bool(spec["transposed"]),
            )  # fmt: skip
            return convolutions.convolution(conv, rates)
        case "attention":
            sizes = (spec["b"], spec["h"], spec["q"], spec["l"], spec["w"])
            return attention.attention(
                spec["kernel"], spec["dtype"], spec["part"], sizes, bool(spec["causal"]), rates
            )
        case "moved":
            return _moved(spec, itemsize, rates)
        case "reduced" if spec["name"] == "sum_plane":
            kept = min(64, max(spec["nbytes"] // itemsize // spec["width"], 1))
            outer = max(spec["nbytes"] // itemsize // spec["width"] // kept, 1)
            return traffic.summed(itemsize, outer, kept, spec["width"], rates)
        case "reduced":
            count = spec["nbytes"] // itemsize
            return traffic.reduced(spec["name"], itemsize, count, spec["width"], rates)
        case "sum_mid":
            return traffic.summed(itemsize, spec["n"], spec["kept"], spec["inner"], rates)
        case "runs" | "turned" | "part":
            return _reordered(spec, rates)
        case "joined":
            runs = [spec["run"] * spec["first"], *[spec["run"]] * (spec["number"] - 1)]
            return moves.joined_rows(itemsize, spec["a"] * sum(runs), runs, rates)
        case "broadcast":
            return _broadcast(spec["name"], itemsize, *_of_broadcast(spec), rates)
        case "mixed":
            written = 4 * spec["count"]
            return traffic.vectors("mixed", 4, 2.5 * written, 1.5 * written, rates)
        case "pool":
            return traffic.pooled(
                spec["name"], itemsize, spec["layout"] == "nhwc", (spec["n"] * spec["c"], spec["p"] ** 2, spec["q"] ** 2),
                spec["r"] ** 2, rates,
            )  # fmt: skip
        case "rows":
            return traffic.rows(spec["name"], itemsize, spec["rows"], spec["width"], rates)
        case "planes" if spec["name"].removesuffix("_backward") in _OLD_POOLS:
            return _pooled(spec, itemsize, rates)
        case "planes":
            last = spec["layout"] == "nhwc"
            return traffic.planes(spec["name"], itemsize, last, (spec["n"], spec["c"], spec["p"] ** 2), rates)
        case "lookup":
            return traffic.lookup(
                spec["name"], itemsize, (spec["rows"], spec["width"], spec["vocabulary"]), rates
            )
        case "foreach":
            return traffic.lists(spec["name"], itemsize, spec["tensors"], spec["each"], rates)
        case "sorted":
            return traffic.sorting(spec["name"], spec["rows"], spec["width"], rates)
        case "recurrent":
            return traffic.recurrent(
                spec["name"], itemsize, spec["part"], (spec["layers"], spec["t"], spec["b"], spec["w"]), rates
            )
    return None


def _moved(spec: dict[str, Any], itemsize: int, rates: Rates) -> Work | None:
    name, nbytes = spec["name"], spec["nbytes"]
    if name == "from_host":
        return traffic.from_host(nbytes, rates)
    if name in _MOVED:
        read = max(_MOVED[name] - 1, 0) * nbytes
        return traffic.vectors(name, itemsize, _MOVED[name] * nbytes, read, rates)
    if name in ("where", "native_dropout_backward", "native_dropout", "eq"):
        tensors = {"where": 3, "native_dropout_backward": 2, "native_dropout": 2, "eq": 1}[name]
        return traffic.vectors(
            name, itemsize, tensors * nbytes + nbytes // itemsize, (tensors - 1) * nbytes, rates
        )
    if name.startswith("to_"):
        if spec["dtype"] != "float32" and name != "to_float32":
            return None  # no conversion, or one between two halves
        if name == "to_float32" and spec["dtype"] == "float32":
            return None
        to = 4 if name == "to_float32" else 2
        return traffic.vectors(f"to{to}", itemsize, nbytes + nbytes // itemsize * to, nbytes, rates)
    return _strided(name, spec["dtype"], nbytes // itemsize, itemsize, rates)


def _pooled(spec: dict[str, Any], itemsize: int, rates: Rates) -> Work:
    """Pooling and resizing."""
    p, name = spec["p"], spec["name"].removesuffix("_backward")
    side = {
        "max_pool": (p - 1) // 2 + 1,
        "avg_pool": p // 2,
        "adaptive": 7,
        "nearest": 2 * p,
        "bilinear": 2 * p,
    }[name]
    sizes = spec["n"] * spec["c"], p * p, side * side
    return traffic.pooled(
        spec["name"], itemsize, spec["layout"] == "nhwc", sizes, _WINDOWS.get(name, 1), rates
    )


def _meta(dtype: str, *shape: int, order: tuple[int, ...] | None = None) -> TensorMeta:
    """A tensor that fills a piece of memory; order: its dimensions, innermost first."""
    return TensorMeta(0, shape, contiguous_strides(shape, order), dtype)


def _reordered(spec: dict[str, Any], rates: Rates) -> Work:
    """A copy in another order."""
    a, b, kind, dtype = spec["a"], spec["b"], spec["kind"], spec["dtype"]
    if kind == "runs":
        source = _meta(dtype, a, spec["c"], b, spec["run"], order=(3, 1, 2, 0))
    elif kind == "turned":
        source = _meta(dtype, a, spec["c"], b, order=(1, 2, 0))
    else:
        source = TensorMeta(0, (a, spec["run"]), (b * spec["run"], 1), dtype)
    to = dtype if not spec.get("cast") else "bfloat16" if dtype == "float32" else "float32"
    (work,) = elementwise.copied(source, _meta(to, *source.shape), rates)
    return work


def _of_broadcast(spec: dict[str, Any]) -> tuple[int, int]:
    """Elements, and those of a run."""
    if spec["name"] == "channel_mul":
        return max(spec["n"] // spec["c"], 1) * spec["c"] * spec["run"], spec["run"]
    return spec["n"] * spec["run"], spec["run"]


def _broadcast(name: str, itemsize: int, elements: int, run: int, rates: Rates) -> Work:
    nbytes = elements * itemsize
    return traffic.strided(name, itemsize, elements, 2 * nbytes, nbytes, rates, (log(run),))


def _strided(name: str, dtype: str, count: int, itemsize: int, rates: Rates) -> Work | None:
    """Copies of so many elements in another order."""
    width, (side, channels) = 64 if count < 2**14 else 512, (14, 64) if count >= 196 * 64 else (4, 8)
    rows, images = max(count // width, 1), max(count // (side * side * channels), 1)
    match name:
        case "bias_add" | "row_mul":
            return _broadcast(name, itemsize, rows * width, width, rates)
        case "channel_mul":
            return _broadcast(name, itemsize, images * channels * side * side, side * side, rates)
        case "cat2" | "cat_last" | "interleave":
            run = {"cat2": rows * width, "cat_last": width, "interleave": 1}[name]
            return moves.joined_rows(itemsize, 2 * rows * width, [run, run], rates)
        case "head_permute":
            heads, row = max(rows // 32, 1), min(rows, 32)
            source = _meta(dtype, heads, width // 32, row, 32, order=(3, 1, 2, 0))
        case "nchw_nhwc":
            source = _meta(dtype, images, side, side, channels, order=(2, 1, 3, 0))
        case "transpose":
            source = _meta(dtype, width, rows, order=(0, 1))
        case "slice_copy":
            source = TensorMeta(0, (rows, width // 2), (width, 1), dtype)
        case "stride2":
            source = TensorMeta(0, (rows, width // 2), (width, 2), dtype)
        case "flip" | "roll" | "pad" | "repeat_kv":
            nbytes = (2 if name == "repeat_kv" else 1) * count * itemsize
            return traffic.strided(name, itemsize, nbytes / itemsize, 2 * nbytes, nbytes, rates)
        case _:
            return None
    (work,) = elementwise.copied(source, _meta(dtype, *source.shape), rates)
    return work


def measured_rows(folder: Path = RAW) -> list[dict[str, Any]]:
    """All that was measured, in columns as it is kept."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("operators*.json.gz")):
        for columns, rows in files.read(path)["rows"]:
            found += [dict(zip(columns, row, strict=True)) for row in rows]
    return found


def by_category(
    rows: list[dict[str, Any]], rates: Rates
) -> dict[str, list[tuple[tuple[float, ...], float, float, int]]]:
    """Category -> (place, logarithm of the factor, logarithm of the cold factor, kernels)."""
    found: dict[str, list[tuple[tuple[float, ...], float, float, int]]] = defaultdict(list)
    for row in rows:
        if row.get("name") == "from_host" and row["nbytes"] >= _HOSTED:
            continue
        work = work_of(row, rates)
        if work is not None:
            warm = float(np.log(row["warm"] / 1e9 / work.base))
            found[work.category].append(
                (work.place, warm, float(np.log(max(row["cold"], 1) / row["warm"])), row["kernels"])
            )
    for nbytes, seconds in host_copies():
        work = traffic.from_host(nbytes, rates)
        found[work.category].append((work.place, float(np.log(seconds / work.base)), 0.0, 1))
    return found


def host_copies() -> list[tuple[float, float]]:
    """Bytes and seconds of the development steps' copies of at least `_HOSTED`, each step's largest: in a loop of its own what is copied
    lies in the processor's cache, in a step it does not."""
    found = []
    for row in files.read(RAW / "programs.json.gz")["rows"]:
        case = row["case"]
        if row["set"] != "development" or "host_copies" not in row:
            continue
        inputs, target = zoo(case["zoo"]).M[case["model"]][1](case["batch"])
        tensors = [*inputs, *((target,) if case["mode"] == "train" else ())]
        copied = [x.nbytes // (2 if "dtype" in case and x.is_floating_point() else 1) for x in tensors]
        if max(copied) >= _HOSTED:
            found.append((max(copied), row["host_copies"] * max(copied) / sum(copied)))
    return found


def packed(rates: Rates) -> dict[str, Any]:
    """The arrays of the file."""
    arrays: dict[str, list[Any]] = defaultdict(list)
    names = []
    for name, rows in sorted(by_category(measured_rows(), rates).items()):
        kept = random.Random(0).sample(rows, min(len(rows), _MOST.get(name.split(":")[0], _ALL_BUT_MANY)))
        if len(kept) < 2:
            continue
        kept.sort()
        names.append(name)
        places = np.array([row[0] for row in kept], np.float32)
        found = table.Rows(
            places,
            np.array([r[1] for r in kept], np.float32),
            np.array([r[2] for r in kept], np.float32),
            0.0,
        )
        said = np.array(table.near(found, places, left_out=True))
        spread = float(np.mean(np.abs(said[:, 0] - found.factors)))
        arrays["kernels"].append(min(round(10 * float(np.mean([r[3] for r in kept]))), 255))
        arrays["counts"].append(len(kept))
        arrays["widths"].append(places.shape[1])
        arrays["spreads"].append(min(round(spread * 100), 255))
        arrays["places"].append(np.clip(np.round(places * table.PLACE), 0, 255).astype(np.uint8).ravel())
        arrays["factors"].append(np.clip(np.round(found.factors * table.FACTOR), -127, 127).astype(np.int8))
        arrays["colds"].append(np.clip(np.round(found.colds * table.COLD), -127, 127).astype(np.int8))
    done = {key: np.concatenate(arrays[key]) for key in ("places", "factors", "colds")}
    done |= {"counts": np.array(arrays["counts"], np.uint16), "widths": np.array(arrays["widths"], np.uint8)}
    done |= {
        "spreads": np.array(arrays["spreads"], np.uint8),
        "kernels": np.array(arrays["kernels"], np.uint8),
        "names": np.frombuffer("\n".join(names).encode(), np.uint8),
    }
    return done


def h100() -> Rates:
    """What the measurements are shares of."""
    rates = rates_of(load("h100"))
    assert rates is not None
    return rates


def write_packed(path: Path, arrays: Mapping[str, Any]) -> None:
    """Packed with LZMA: `numpy.load` reads it as it reads deflated ones, and it is a fifth smaller."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as file:
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


@click.command("pack")
def main() -> None:
    """Write extensions/analyzer_timing/h100.npz from the measured rows, and print how well it says a row that is left out."""
    arrays = packed(h100())
    write_packed(table.FILE, arrays)
    names = bytes(arrays["names"]).decode().split("\n")
    for name, count, spread in zip(names, arrays["counts"], arrays["spreads"], strict=True):
        print(f"{name:44} {count:5} rows, off by {spread} % when left out")
    print(f"{table.FILE.name}: {table.FILE.stat().st_size:,} bytes, {sum(arrays['counts']):,} rows")
