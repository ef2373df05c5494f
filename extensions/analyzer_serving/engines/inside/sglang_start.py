"""Starts SGLang's scheduler, as `sglang serve` would, and writes down what it accounts for: `python
sglang_start.py OUT MODEL [ARGUMENT ...]`, with SGLang's own arguments, in an environment that has SGLang,
under the emulated runtime.

OUT: the report (`engine_starting.py`).

1. SGLang launches its processes itself; that of this rank (`run_scheduler_process`) runs in this one, until
   its scheduler is ready: weights, pools, CUDA graphs. Weights are random (`--load-format dummy`) and nothing
   is tokenized, so a folder with a `config.json` is enough.
2. SGLang logs the GPU's free memory at each step of its start. Where it does, the bytes that are free are
   read here as well: its own figures, which it rounds to two digits.

Source: SGLang 0.5.14, `srt/managers/scheduler.py`, `srt/entrypoints/engine.py` (`_launch_subprocesses`),
`srt/model_executor/model_runner.py` (`load_model`, `init_decode_cuda_graph`),
`srt/model_executor/model_runner_kv_cache_mixin.py` (`_profile_available_bytes`: of what was free before the
model, `mem_fraction_static` less what has been taken is the cache's; nothing is profiled). From 0.5.20 on
settings are resolved behind the command line (`resolved_dict`).
"""

from __future__ import annotations

import argparse
import functools
import logging
import os
import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine_answers import note, notes
from engine_starting import graph_nodes, refuse, report, settings_of, weights_of

# SGLang's log lines after each step.
_LOADS, _LOADED = "Load weight begin", "Load weight end"
_POOLS = "Memory pool end"
_CAPTURE = re.compile(r"Capture .*graph (begin|end)", re.IGNORECASE)
# Files beside the configuration of a model with image inputs.
_PROCESSORS = ("processor_config.json", "preprocessor_config.json")
_SETTINGS = (
    *("mem_fraction_static", "kv_cache_dtype", "page_size", "disable_radix_cache", "context_length"),
    *("max_running_requests", "chunked_prefill_size", "max_prefill_tokens", "attention_backend"),
    *("tp_size", "pp_size", "dp_size", "ep_size", "dtype", "quantization"),
)


class Ready(BaseException):
    """The scheduler could serve. No `Exception`: SGLang ends its parent where one reaches it."""


class Ended(BaseException):
    """The scheduler ended in an error, its cause."""


class Steps(logging.Handler):
    """Reads the GPU's free memory where SGLang logs it. rank: terms of this rank, in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.rank: dict[str, int] = {}
        self._begun = self._captured = 0

    def emit(self, record: logging.LogRecord) -> None:
        text, rank = record.getMessage(), self.rank
        if text.startswith(_LOADS):
            self._begun, total = free_bytes()
            rank.setdefault("free", self._begun)
            rank.setdefault("total", total)
        elif text.startswith(_LOADED):
            rank["weights"] = rank.get("weights", 0) + self._begun - free_bytes()[0]
        elif text.startswith(_POOLS):
            rank["pools"] = rank["free"] - rank["weights"] - free_bytes()[0]
        elif match := _CAPTURE.match(text):
            self._capture(match[1].lower() == "begin")

    def _capture(self, begins: bool) -> None:
        free = free_bytes()[0]
        if begins:
            self._captured = free
            return
        self.rank["graphs"] = self.rank.get("graphs", 0) + self._captured - free
        if (nodes := graph_nodes()) is not None:
            self.rank["graph_nodes"] = nodes


class Processes:
    """`multiprocessing`, whose process of this rank is this one; those of others are started elsewhere."""

    def __init__(self, module: Any, rank: int) -> None:
        self._module, self._rank, self._made = module, rank, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def Process(self, target: Callable[..., Any], args: tuple[Any, ...] = ()) -> Any:
        """A process by its rank: those of a server are made in that order."""
        mine, self._made = self._made == self._rank, self._made + 1
        return types.SimpleNamespace(start=(lambda: target(*args)) if mine else (lambda: None), pid=None)


def free_bytes() -> tuple[int, int]:
    """Return the free and all bytes of this process's GPU."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return free, total


def parsed(arguments: list[str]) -> Any:
    """Return SGLang's settings of its own arguments. Raises ArgumentError."""
    from sglang.srt.server_args import prepare_server_args

    complain = argparse.ArgumentParser.error
    parser: Any = argparse.ArgumentParser
    parser.error = lambda _, message: refuse(message)
    try:
        return prepare_server_args(arguments)
    finally:
        parser.error = complain


