"""An ONNX file's session, run by the user's own ONNX Runtime on the emulated CUDA runtime.

1. Weights are not read: a copy of the file in a folder of its own finds its external data in a sparse file of
   the same length. Small tensors keep their values, which shapes may come from.
2. Inputs are as for a real run (`feeds`).
3. The session's requests take the place of those that are worked out from the file; everything behind them
   is the same (`runtimes/onnxruntime/runtime.predicted`).

Not modelled: arenas that sessions share (a script with them is emulated as a whole).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analyzer.analysis import Analysis
from analyzer.devices import DeviceProfile
from analyzer.errors import AnalyzerError, OptionError, RunError
from analyzer.onnx import file as onnx_file
from analyzer.onnx.types import ELEMENT_TYPES
from analyzer.options import Options
from analyzer.pipeline.assemble import assemble
from analyzer.pipeline.onnx import captured_onnx
from analyzer.report.words import clean
from analyzer.results.estimate import Estimate
from analyzer.runtimes.base import Source
from analyzer.runtimes.onnxruntime import SessionOptions, SessionPrediction, advice, parse
from analyzer.runtimes.onnxruntime.graph import RuntimeGraph
from analyzer.runtimes.onnxruntime.load import load
from analyzer.runtimes.onnxruntime.provided import Provided, SessionRecord
from analyzer.runtimes.onnxruntime.runtime import OnnxRuntime, predicted, within_budget
from analyzer.runtimes.onnxruntime.session import RUNS
from analyzer.targets import Target
from analyzer_emulation.inference import Provider, Recorded, recorded
from analyzer_verify.runs import feeds

_PAGE_BYTES = 4096
_INTEGERS = (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_NUMPY = frozenset(("float16", "float32", "float64", "bool", *_INTEGERS))
_NAMED = 3  # nodes that a note names


def estimate_of(target: Target, options: Options, provider: Provider) -> Estimate:
    """Return the estimate of an ONNX file by its own runtime. Raises AnalyzerError."""
    return analysis_of(target, options, provider).estimate


def analysis_of(target: Target, options: Options, provider: Provider) -> Analysis:
    """Return the analysis of an ONNX file by its own runtime. Raises AnalyzerError."""
    runtime = ProviderRuntime(target, provider)
    wanted = replace(options, release={**options.release, "onnxruntime": provider.version})
    captured = captured_onnx(target, wanted, runtime)
    analysis = assemble(captured, wanted, runtime)
    estimate = analysis.estimate
    estimate = replace(
        estimate,
        engine="emulate",
        installed={},
        notes=tuple(note for note in estimate.notes if note not in captured.source.graph.notes),
        device_note="; ".join(
            filter(None, (f"emulated: ONNX Runtime {provider.version} itself", estimate.device_note))
        ),
    )
    return replace(analysis, estimate=estimate)


class ProviderRuntime(OnnxRuntime):
    """ONNX Runtime's own CUDA provider, for one file."""

    def __init__(self, target: Target, provider: Provider) -> None:
        self._target, self._provider = target, provider
        self._known: dict[tuple[SessionOptions, str], Recorded] = {}

    def predict(self, source: Source, options: Options, profile: DeviceProfile) -> SessionPrediction:
        """Return the prediction from the requests of a session that ran."""
        assert source.model is not None
        settings = parse(options.runtime_options)
        _check(settings)
        models = source.runs or (source.model,) * len(RUNS)
        loaded = {id(model): load(model, None) for model in (source.model, *source.runs)}
        graphs = [loaded[id(model)] for model in models]
        key = replace(settings, gpu_mem_limit=None), profile.name
        if key not in self._known:
            inputs = [feeds.feeds(graph, options.values) for graph in graphs]
            self._known[key] = self._run(inputs, [_results(graph) for graph in graphs], key[0], profile)
        answer = self._known[key]
        record = SessionRecord.of(answer.record, answer.guessed)
        apart = settings.use_device_allocator_for_initializers
        requests = Provided(record, loaded[id(source.model)], graphs, apart)

        def ask(device: DeviceProfile) -> SessionPrediction:
            return predicted(
                requests,
                settings,
                device,
                graph=requests.graph,
                run_graphs=(requests.graph,) * len(models),
                batches=[model.batch for model in models],
                savings=lambda used: advice.cheaper_arena(requests, used),
                notes=(),
                caveats=_values_that_decide(record),
                local_bytes=record.local_bytes,
                bodies=record.bodies(),
            )

        prediction = within_budget(ask, profile, options.budget_bytes)
        return self._with_other_values(prediction, source, options, profile) if record.read() else prediction

    def _with_other_values(
        self, prediction: SessionPrediction, source: Source, options: Options, profile: DeviceProfile
    ) -> SessionPrediction:
        """Return the prediction with ranges up to what the simulation has for other values than zeros: it
        counts the most results that values allow."""
        assert prediction.ranges is not None
        try:
            simulated = super().predict(source, options, profile)
        except AnalyzerError:
            return prediction
        (low, high), (least, most) = prediction.ranges
        peaks, held = simulated.ranges or ((0, 0), (0, 0))
        return replace(prediction, ranges=((low, max(high, peaks[1])), (least, max(most, held[1]))))

    def _run(
        self,
        runs: Sequence[Mapping[str, feeds.Feed]],
        results: Sequence[Mapping[str, Any]],
        settings: SessionOptions,
        profile: DeviceProfile,
    ) -> Recorded:
        """Run the session. Raises RunError where ONNX Runtime refuses it."""
        with tempfile.TemporaryDirectory(prefix="analyze-session-") as folder:
            path = without_weights(Path(self._target.path or self._target.name), Path(folder))
            described = [{name: _described(feed) for name, feed in inputs.items()} for inputs in runs]
            answer = recorded(path, described, results, settings, self._provider, profile)
        error = answer.record.get("error")
        if error is not None:
            version = self._provider.version
            raise RunError(
                f"{self._target.name}: ONNX Runtime {version} refuses it: {clean(error.strip())}",
                "its own sentence: on a GPU this file and these options end the same way",
            )
        return answer


