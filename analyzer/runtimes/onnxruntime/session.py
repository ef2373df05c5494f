"""One session as allocation events: initializers, a first run, a steady run.

1. **Session**: every initializer used on the device is taken from the arena by itself, in an order that is a
   hash table's and changes from process to process (here: the file's; `simulation` shuffles).
   With `use_device_allocator_for_initializers` each is one device allocation outside the arena's regions. The
   CPU provider reserves initializers up to 127 bytes and its packed weights; larger ones stay where the file
   was loaded.
2. **Run**: inputs used on the device are copied there; then kernels run in order: outputs that have buffers
   of their own (`planner`), scratch while the kernel runs (`scratch`), then the releases of the plan. The
   caller's results, the copies of inputs and buffers nobody reads live to the end of the run.
3. The first run takes each buffer from the arena and records the memory pattern (`pattern`); every later run
   with the same input shapes takes the pattern's block at its start instead, or, where that finds no room,
   each buffer from the arena again (`simulation`). Outputs and scratch stay apart. Runs of other shapes
   (`--batches`) have patterns of their own; the arena keeps what it took for the largest.
4. A subgraph has a plan of its own and runs inside its node (`running`).
5. Several sessions may take one arena (`session.use_env_allocators`): all are made first, then each runs in
   turn.
6. With IO binding inputs are the caller's and not copied. Bound outputs are the caller's as well; one that is
   bound by its device alone is taken in the first run and stays, because later runs write into it again.
7. CUDA kernels run on one stream, and their requests are made for it; a session's, and the CPU provider's,
   for none.

Source: `core/framework/session_state_utils.cc`, `execution_frame.cc`, `utils.cc` (CopyInputsAcrossDevices),
`core/providers/cpu/controlflow`. Checked kernel by kernel on CPU and H200 (`tests/runtimes/onnxruntime`).
IO binding, run sequences, shared arenas: measured with onnxruntime 1.31 on the CPU provider
(`test_lives.py`). Not modelled: several streams, several runs at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from analyzer.allocators.onnxruntime_bfc import SESSION
from analyzer.devices import DeviceProfile
from analyzer.graph import Category
from analyzer.runtimes.events import Event
from analyzer.runtimes.onnxruntime.frame import Frame
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels import packing
from analyzer.runtimes.onnxruntime.kernels.scratch import KernelSettings
from analyzer.runtimes.onnxruntime.options import SessionOptions
from analyzer.runtimes.onnxruntime.recorder import FIRST_RUN, KernelTakes, Recording, SessionRecorder
from analyzer.runtimes.onnxruntime.rewrite.layout import NHWC
from analyzer.runtimes.onnxruntime.running import Patterns, Running

RUNS = (FIRST_RUN, 2)
_INLINE_BYTES = 127


def record(
    sessions: Frame | Sequence[Sequence[Frame]],
    options: SessionOptions,
    device: DeviceProfile,
    lane_count: int = 0,
    refused: frozenset[int] = frozenset(),
    takes: KernelTakes | None = None,
) -> Recording:
    """Record sessions on one arena: a first and a steady run, or one run per frame.

    lane_count: for how many sizes at once, where values' dimensions are `Lanes`. The requests are then the
    same in all of them but for their sizes: raises Apart where they are not, NotTogether where that cannot be
    worked out for all at once. refused: the keys of memory patterns' blocks that find no room; keys of
    earlier requests are the same without them. takes: kernels' scratch as far as it is known, which is added
    to.
    """
    settings = KernelSettings(options.provider, options.cudnn_conv_algo_search, device, options.threads)
    known: KernelTakes = {} if takes is None else takes
    recorder = SessionRecorder(settings, options, lane_count, refused, takes=known)
    if isinstance(sessions, Frame):
        sessions = [[sessions] * len(RUNS)]
    for frames in sessions:
        _load(recorder, frames[0])
    recorder.events.append(Event(SESSION))
    patterns: dict[int, Patterns] = {}
    for number in range(1, max(map(len, sessions)) + 1):
        for place, frames in enumerate(sessions):
            if number <= len(frames):
                frame = frames[number - 1]
                name = f"run {number}" + (f" of session {place + 1}" if place else "")
                patterns[id(frame)] = _run(recorder, frame, number, patterns.get(id(frame), {}), name)
    return Recording(
        tuple(recorder.events), tuple(recorder.kernels), recorder.unknown, recorder.contents, recorder.graphs
    )


def _load(recorder: SessionRecorder, frame: Frame) -> None:
    """Load initializers one by one, then the kernels' own weights, all outside any stream."""
    recorder.stream, recorder.graph = None, frame.graph
    keys: dict[str, int] = {}
    packed: set[tuple[str, str, int]] = set()
    for part in frame.walk():
        _initializers(recorder, part, keys)
    for part in frame.walk():
        _kept_weights(recorder, part.graph, keys, packed)