def start(model: str, arguments: list[str], result: dict[str, Any]) -> None:
    """The scheduler of this rank, until it could serve."""
    import sglang
    import torch
    from sglang_answers import answer_all

    result |= {"version": sglang.__version__, "torch": torch.__version__, "notes": notes}
    answer_all()
    chosen = ["--model-path", model, *arguments, "--load-format", "dummy"]
    if not any((Path(model) / name).exists() for name in _PROCESSORS):
        chosen.append("--skip-tokenizer-init")
    if port := os.environ.get("MASTER_PORT"):
        chosen += ["--nccl-port", port]
    args = parsed(chosen)
    runners = watch_runners()
    steps = Steps()
    logger = logging.getLogger("sglang")
    logger.setLevel(logging.INFO)
    logger.addHandler(steps)
    try:
        run_scheduler(args)
        steps.rank["left"] = free_bytes()[0]
    except torch.OutOfMemoryError:
        if "weights" not in steps.rank and runners:
            result["needed"] = bytes_of_weights(runners[0])
        raise
    finally:
        result["settings"] = settings(args, runners)
        if "weights" in steps.rank:
            result["ranks"] = [terms(steps.rank, runners, result["settings"]["mem_fraction_static"])]
    tokens, length = runners[0].max_total_num_tokens, runners[0].model_config.context_len
    page = result["settings"]["page_size"]
    result |= {"tokens": tokens, "length": length, "concurrency": round(tokens / length, 2)}
    result |= {"block_tokens": page, "blocks": tokens // page}


def settings(args: Any, runners: list[Any]) -> dict[str, Any]:
    """Return the settings that decide memory, by name, as SGLang resolved them."""
    resolved = args.resolved_dict() if hasattr(args, "resolved_dict") else vars(args)  # of 0.5.20 on
    named = {name: resolved.get(name) for name in _SETTINGS}
    if runners:
        model = runners[0].model_config
        named |= {"dtype": model.dtype, "quantization": model.quantization}
        if "fp8" in str(model.quantization):
            note("DeepGEMM's kernels are compiled where a GPU is: products of 8 bits are Triton's here")
        named["max_running_requests"] = getattr(runners[0], "max_running_requests", None)
    return dict(settings_of(named))


def terms(rank: dict[str, int], runners: list[Any], share: float) -> dict[str, int]:
    """Return a rank's terms: its share of the free memory, and its pools' keys and values apart from their
    other contents."""
    requested = int(rank["free"] * share)
    if "pools" not in rank:
        return {**rank, "requested": requested, "cache": requested - rank["weights"]}
    cache = sum(map(cache_bytes, runners))
    return {**rank, "requested": requested, "cache": cache, "pools": rank["pools"] - cache}


def watch_runners() -> list[Any]:
    """Keep each model's runner: more than one where tokens are drafted."""
    from sglang.srt.model_executor.model_runner import ModelRunner

    runners: list[Any] = []
    load = ModelRunner.load_model

    @functools.wraps(load)
    def load_model(self: Any, *arguments: Any, **named: Any) -> Any:
        runners.append(self)
        return load(self, *arguments, **named)

    ModelRunner.load_model = load_model
    return runners


def cache_bytes(runner: Any) -> int:
    """Return the bytes of a runner's keys and values."""
    sizes = runner.token_to_kv_pool.get_kv_size_bytes()
    return int(sum(sizes) if isinstance(sizes, tuple) else sizes)


def run_scheduler(args: Any) -> None:
    """Launch the processes of a server, of which this one is this rank's, until its scheduler is ready.
    Raises what its scheduler raises."""
    from sglang.srt.entrypoints import engine
    from sglang.srt.managers import scheduler

    scheduler.Scheduler = until_ready(scheduler.Scheduler)
    engine.mp = Processes(engine.mp, int(os.environ.get("RANK", "0")))
    launch = getattr(engine.Engine, "_launch_subprocesses", None) or engine._launch_subprocesses
    try:
        launch(
            server_args=args,
            init_tokenizer_manager_func=None,
            run_scheduler_process_func=engine.run_scheduler_process,
            run_detokenizer_process_func=None,
        )
    except Ready:
        return
    except Ended as ended:
        assert ended.__cause__ is not None
        raise ended.__cause__ from None


def until_ready(scheduler: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes a scheduler and then serves nothing."""

    def made(*arguments: Any, **named: Any) -> Any:
        try:
            scheduler(*arguments, **named)
        except Exception as error:
            raise Ended from error
        raise Ready

    return made


def bytes_of_weights(runner: Any) -> int:
    """Return the bytes of this rank's weights, of a model that did not fit; 0: unknown."""
    import torch

    def without_memory() -> Any:
        from sglang.srt.configs.load_config import LoadConfig
        from sglang.srt.model_loader.loader import _initialize_model
        from sglang.srt.model_loader.utils import set_default_torch_dtype

        with set_default_torch_dtype(runner.model_config.dtype), torch.device("meta"):
            return _initialize_model(runner.model_config, LoadConfig(load_format="dummy"))

    return int(weights_of(without_memory))


def world() -> Any:
    """Return SGLang's group of all ranks."""
    from sglang.srt.distributed.parallel_state import get_world_group

    return get_world_group()


if __name__ == "__main__":
    report(start, world)
