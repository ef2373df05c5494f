"""What engines' libraries are answered in their process (`analyzer_serving/engines/inside/engine_answers.py`), with packages made for the test."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.extensions.serving.insides import inside, placed


@pytest.fixture
def answers() -> Iterator[Any]:
    with inside("engine_answers") as module:
        yield module


def test_functions_known_by_name_are_the_answered_ones(answers: Any) -> None:
    """`getpid` is in this process; one that no library has is left out. What was made before is answered, too."""
    made = {"getpid": "its own"}
    names = [
        SimpleNamespace(name=name, restype=ctypes.c_int, argtypes=[])
        for name in ("getpid", "no_such_function")
    ]
    library = SimpleNamespace(
        exported_functions=names, path_to_library_cache={}, path_to_dict_mapping={"/first": made}
    )
    answers.answer_opened(library, "libc.so.6")
    assert set(library.path_to_dict_mapping["libc.so.6"]) == {"getpid"}
    assert made["getpid"]() > 0  # type: ignore[operator]
    answers.answer_opened(library, None)  # no such library is loaded


def test_modules_that_are_not_there_in_binary_are_launches(
    answers: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class JitSpec:
        def __init__(self, is_aot: bool) -> None:
            self.is_aot, self.name = is_aot, "comm"

        def build_and_load(self) -> str:
            return "compiled before"

    placed(monkeypatch, "flashinfer.jit.core", JitSpec=JitSpec)
    launches: list[Any] = []
    monkeypatch.setattr(answers, "launched", lambda *arguments, **named: launches.append(arguments))
    answers.answer_flashinfer()
    assert JitSpec(is_aot=True).build_and_load() == "compiled before"
    module: Any = JitSpec(is_aot=False).build_and_load()
    module.all_reduce(1, 2)
    assert launches == [(1, 2)] and "FlashInfer's comm is not compiled" in capsys.readouterr().err
    assert len(answers.notes) == 1 and "memory of its own is not counted" in answers.notes[0]
    assert module.plan(1) == [] and len(launches) == 1  # which is not None, as FlashInfer asks
    with pytest.raises(AttributeError):
        _ = module.__iter__  # what Python asks of an object is no kernel


def test_cuda_python_chooses_the_emulated_device(answers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = placed(
        monkeypatch,
        "cuda.cudart",
        cudaError_t=lambda code: ("error", code),
        cudaStreamCaptureStatus=lambda code: ("status", code),
    )
    chosen: list[int] = []

    def info(stream: Any, status: Any, number: Any, *_: Any) -> int:
        assert stream.value == 9
        status._obj.value, number._obj.value = 1, 7
        return 0

    library = SimpleNamespace(
        cudaSetDevice=lambda index: chosen.append(index.value) or 0, cudaStreamGetCaptureInfo_v2=info
    )
    monkeypatch.setattr(answers.ctypes, "CDLL", lambda name: library)
    answers.answer_cuda_python()
    assert module.cudaSetDevice(1) == (("error", 0),) and chosen == [1]
    assert module.cudaStreamGetCaptureInfo(9) == (("error", 0), ("status", 1), 7)


@pytest.mark.parametrize("mode", ["min", "all"])
def test_what_is_timed_runs_seldom_and_takes_the_same_time(
    answers: Any, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    class InductorBenchmarker:
        def benchmark_gpu(
            self, function: Any, estimation_iters: int = 5, memory_warmup_iters: int = 100,
            benchmark_iters: int = 100, return_mode: str = "min",
        ) -> Any:  # fmt: skip
            times = [function() for _ in range(estimation_iters + memory_warmup_iters + benchmark_iters)]
            return min(times) if return_mode == "min" else times[-benchmark_iters:]

    placed(monkeypatch, answers._BENCHMARKS, InductorBenchmarker=InductorBenchmarker)
    answers.answer_benchmarks()
    runs: list[float] = []
    found = InductorBenchmarker().benchmark_gpu(lambda: runs.append(3.0) or 3.0, return_mode=mode)
    assert found == (1.0 if mode == "min" else [1.0]) and len(runs) == 3


def test_libraries_that_are_not_there_are_left_alone(answers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = SimpleNamespace(exported_functions=[], path_to_library_cache={}, path_to_dict_mapping={})
    placed(monkeypatch, "engine.wrapper", Library=made, found=lambda name: f"{name}.so.6")
    openers = [("engine.nothing", "Library", "engine.wrapper:found", "libc")]
    answers.answer_openers([*openers, ("engine.wrapper", "Library", "engine.wrapper:found", "libc")])
    assert list(made.path_to_dict_mapping) == ["libc.so.6"]