def _values_that_decide(record: SessionRecord) -> tuple[str, ...]:
    """Return the line on values that kernels computed and the host read: here they are zero."""
    readers = record.read()
    if not readers:
        return ()
    names = [f"{kernel.op} {clean(kernel.node)}" for kernel in readers]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"kernels compute nothing here, and {', '.join(names[:_NAMED])}{more} read their results: what those"
        " values decide (such as how many boxes are kept) is as for zeros, and memory may be more",
    )


def _check(settings: SessionOptions) -> None:
    """Raise OptionError for a session that is not emulated."""
    for name, is_given in (
        ("provider=cpu", settings.provider != "cuda"),
        ("shared_with", bool(settings.shared_with)),
    ):
        if is_given:
            raise OptionError(
                f"sessions with {name} are not emulated", "leave --engine emulate, or --emulated, out"
            )


def _results(graph: RuntimeGraph) -> dict[str, Any]:
    """Return a graph's outputs as `_described` has inputs: those of a known shape and a type of NumPy's."""
    results: dict[str, Any] = {}
    for name in graph.outputs:
        value = graph.values[name]
        if value.shape is not None and value.dtype in _NUMPY:
            results[name] = {"shape": list(value.shape), "fill": None, "numpy": value.dtype, "number": 0}
    return results


def _described(feed: feeds.Feed) -> dict[str, Any]:
    """Return a feed for a Python that has NumPy alone."""
    array = feeds.sample(feed)
    has_name = array.dtype.kind in "biufcO"
    return {
        "shape": feed.shape,
        "fill": feed.fill if has_name else None,
        "numpy": "string"
        if array.dtype.kind == "O"
        else array.dtype.name
        if has_name
        else f"u{array.dtype.itemsize}",
        "number": 0 if has_name else ELEMENT_TYPES[feed.dtype],
    }


def without_weights(path: Path, folder: Path) -> Path:
    """Return a copy of a file in the folder whose larger weights take no room: they lie in a sparse file.
    Raises TargetError."""
    import onnx

    onnx_file.load(path)  # which refuses what is no sound model
    model, end = onnx.load(str(path), load_external_data=False), 0
    with (folder / "weights").open("wb") as stream:
        for tensor in onnx_file.tensors(model.graph):
            outside, nbytes = (
                tensor.data_location == onnx.TensorProto.EXTERNAL,
                onnx_file.stored_bytes(tensor),
            )
            if not outside and (not tensor.name or len(tensor.raw_data) <= onnx_file.KEEP_BYTES):
                continue
            end = -(-end // _PAGE_BYTES) * _PAGE_BYTES
            values = onnx_file.read_external(tensor, path.parent) if outside else None
            if values is not None:
                stream.seek(end)
                stream.write(values)
            tensor.ClearField("raw_data")
            del tensor.external_data[:]
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", "weights"), ("offset", end), ("length", nbytes)):
                tensor.external_data.add(key=key, value=str(value))
            end += nbytes
        stream.truncate(max(end, 1))
    copy = folder / "model.onnx"
    copy.write_bytes(model.SerializeToString())
    return copy
