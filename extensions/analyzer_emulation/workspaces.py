"""cuFFT's, cuSPARSE's and cuSOLVER's side of an emulated program: sizes of the workspaces that their caller
provides.

1. A plan of cuFFT is one of `libraries/cufft.py`: types, lengths and batch as they are asked for. It is
   strided where its numbers do not follow each other, or where the complex result of real ones holds both
   halves ("row": how long its last dimension is).
2. A product of cuSPARSE is one of `libraries/cusparse.py`, by its algorithm.
3. A routine of cuSOLVER is one of `libraries/cusolver.py`. The host's workspace is not modelled: it takes no
   device memory.
4. A call unlike all recorded ones, and any call on another GPU than the measured one, is kept as a doubt,
   once for each kind.

Source of the numbers: `library_types.h` (cudaDataType), `cusparse.h` (cusparseSpMMAlg_t, cusparseSpMVAlg_t).
"""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.devices import DeviceProfile
from analyzer.libraries import cufft, cusolver, cusparse
from analyzer_emulation.questions import Question, Topic, Unanswered

# cudaDataType -> bytes of a real number, and whether it is complex.
_TYPES = {0: (4, False), 1: (8, False), 2: (2, False), 4: (4, True), 5: (8, True), 6: (2, True)}
_CSR_ALG1, _CSR_ALG2, _SPMV_DEFAULT = 4, 6, 0


class Workspaces:
    """Answers for a GPU. `topics`: what it answers."""

    def __init__(self, profile: DeviceProfile) -> None:
        self._profile = profile
        self._doubts: dict[str, None] = {}
        self.topics: Mapping[str, Topic] = {
            "cufft.plan": self.plan,
            "cusparse.product": self.product,
            "cusolver": self.solver,
        }

    def plan(self, question: Question) -> list[int]:
        """Return the bytes of a plan's workspace."""
        if question["from"] not in _TYPES or question["to"] not in _TYPES:
            raise Unanswered(f"nothing is known of cuFFT's plans of data type {question['from']}")
        (real_bytes, from_complex), (_, to_complex) = _TYPES[question["from"]], _TYPES[question["to"]]
        lengths = tuple(question["lengths"])
        real = not (from_complex and to_complex)
        both_sides = real and to_complex and question["row"] == lengths[-1] > 1
        strided = question["stride"] != 1 or both_sides
        plan = cufft.FourierPlan(
            lengths, question["batch"], real, real_bytes, strided=strided, to_real=not to_complex
        )
        nbytes = cufft.workspace_bytes(plan)
        self._doubt(
            f"cuFFT plan of {'x'.join(map(str, lengths))}, {plan.batch} times",
            nbytes,
            cufft.is_recorded(plan),
        )
        return [nbytes]

    def product(self, question: Question) -> list[int]:
        """Return the bytes of a product's buffer."""
        rows, entries, algorithm = question["rows"], question["entries"], question["algorithm"]
        measured = question["what"] == "matrix" and algorithm == _CSR_ALG1
        if measured:
            nbytes = cusparse.product_bytes(entries)
        elif (question["what"], algorithm) in (("matrix", _CSR_ALG2), ("vector", _SPMV_DEFAULT)):
            nbytes = cusparse.compressed_product_bytes(rows, entries)
        else:
            raise Unanswered(
                f"no buffer is known of cuSPARSE's algorithm {algorithm} for a {question['what']}"
            )
        self._doubt(f"cuSPARSE product of {rows:,} rows with {entries:,} entries", nbytes, measured)
        return [nbytes]

    def solver(self, question: Question) -> list[int]:
        """Return elements of a work area, or bytes on device and host for the newer interface."""
        routine, numbers = question["routine"], question["numbers"]
        if routine not in cusolver.ROUTINES:
            raise Unanswered(f"no work area is known of cuSOLVER's {routine}")
        element = cusolver.ELEMENTS[question["type"]]
        nbytes = cusolver.ROUTINES[routine](element, *numbers)
        self._doubt(f"cuSOLVER {routine} of {'x'.join(map(str, numbers))}", nbytes, True)
        return [nbytes, 0] if routine.startswith("X") else [nbytes // element.nbytes]

    def doubts(self) -> tuple[str, ...]:
        """Return descriptions of workspaces that are not measured, in the order of the calls."""
        return tuple(self._doubts)

    def _doubt(self, what: str, nbytes: int, known: bool) -> None:
        if known and self._profile.measured:
            return
        source = "by a formula measured on the h200" if known else "by a formula of something near"
        self._doubts[f"{what}: {nbytes:,} bytes of workspace, {source}"] = None
