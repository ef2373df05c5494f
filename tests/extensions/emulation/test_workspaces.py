"""cuFFT and cuSPARSE in the emulated runtime: the sizes they ask of their caller, alone and under a CUDA build of PyTorch."""

from __future__ import annotations

import ctypes
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import analyzer
from analyzer.devices import load
from analyzer_emulation.device import described
from analyzer_emulation.questions import QuestionServer, Unanswered
from analyzer_emulation.workspaces import Workspaces
from tests.extensions.emulation.native import loaded
from tests.paths import DATA, ROOT

H200 = load("h200")
MIB = 2**20
FLOAT, COMPLEX_FLOAT, COMPLEX_DOUBLE, BFLOAT = 0, 4, 5, 14
CSR_ALG1, CSR_ALG2, COO_ALG4 = 4, 6, 5
RECORDED_ALIKE = 1687  # as many as the rule of `libraries/cufft.py` says exactly (test_fourier_recorded.py)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    with QuestionServer(Workspaces(H200).topics) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield loaded(described(H200, (13, 0)))


def planned(
    runtime: ctypes.CDLL,
    lengths: tuple[int, ...],
    batch: int,
    source: int,
    result: int,
    stride: int = 1,
    row: int = 0,
) -> int | None:
    """The bytes of a plan's workspace; None: there is no such plan."""
    plan, nbytes = ctypes.c_int(), ctypes.c_size_t()
    assert runtime.cufftCreate(ctypes.byref(plan)) == 0
    assert runtime.cufftSetAutoAllocation(plan, 0) == 0
    rank, whole = len(lengths), ctypes.c_longlong
    sizes = (whole * rank)(*lengths)
    embedded = (whole * rank)(*lengths[:-1], row) if row else None
    code = runtime.cufftXtMakePlanMany(
        plan, rank, sizes, embedded, whole(stride), whole(0), source, embedded, whole(1), whole(row), result, whole(batch),
        ctypes.byref(nbytes), source,
    )  # fmt: skip
    assert runtime.cufftXtExec(plan, None, None, 0) == 0 and runtime.cufftDestroy(plan) == 0
    return None if code else nbytes.value


def test_a_plan_takes_what_was_recorded(runtime: ctypes.CDLL) -> None:
    """Rows of tests/data/h200/fft.jsonl.gz: what was asked for besides copies and results."""
    assert (
        planned(runtime, (1009,), 400, FLOAT, COMPLEX_FLOAT) == 3229248
    )  # frames of 1,009, after their copy
    assert planned(runtime, (509,), 1, COMPLEX_DOUBLE, COMPLEX_DOUBLE) == 0
    assert planned(runtime, (7,), 1, FLOAT, COMPLEX_FLOAT) == 0
    # Strided: of columns of 14 even numbers, real ones are two to a complex one.
    assert planned(runtime, (14,), 14 * 384, FLOAT, COMPLEX_FLOAT, stride=384) == 14 * 384 * 7 * 8
    assert planned(runtime, (14,), 14 * 384, FLOAT, COMPLEX_FLOAT) == 0
    # Both halves of the result.
    assert planned(runtime, (14,), 14 * 384, FLOAT, COMPLEX_FLOAT, row=14) == 14 * 384 * 7 * 8
    assert planned(runtime, (14,), 14 * 384, FLOAT, COMPLEX_FLOAT, row=8) == 0


def test_what_no_plan_is_known_of_is_refused(runtime: ctypes.CDLL, capfd: pytest.CaptureFixture[str]) -> None:
    assert planned(runtime, (8,), 1, BFLOAT, BFLOAT) is None
    assert "nothing is known of cuFFT's plans of data type 14" in capfd.readouterr().err
    assert runtime.cufftSetAutoAllocation(1, 1) == 16


def test_the_code_of_libraries_lies_beside(runtime: ctypes.CDLL) -> None:
    """cuFFT's once, cuSOLVER's for each handle (`per_thread_modules`), that of all kernels with the first."""
    code, used = H200.modules_bytes, [runtime.emulated_used_bytes(0)]
    handle = ctypes.c_void_p()
    for _ in range(2):
        planned(runtime, (8,), 1, COMPLEX_FLOAT, COMPLEX_FLOAT)
        used.append(runtime.emulated_used_bytes(0))
    for _ in range(2):
        assert runtime.cusolverDnCreate(ctypes.byref(handle)) == 0
        used.append(runtime.emulated_used_bytes(0))
    grown = [after - before for before, after in itertools.pairwise(used)]
    assert grown == [code["cufft"] + code["kernels"], 0, code["cusolver"], code["cusolver"]]