def _initializers(recorder: SessionRecorder, part: Frame, keys: dict[str, int]) -> None:
    """`keys`: where the requests of those on the device go, by their names."""
    graph, placements = part.graph, part.plan.placements
    names = [name for name in graph.initializers if name in placements]
    if recorder.settings.provider == "cpu":
        for name in names:
            nbytes = graph.values[name].nbytes
            if 0 < nbytes <= _INLINE_BYTES:
                recorder.take(nbytes, Category.PARAMETER, name, rule="ort-initializer", outside_pools=True)
        return
    outside = recorder.options.use_device_allocator_for_initializers
    for name in names:
        if not placements[name].on_host:
            nbytes = graph.values[name].nbytes
            keys[name] = recorder.take(
                nbytes, Category.PARAMETER, name, rule="ort-initializer", outside_pools=outside
            )


def _kept_weights(
    recorder: SessionRecorder, graph: RuntimeGraph, keys: dict[str, int], kept: set[tuple[str, str, int]]
) -> None:
    """Take weights as kernels rearrange them; equal ones are shared, also in subgraphs. kept: existing
    ones."""
    readers = Counter(name for node in graph.nodes.values() for name in set(node.inputs))
    for node in graph.nodes.values():
        # Beside the CUDA provider the CPU's kernels pack into an arena of their own.
        rearranged = packing.packed(node, graph) if recorder.settings.provider == "cpu" else []
        for name, buffers in groupby(rearranged, key=lambda buffer: buffer.name):
            same = (node.op, graph.origin(name), int(node.attributes.get("transB", 0)))
            given_back = []
            for buffer in buffers:
                key = recorder.take(
                    buffer.nbytes,
                    Category.WORKSPACE,
                    f"{node.name} packed weights",
                    node.index,
                    buffer.basis,
                    rule="ort-packed-weights",
                    outside_pools=buffer.outside_pools,
                )
                if buffer.kept and same not in kept:
                    kept.add(same)
                else:
                    given_back.append(key)
            for key in given_back:
                recorder.give(key)
        for nbytes in packing.cached(node, graph, recorder.settings.device):
            purpose, rule = packing.CACHED[node.operator]
            recorder.take(nbytes, Category.WORKSPACE, f"{node.name} {purpose}", node.index, rule=rule)
        _repack(recorder, node, graph, keys, readers)


def _repack(
    recorder: SessionRecorder, node: Node, graph: RuntimeGraph, keys: dict[str, int], readers: Counter[str]
) -> None:
    """Repack weights of channels-last convolutions; free what only they read. readers: how many nodes read
    each value."""
    if node.domain != NHWC or node.op not in ("Conv", "ConvTranspose") or node.inputs[1] not in keys:
        return
    name = node.inputs[1]
    recorder.take(
        graph.values[name].nbytes, Category.PARAMETER, f"{name} in NHWC", node.index, rule="ort-nhwc-weights"
    )
    if readers[name] == 1:
        recorder.give(keys.pop(name))


def _run(recorder: SessionRecorder, frame: Frame, number: int, patterns: Patterns, name: str) -> Patterns:
    """Follow one run with earlier patterns of its shapes; return the patterns for later runs."""
    feeds: list[int] = []
    recorder.graph = frame.graph
    if recorder.settings.provider == "cuda":
        recorder.stream = 0
    if recorder.settings.provider == "cuda" and recorder.options.io_binding == "none":
        for input_name in frame.graph.inputs:
            if not frame.plan.placements[input_name].on_host:
                feeds.append(
                    recorder.take(
                        frame.graph.values[input_name].nbytes, Category.INPUT, input_name, rule="ort-input"
                    )
                )
    running = Running(recorder, frame, number, patterns)
    after = running.execute()
    # The arena shrinks while the CPU's results are still there, which are the caller's own when a run ends;
    # the GPU's have been copied by then.
    shrinks_first = recorder.options.enable_memory_arena_shrinkage and recorder.options.provider == "cpu"
    late = running.results() if shrinks_first else ()
    for key in (*(key for key in running.held() if key not in late), *feeds):
        recorder.give(key)
    recorder.events.append(Event(name))
    for key in late:
        recorder.give(key)
    return after
