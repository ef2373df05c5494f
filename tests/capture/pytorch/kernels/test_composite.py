"""Operators that CUDA has no kernel for: their parts are those PyTorch's own kernel is made of, and take what an H200 took."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from analyzer.capture.pytorch.capture import capture_script
from analyzer.capture.pytorch.environment import cuda_environment, watching
from analyzer.capture.pytorch.kernels.composite import HANDLERS, NAMES, key_of
from analyzer.devices import load
from analyzer.runtimes.events import Event, Free, Malloc
from analyzer.runtimes.pytorch.eager import requests
from benchmarks.releases.schemas import without_kernel
from tests.paths import DATA

aten = torch.ops.aten
H200 = load("h200")


def calls(device: str) -> dict[Any, tuple[Any, ...]]:
    """Arguments of one call of each, on this device."""

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).to(device)

    places = torch.tensor([1, 2, 3]).to(device)
    x, y, mask = drawn(3, 4), drawn(3, 4), (drawn(3, 4) > 0)
    later = {
        ("_native_batch_norm_legit_no_training", "default"): (drawn(2, 4, 5), drawn(4), drawn(4), drawn(4), drawn(4), 0.1, 1e-5),
        ("affine_grid_generator", "default"): (drawn(2, 2, 3), [2, 3, 4, 5], False),
        ("allclose", "default"): (x, x),
        ("binary_cross_entropy_with_logits", "default"): (x, y),
        ("cholesky_solve", "default"): (drawn(3, 2), drawn(3, 3)),
        ("count_nonzero", "default"): (x,),
        ("embedding_renorm", "default"): (drawn(5, 4), places, 1.0, 2.0),
        ("isinf", "default"): (x,),
        ("ldexp", "Tensor"): (x, y),
        ("ldexp_", "default"): (x.clone(), y),
        ("logsumexp", "default"): (x, [1]),
        ("masked_scatter_backward", "default"): (x, mask, [12]),
        ("mvlgamma", "default"): (x + 9, 2),
        ("norm", "ScalarOpt_dtype"): (x, 2),
        ("soft_margin_loss", "default"): (x, y),
        ("soft_margin_loss_backward", "default"): (drawn(3, 4), x, y, 0),
    }  # fmt: skip
    return {
        aten._euclidean_dist.default: (drawn(30, 3), drawn(40, 3)),
        aten._pack_padded_sequence.default: (drawn(5, 4, 3), torch.tensor([5, 4, 3, 2]), False),
        aten._trilinear.default: (drawn(4, 5), drawn(7, 5, 6), drawn(4, 6), [1, 3], [0], [1, 2], [2, 3]),
        aten._unsafe_masked_index.default: (drawn(10), drawn(3) > 0, [places], 0.0),
        aten._unsafe_masked_index_put_accumulate.default: (drawn(10), drawn(3) > 0, [places], drawn(3)),
        aten.addr_.default: (drawn(3, 4), drawn(3), drawn(4)),
        aten.bartlett_window.default: (16,),
        aten.bartlett_window.periodic: (16, False),
        aten.blackman_window.default: (16,),
        aten.blackman_window.periodic: (16, False),
        **{getattr(getattr(aten, name), overload): given for (name, overload), given in later.items()},
        aten.block_diag.default: ([drawn(2, 3), drawn(4, 5)],),
        aten.conv_tbc.default: (drawn(10, 2, 4), drawn(3, 4, 5), drawn(5)),
        aten.dist.default: (drawn(2, 3), drawn(2, 3)),
        aten.fft_fftfreq.default: (8,),
        aten.fft_rfftfreq.default: (8,),
        aten.linalg_pinv.atol_rtol_tensor: (drawn(3, 3),),
        aten.linspace.Scalar_Tensor: (1.0, places[0], 5),
        aten.linspace.Tensor_Scalar: (places[0], 9.0, 5),
        aten.linspace.Tensor_Tensor: (places[0], places[1], 5),
        aten.logspace.Scalar_Tensor: (1.0, places[0], 5, 2.0),
        aten.logspace.Tensor_Scalar: (places[0], 9.0, 5, 2.0),
        aten.logspace.Tensor_Tensor: (places[0], places[1], 5, 2.0),
        aten.mvlgamma_.default: (drawn(5) + 9, 2),
        aten.put.default: (drawn(10), places, drawn(3)),
        aten.rrelu_with_noise_backward.default: (drawn(5), drawn(5), drawn(5), 0.1, 0.3, True, False),
    }


# By keyword alone.
NAMED: dict[Any, dict[str, Any]] = {aten.norm.ScalarOpt_dtype: {"dtype": torch.float32}}
# Results handed in are asked for by the operator that makes them.
CALLED = [func for func in HANDLERS if not any(argument.is_out for argument in func._schema.arguments)]
# Parts whose results a CPU has otherwise: statistics that nobody saves, a buffer of log_sigmoid's, as many as a mask has.
SHAPED_OTHERWISE = {
    aten._native_batch_norm_legit_no_training.default, aten.binary_cross_entropy_with_logits.default,
    aten.masked_scatter_backward.default,
}  # fmt: skip


class Seen(TorchDispatchMode):
    """What a CPU's kernel calls, and the shapes of the results."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.parts: list[tuple[str, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        name = func.name()
        if has_kernel(name, "CompositeImplicitAutograd") and not has_kernel(name, "CPU"):
            with self:
                return func.decompose(*args, **(kwargs or {}))
        if func in HANDLERS:
            with self:
                return func._op_dk(key_of(func), *args, **(kwargs or {}))
        out = func(*args, **(kwargs or {}))
        results = [t for t in tree_iter(out) if isinstance(t, torch.Tensor)]
        if not (func is aten.empty.memory_format and results[0].dtype is torch.long):  # lengths, on the host
            name = f"{func._schema.name}.{func._schema.overload_name or 'default'}"
            self.parts.append((name, tuple(tuple(result.shape) for result in results)))
        return out


