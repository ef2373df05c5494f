"""PaddlePaddle as a runtime: the captured program as a static graph, under its executor and one of its
allocators.

Rules: garbage collection by threshold and fraction, in-place operators, both allocation strategies, the
memory limit (document 003; `static_graph/executor.py`, `in_place.py`, `allocators/paddle.py` name the source
files). The notes of every estimate name the assumptions.

Source: document 003 and PaddlePaddle's source, by the files these modules name.

Recomputation: `--checkpoint PATTERN` recomputes the matching modules in the backward pass of the captured
program, which is what PaddlePaddle's `recompute` and RecomputeOptimizer do: the operators run again before
their gradients, and only a segment's inputs are kept. The executor then frees the recomputed tensors like
any others.

Not modelled: dygraph mode (it frees as PyTorch does), CINN and other fusions, several streams, the virtual
memory allocator (`FLAGS_use_virtual_memory_auto_growth`), NVML figures of PaddlePaddle's own modules.
"""

from __future__ import annotations

from typing import Any

from analyzer.allocators import Allocator, create
from analyzer.devices import DeviceProfile
from analyzer.graph import Operator
from analyzer.options import Options
from analyzer.runtimes.base import Capped, Prediction, Runtime, Source
from analyzer.runtimes.batches import Batches, OfGraph, ParametricCapture
from analyzer.runtimes.events import AllocationEvent
from analyzer.runtimes.pytorch.outside import device_used
from analyzer.runtimes.rules import Rule, concept
from analyzer.runtimes.timeline import simulate
from analyzer_plugins.paddle.flags import Flags, parse
from analyzer_plugins.paddle.in_place import operands
from analyzer_plugins.static_graph.executor import Collection, requests
from analyzer_plugins.static_graph.kernels import (
    convolution_workspace,
    gradients_of_sums,
    libraries,
)
from analyzer_plugins.static_graph.rules import rules
from analyzer_plugins.static_graph.variables import Dialect, variables

MIB = 2**20


class Paddle(Runtime):
    """Events of the static-graph executor, on the allocator `FLAGS_allocator_strategy` names."""

    name = "paddle"
    depends_on = ("paddle", "cuda", "cudnn")

    def profile(self, profile: DeviceProfile, options: Options, module: Any = None) -> DeviceProfile:
        del module
        parse(options.runtime_options)
        return self.with_releases(profile, options)

    def predict(self, source: Source, options: Options, profile: DeviceProfile) -> Prediction:
        flags = parse(options.runtime_options)
        of_sums = gradients_of_sums(source.graph, flags.garbage_threshold_bytes is not None)
        events = _events(source, flags, profile, of_sums)
        families = libraries(source.graph)
        beyond_bytes = device_used(0, families, profile)
        free_bytes = max(1, profile.usable_bytes - beyond_bytes)
        maker, out_of_memory = _allocator(flags, free_bytes), ""
        if flags.gpu_memory_limit_mb or flags.allocator_strategy == "naive_best_fit":
            failure = simulate(events, maker()).failure
            if failure is not None:
                out_of_memory = (
                    f"PaddlePaddle runs out of memory: {failure.message}; figures go on without the limit"
                )
                maker = _allocator(flags, free_bytes, unlimited=True)
        capped = None
        if flags.gpu_memory_limit_mb:
            capped = Capped(
                beyond_bytes + flags.gpu_memory_limit_mb * MIB,
                f"FLAGS_gpu_memory_limit_mb leaves the allocators {flags.gpu_memory_limit_mb:,} MiB",
            )
        notes = _notes(source, flags, of_sums)
        return Prediction(
            events=events,
            allocator=maker,
            device_used=lambda simulation: beyond_bytes + simulation.peak_reserved,
            libraries=families,
            notes=(out_of_memory, *notes) if out_of_memory else notes,
            capped=capped,
        )

    def over_batches(
        self, parametric: ParametricCapture, profile: DeviceProfile, options: Options
    ) -> Batches:
        return OfGraph(self, parametric, profile, options)

    def rules(self) -> tuple[Rule, ...]:
        return (
            *rules(),
            concept("paddle", "analyzer_plugins.paddle.runtime"),
            concept("paddle-flags", "analyzer_plugins.paddle.flags"),
            concept("paddle-in-place", "analyzer_plugins.paddle.in_place"),
        )