def product(
    runtime: ctypes.CDLL, rows: int, entries: int, algorithm: int, vector: bool = False
) -> int | None:
    whole, matrix, dense, nbytes = ctypes.c_int64, ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    assert runtime.cusparseCreateCsr(ctypes.byref(matrix), whole(rows), whole(rows), whole(entries)) == 0
    assert runtime.cusparseCreateDnMat(ctypes.byref(dense), whole(rows), whole(8)) == 0
    if vector:
        ask = runtime.cusparseSpMV_bufferSize
        code = ask(None, 0, None, matrix, dense, None, dense, 0, algorithm, ctypes.byref(nbytes))
    else:
        ask = runtime.cusparseSpMM_bufferSize
        code = ask(None, 0, 0, None, matrix, dense, None, dense, 0, algorithm, ctypes.byref(nbytes))
    assert runtime.cusparseDestroySpMat(matrix) == 0 and runtime.cusparseDestroyDnMat(dense) == 0
    return None if code else nbytes.value


def test_products_of_sparse_matrices(runtime: ctypes.CDLL, capfd: pytest.CaptureFixture[str]) -> None:
    """792,052 entries were recorded to take 12,383 bytes; GCN2's matrix 4,608 once rounded (`libraries/cusparse.py`)."""
    assert product(runtime, 5000, 792_052, CSR_ALG1) == 12_383
    assert 4096 < (product(runtime, 2708, 13_264, CSR_ALG2) or 0) <= 4608
    assert product(runtime, 2708, 13_264, 0, vector=True) == product(runtime, 2708, 13_264, CSR_ALG2)
    assert product(runtime, 8, 8, COO_ALG4) is None
    assert "no buffer is known of cuSPARSE's algorithm 5 for a matrix" in capfd.readouterr().err


def test_what_was_not_measured_is_said_once() -> None:
    asked = {"from": FLOAT, "to": COMPLEX_FLOAT, "batch": 1, "stride": 1, "row": 0}
    measured, other = Workspaces(H200), Workspaces(load("t4"))
    for workspaces in (measured, other):
        for _ in range(2):
            workspaces.plan({**asked, "lengths": [1024]})
        workspaces.plan({**asked, "lengths": [1_000_000]})
        workspaces.product({"what": "matrix", "algorithm": CSR_ALG1, "rows": 8, "entries": 9})
    near = "cuFFT plan of 1000000, 1 times: 4,000,008 bytes of workspace, by a formula of something near"
    assert measured.doubts() == (near,)
    assert len(other.doubts()) == 3 and near in other.doubts()
    assert other.doubts()[0].endswith("by a formula measured on the h200")


def test_recorded_transforms_once_more(python: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Every request and free of 1,707 transforms, by PyTorch's own code."""
    recorded = DATA / "h200" / "fft.jsonl.gz"
    program = ROOT / "tests/extensions/emulation/programs/transforms.py"
    found = analyzer.emulate(program, [str(recorded)], python=python, device="h200")
    assert found.incomplete is None
    told = next(line for line in capfd.readouterr().err.splitlines() if line.startswith("{"))
    assert json.loads(told)["same"] == RECORDED_ALIKE


@pytest.mark.parametrize(
    ("name", "program", "arguments", "exact"),
    [
        ("sparse_matrices_uncoalesced", "sparse_matrices", ["--uncoalesced", "--nodes", "5000", "--edges", "400000", "--width", "64"], True),
        ("sparse_matrices", "sparse_matrices", [], True),
        ("word_vectors", "word_vectors", [], False),
    ],
)  # fmt: skip
def test_sparse_programs_take_what_they_took(
    python: Path, name: str, program: str, arguments: list[str], exact: bool
) -> None:
    """Reserved to the byte; allocated too, or, where a count is data, more, which a note says."""
    rows = json.loads((DATA / "h200" / "programs.json").read_text())
    measured = next(row for row in rows if row["name"] == name)
    found = analyzer.emulate(ROOT / f"tests/programs/{program}.py", arguments, python=python, device="h200")
    assert found.incomplete is None and found.peak_reserved == measured["peak_reserved"]
    assert found.peak_allocated >= measured["peak_allocated"]
    assert found.device_used == measured["nvml_peak"]
    assert any(
        "how many places a sparse tensor has entries at depends on data" in note for note in found.notes
    )
    assert (found.peak_allocated == measured["peak_allocated"]) is exact


def test_linear_algebra_runs_through(python: Path) -> None:
    """What torch.linalg asks of cuSOLVER is answered; a work area's size is the one the library gave."""
    program = ROOT / "tests/extensions/emulation/programs/factors.py"
    found = analyzer.emulate(program, python=python, device="h100")
    assert found.incomplete is None
    assert any(
        "the degree of matrix_exp depends on norms: taken to be the highest" in note for note in found.notes
    )


def test_what_no_work_area_is_known_of_is_refused() -> None:
    asked = {"routine": "Xgeqrf", "type": "Z", "numbers": [80, 40]}
    assert Workspaces(H200).solver(asked) == [128 + 16 * 1024 * 768, 0]
    assert Workspaces(H200).solver({**asked, "routine": "geqrf"}) == [1024 * 768]
    with pytest.raises(Unanswered, match="no work area is known of cuSOLVER's syevjBatched"):
        Workspaces(H200).solver({**asked, "routine": "syevjBatched"})