@pytest.mark.parametrize("func", CALLED, ids=str)
def test_the_parts_are_those_of_pytorchs_own_kernel(func: Any) -> None:
    factory, named = str(func).split(".")[1].endswith(("window", "freq", "space")), NAMED.get(func, {})
    on_cpu, seen = calls("cpu")[func], Seen()
    with torch.no_grad(), torch._C._AutoDispatchBelowAutograd(), seen:
        func._op_dk(key_of(func), *on_cpu, **named, **({"device": torch.device("cpu")} if factory else {}))
    with torch.no_grad(), cuda_environment(H200) as recorder, watching(recorder):
        on_gpu, begin = calls("cuda")[func], len(recorder.operators)
        func(*on_gpu, **named, **({"device": recorder.gpu} if factory else {}))
        parts = [
            (operator.name, tuple(output.shape for output in operator.outputs if output is not None))
            for operator in recorder.operators[begin:]
        ]
    whole = func not in SHAPED_OTHERWISE
    on_host = [
        part[: 1 + whole] for part in seen.parts if not part[0].startswith("aten::_local_scalar_dense")
    ]
    assert [part[: 1 + whole] for part in parts] == on_host
    assert parts[0][0] != f"{func._schema.name}.{func._overloadname}"


@functools.cache
def recorded() -> list[Any]:
    found: list[Any] = []
    for name in ("operators_h200.json.gz", "h200/operators_layouts.json.gz"):
        cases = json.loads(gzip.decompress((DATA / name).read_bytes()))["cases"]
        found += [row for rows in cases.values() if not isinstance(rows, str) for row in rows]
    return found


def on_the_h200(name: str) -> Iterator[Any]:
    """Calls recorded on an H200: what each asked for and gave back, and its arguments."""
    for operator, events, arguments, *_ in recorded():
        if operator == name:
            yield events, arguments


