"""The device work of one step, in order, for `analyzer_timing/`: operators, kernels that Inductor compiled,
and CUDA graphs.

1. A step ends where the program's first optimizer has stepped; without an optimizer, where a compiled module
   is called again. The last whole one is kept.
2. A kernel of Inductor's is what `CachingAutotuner.run` is called for, with its arguments and its source, in
   which every load and store names its argument (`torch/_inductor/runtime/triton_heuristics.py`).
3. Work captured into a CUDA graph is repeated at each replay.

Not recorded: views, kernels that a program launches by itself, streams.
"""

from __future__ import annotations

import re
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_KERNELS, _GRAPHS, _MODULES = (
    "torch._inductor.runtime.triton_heuristics",
    "torch._inductor.output_code",
    "torch._dynamo.eval_frame",
)
_ACCESS = re.compile(r"tl\.(load|store|atomic_\w+)\((\w+) \+ (\(.*?\)|\w+)[,)]")
_VALUE = re.compile(r"(?<=tmp)\d+")
_SIZES = re.compile(r"[xyz]numel|r\d?_?numel")
_CONVOLUTIONS, _PRODUCTS = ("convolution", "conv_tr"), ("mm", "addmv", "mv", "dot")


def _described(value: Any) -> Any:
    """Return an argument as JSON holds it: a tensor of the device by its storage's address, size and place in
    it."""
    if isinstance(value, torch.Tensor):
        if type(value).__name__ == "FakeTensor" or value.layout != torch.strided or value.is_nested:
            return None
        storage = value.untyped_storage()
        where = storage.data_ptr() if value.is_cuda else 0
        return {
            "at": where,
            "bytes": storage.nbytes(),
            "type": str(value.dtype)[6:],
            "shape": list(value.shape),
            "stride": list(value.stride()),
            "offset": value.storage_offset(),
        }
    if isinstance(value, (list, tuple)):
        return [_described(part) for part in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _on_device(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.is_cuda
    return isinstance(value, (list, tuple)) and any(_on_device(part) for part in value)


def _accesses(source: str) -> dict[str, list[int]]:
    """Return how many different places a kernel reads of each argument, and how many it writes."""
    places: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for what, argument, place in _ACCESS.findall(source):
        places[argument][what != "load"].add(_VALUE.sub("", place))  # a loop may read what another has read
    return {name: [len(reads), len(writes)] for name, (reads, writes) in places.items()}


class StepLaunches:
    """Collects the launches of the step under way; `last`: those of the last whole one."""

    def __init__(self, place: Callable[[], tuple[str, str, str]]) -> None:
        """place: what tells the line, module and phase."""
        self.last: list[dict[str, Any]] = []
        self._place = place
        self._now: list[dict[str, Any]] = []
        self._steps = self._compiled = False
        self._first: Any = None
        self._depth = threading.local()
        self._graph: list[dict[str, Any]] | None = None
        self._aside_launches: list[dict[str, Any]] | None = None
        self._graphs = weakref.WeakKeyDictionary[Any, list[dict[str, Any]]]()
        self._kernels: dict[int, dict[str, Any]] = {}
        self._names: dict[Any, tuple[str, tuple[str, ...], tuple[int, ...]]] = {}
        self._watched: set[str] = set()
        self._watch_graphs()

    # -- what is seen

    @contextmanager
    def aside(self) -> Iterator[list[dict[str, Any]]]:
        """While open, what runs is no part of a step: it is collected here."""
        before, self._aside_launches = self._aside_launches, []
        try:
            yield self._aside_launches
        finally:
            self._aside_launches = before

    def operator(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Log an operator that has run."""
        if self._aside_launches is None and not self._compiled and _KERNELS not in sys.modules:
            return  # there is nothing compiled so far
        self._watch()
        if not (_on_device(args) or _on_device(tuple(kwargs.values())) or _on_device(result)):
            return
        operator_name = self._names.get(func)
        if operator_name is None:
            schema = func._schema
            aliases = [argument.alias_info for argument in schema.arguments]
            writes = tuple(i for i, a in enumerate(aliases) if a is not None and a.is_write)
            name = f"{schema.name}.{schema.overload_name or 'default'}"
            operator_name = self._names[func] = (name, tuple(a.name for a in schema.arguments), writes)
        name, names, writes = operator_name
        entry = {
            "name": name,
            "names": names,
            "arguments": _described(args),
            "writes": writes,
            "keywords": {key: _described(value) for key, value in kwargs.items()},
            "results": _described(list(result) if isinstance(result, (list, tuple)) else [result]),
            "settings": self._settings(name),
        }
        self._add(entry)

    def _settings(self, name: str) -> list[str]:
        settings = ["compiled"] if getattr(self._depth, "place", None) else []
        plain = name.partition("::")[2].partition(".")[0]
        if any(word in plain for word in _CONVOLUTIONS):
            return settings if torch.backends.cudnn.allow_tf32 else [*settings, "no_tf32"]
        if plain.endswith(_PRODUCTS) and torch.backends.cuda.matmul.allow_tf32:
            settings.append("tf32")
        return settings

    def _kernel(self, autotuner: Any, args: tuple[Any, ...]) -> None:
        """Log a kernel of Inductor's that was launched."""
        kernel = self._kernels.get(id(autotuner))
        if kernel is None:
            names = [n for n in autotuner.fn.arg_names if n in autotuner.triton_meta["signature"]]
            kernel = {
                "kernel": autotuner.inductor_meta.get("kernel_name", autotuner.fn.__name__),
                "kind": str(getattr(autotuner.heuristic_type, "name", "")).lower(),
                "hint": str(getattr(autotuner.inductor_meta.get("reduction_hint"), "name", "")),
                "names": names,
                "accesses": _accesses(str(autotuner.fn.src)),
                "held": autotuner,
            }
            self._kernels[id(autotuner)] = kernel
        sizes = {n: v for n, v in zip(kernel["names"], args, strict=False) if _SIZES.fullmatch(n)}
        pairs = [
            (kernel["accesses"].get(n, [0, 0]), _described(v))
            for n, v in zip(kernel["names"], args, strict=False)
            if isinstance(v, torch.Tensor)
        ]
        described = {key: kernel[key] for key in ("kernel", "kind", "hint")}
        self._add(described | {"sizes": sizes, "tensors": pairs})

    def _add(self, entry: dict[str, Any]) -> None:
        if self._aside_launches is not None:
            self._aside_launches.append(entry | {"place": ("", "", "forward")})
            return
        place = getattr(self._depth, "place", None)  # of the compiled graph that runs
        if place is None:
            with torch.no_grad():  # no node of autograd's has been made just before
                place = self._place()
        entry |= {"place": place}
        (self._now if self._graph is None else self._graph).append(entry)

    # -- where a step ends

    def stepped(self, optimizer: Any) -> None:
        """Log the end of an optimizer's step."""
        if self._first is None or self._first() is None:
            self._first = weakref.ref(optimizer)
        if self._first() is optimizer:
            self._steps = True
            self._over()

    def _called(self) -> None:
        if not self._steps:
            self._over()

    def _over(self) -> None:
        if any("kernel" in entry or "graph" in entry for entry in self._now):
            self.last = self._now
        self._now = []

    # -- where all that is seen

    def _watch(self) -> None:
        """Follow what PyTorch has imported of its compiler by now."""
        watches = (
            (_KERNELS, self._watch_kernels),
            (_GRAPHS, self._watch_calls),
            (_MODULES, self._watch_modules),
        )
        for name, watch in watches:
            if name not in self._watched and name in sys.modules:
                self._watched.add(name)
                self._compiled = True
                watch(sys.modules[name])

    def _watch_kernels(self, module: Any) -> None:
        """Log each Triton kernel that `CachingAutotuner` launches."""
        autotuner = getattr(module, "CachingAutotuner", None)
        if autotuner is None:
            return
        run, kernel = autotuner.run, self._kernel

        def launched(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = run(self, *args, **kwargs)
            kernel(self, args)
            return result

        autotuner.run = launched

    def _watch_calls(self, module: Any) -> None:
        """Log each call of a compiled graph; kernels within it bear its place."""
        compiled = getattr(module, "CompiledFxGraph", None)
        if compiled is None:
            return
        call, depth, add = compiled.__call__, self._depth, self._add

        def called(self: Any, inputs: Any) -> Any:
            entry: dict[str, Any] = {"call": len(inputs)}
            add(entry)
            before, depth.place = getattr(depth, "place", None), entry["place"]
            try:
                result = call(self, inputs)
            finally:
                depth.place = before
            entry["results"] = len(result) if isinstance(result, (list, tuple)) else 1
            return result

        compiled.__call__ = called

    def _watch_modules(self, module: Any) -> None:
        optimized, over = module.OptimizedModule, self._called
        call = optimized.__call__

        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            over()
            return call(self, *args, **kwargs)

        optimized.__call__ = called

    def _watch_graphs(self) -> None:
        """Log a CUDA graph's launches where it is captured, and again at every replay."""
        graph: Any = torch.cuda.CUDAGraph
        begin, end, replay, launches = graph.capture_begin, graph.capture_end, graph.replay, self

        def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
            launches._graph, launches._compiled = [], True
            return begin(self, *args, **kwargs)

        def capture_end(self: Any) -> Any:
            if launches._graph is not None:
                launches._graphs[self] = [e for e in launches._graph if "call" not in e]
            launches._graph = None
            return end(self)

        def replayed(self: Any) -> Any:
            launches._add({"graph": launches._graphs.get(self, [])})
            return replay(self)

        graph.capture_begin, graph.capture_end, graph.replay = capture_begin, capture_end, replayed