def _events(
    source: Source, flags: Flags, profile: DeviceProfile, of_sums: int
) -> tuple[AllocationEvent, ...]:
    in_place = flags.pir_apply_inplace_pass
    dialect = Dialect(reshape_shares=False, bias_apart=not in_place, fan_in_apart=True)

    def passed(operator: Operator) -> tuple[int, ...]:
        return operands(operator) if in_place else ()

    return requests(
        variables(source.graph, dialect),
        collection=Collection(flags.garbage_threshold_bytes, flags.memory_fraction_of_eager_deletion),
        in_place=passed,
        workspace=convolution_workspace(source.graph, profile, flags.conv_workspace_size_limit * MIB),
        backward_bound_bytes=of_sums,
    )


class _Maker:
    """Makes the flags' allocator on a card with this much free memory, or `unlimited`."""

    def __init__(self, name: str, **settings: Any) -> None:
        self._name, self._settings = name, settings

    def __call__(self) -> Allocator:
        return create(self._name, **self._settings)


def _allocator(flags: Flags, free_bytes: int, unlimited: bool = False) -> _Maker:
    limit_mb = 0 if unlimited else flags.gpu_memory_limit_mb
    if flags.allocator_strategy == "auto_growth":
        return _Maker(
            "paddle_auto_growth",
            auto_growth_chunk_size_in_mb=flags.auto_growth_chunk_size_in_mb,
            free_idle_chunk=flags.free_idle_chunk,
            free_when_no_cache_hit=flags.free_when_no_cache_hit,
            gpu_memory_limit_mb=limit_mb,
        )
    # PaddlePaddle asks the device how much is available, and answers itself what the limit leaves of it.
    limit_bytes = flags.gpu_memory_limit_mb * MIB or free_bytes
    return _Maker(
        "paddle_naive_best_fit",
        fraction_of_gpu_memory_to_use=flags.fraction_of_gpu_memory_to_use,
        initial_gpu_memory_in_mb=flags.initial_gpu_memory_in_mb,
        reallocate_gpu_memory_in_mb=flags.reallocate_gpu_memory_in_mb,
        gpu_memory_limit_mb=limit_mb,
        available_bytes=min(free_bytes, limit_bytes),
        overcommit=unlimited,
    )


def _notes(source: Source, flags: Flags, of_sums: int) -> tuple[str, ...]:
    """Return the assumptions behind the figures."""
    notes = [
        (
            "as a static graph of PaddlePaddle 3.3: the captured operators in their order, one stream;"
            " kernels' own scratch memory is not counted, but for convolutions"
        ),
        (
            "what nvidia-smi shows beside the allocator is measured for PyTorch's context and libraries, not"
            " PaddlePaddle's"
        ),
    ]
    if "cudnn" in libraries(source.graph):
        notes.insert(
            1,
            "convolutions take the cuDNN workspace PyTorch's would; PaddlePaddle may choose others, of up to "
            f"{flags.conv_workspace_size_limit:,} MiB (FLAGS_conv_workspace_size_limit)",
        )
    if of_sums:
        notes.append(
            "where two tensors are added, PaddlePaddle writes a gradient for each, PyTorch passes one on:"
            f" counted at most {of_sums / MIB:,.1f} MiB in the backward pass"
        )
    if flags.allocator_strategy == "naive_best_fit":
        notes.append(
            "the chunk is the fraction of the memory available, as the guide says; PaddlePaddle's source sets"
            " 5 % of it aside first (GpuAvailableMemToAlloc)"
        )
    if 0 < flags.memory_fraction_of_eager_deletion < 1:
        notes.append(
            "FLAGS_memory_fraction_of_eager_deletion counts under ParallelExecutor and CompiledProgram (up to"
            " PaddlePaddle 2); the executor of 3.x collects everything"
        )
    if not flags.fast_eager_deletion_mode:
        notes.append(
            "without FLAGS_fast_eager_deletion_mode memory goes back when the kernel has ended, which is not"
            " modelled: more may be held for a moment"
        )
    return tuple(notes)