def made(value: Any) -> Any:
    if isinstance(value, list) and value and value[0] == "T":
        _, shape, dtype, stride, *_ = value
        return torch.empty_strided(shape, stride, dtype=getattr(torch, dtype), device="cuda")
    return [made(part) for part in value] if isinstance(value, list) else value


def asked(func: Any, arguments: Any) -> list[int]:
    """Bytes a call takes (and, negative, gives back) as it is followed; its result stays."""

    def script(recorder: Any) -> None:
        given = [made(argument) for argument in arguments]
        recorder.mark("begin")
        result = func(*given)
        recorder.mark("end")
        del result, given

    with torch.no_grad():
        events = requests(capture_script(script, H200), H200).events
    sizes: dict[int, int] = {}
    told: list[int] = []
    inside = False
    for event in events:
        match event:
            case Event(name):
                inside = name == "begin"
            case Malloc(key, nbytes, label=label) if nbytes and label != "cublas":
                sizes[key] = nbytes
                told += [nbytes] if inside else []
            case Free(key) if inside and key in sizes:  # of no bytes nothing is asked
                told.append(-sizes[key])
    return told


@pytest.mark.parametrize(
    "func",
    [
        aten._euclidean_dist.default,
        aten._trilinear.default,
        aten._unsafe_masked_index.default,
        aten.block_diag.default,
        aten.dist.default,
        aten.put.default,
        aten.rrelu_with_noise_backward.default,
    ],
    ids=str,
)
def test_it_takes_what_an_h200_took_request_by_request(func: Any) -> None:
    """Of the pairs' distances, bilinear layers and others, as their tensors may lie."""
    calls_there = list(on_the_h200(f"{func}"))
    assert calls_there
    for events, arguments in calls_there:
        assert asked(func, arguments) == events


def test_no_release_has_a_kernel_of_cudas_for_them() -> None:
    """Whose list has no results handed in, and none that PyTorch generates from a kernel that works in place."""
    releases = without_kernel()
    assert len(releases) == 10
    later = {"ldexp.Tensor", "ldexp_.default"}  # the operators that are called, until torch 2.10
    names = set(NAMES) - {"logsumexp.out", "soft_margin_loss.out", "embedding_renorm.default"}
    for release, found in releases.items():
        assert {f"aten::{name}" for name in (names if release >= (2, 11) else names - later)} <= found
    assert len(HANDLERS) == len(NAMES) and "aten::mm.default" not in releases[2, 15]


def test_a_view_in_place_of_known_zeros_is_still_known() -> None:
    """`_trilinear` drops dimensions of its zeros in place: their values do not change, whatever the shape was."""
    with cuda_environment(H200) as recorder, watching(recorder):
        zeros = torch.zeros(2, 1, 2, 1, device="cuda")
        zeros.squeeze_(3)
        assert zeros.shape == (2, 1, 2) and zeros.tolist() == [[[0.0, 0.0]], [[0.0, 0.0]]]


# Of complex64 (320, 320, 320), as PyTorch's own host code asks under the emulated runtime (torch 2.11, an H200):
# the staging memory and the semaphores of each of two reductions, and the sum.
REDUCED = [8448, 4, -4, -8448]
MOMENTS = {
    aten.var.correction: [4, *REDUCED, 4, *REDUCED, 4, -4, -4],
    aten.std.correction: [4, *REDUCED, 4, *REDUCED, 4, -4, -4],
    aten.std_mean.correction: [4, 4, *REDUCED, 4, 4, *REDUCED, 4, 8, -4, -4, -4, -4],
}


@pytest.mark.parametrize("func", MOMENTS, ids=str)
def test_moments_of_complex_numbers_are_those_of_both_parts(func: Any) -> None:
    x = ["T", [320, 320, 320], "complex64", [102400, 320, 1]]
    assert asked(func, [x]) == MOMENTS[func]
