"""Starts vLLM's engine, as `vllm serve` would, and writes down what it accounts for: `python vllm_start.py
OUT MODEL [ARGUMENT ...]`, with vLLM's own arguments, in an environment that has vLLM, under the emulated
runtime.

OUT: a JSON file with "version", "torch", "settings", "notes", "ranks" (of this process: bytes by the name of
the term), "blocks", "block_tokens", "tokens", "concurrency", "length", and "error" where the engine ended in
one. Terms that a release of vLLM does not have are left out.

Weights are random (`--load-format dummy`) and nothing is tokenized, so a folder with a `config.json` is
enough; a model that sees images has its processor and tokenizer beside it. Each rank is a process that
`torchrun` could have started (`distributed_executor_backend` "external_launcher").

Source: vLLM 0.19, `v1/worker/gpu_worker.py` (`determine_available_memory`), `v1/worker/gpu_model_runner.py`
(`capture_model`), `v1/core/kv_cache_utils.py` (what it logs of the cache).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import logging
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

_TOKENS = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
_CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
# What stands beside the configuration of a model that sees images: transformers' way, Mistral's way.
_PROCESSORS = ("processor_config.json", "tekken.json")
_SETTINGS = {
    "cache_config": ("gpu_memory_utilization", "cache_dtype", "enable_prefix_caching"),
    "scheduler_config": ("max_num_batched_tokens", "max_num_seqs"),
    "parallel_config": ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
    "model_config": ("max_model_len", "dtype", "quantization", "enforce_eager"),
}


class ArgumentError(Exception):
    """An argument is not vLLM's."""


def refuse(message: str) -> NoReturn:
    """Raise what a parser of arguments finds wrong, without its usage of some hundred lines."""
    raise ArgumentError(message)


def message_of(error: BaseException) -> str:
    """Return what an error says; of a configuration's validation (pydantic) without its input and links."""
    parts = getattr(error, "errors", None)
    if type(error).__name__ != "ValidationError" or not callable(parts):
        return str(error)
    return "; ".join(str(part["msg"]).removeprefix("Value error, ") for part in parts())


class CacheSize(logging.Handler):
    """Reads what vLLM logs of the size of its cache."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, Any] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if match := _TOKENS.search(text):
            self.found["tokens"] = int(match[1].replace(",", ""))
        if match := _CONCURRENCY.search(text):
            self.found |= {"length": int(match[1].replace(",", "")), "concurrency": float(match[2])}


def watch(seen: dict[str, Any]) -> None:
    """Keep what the worker finds out, also where the engine ends in an error behind it."""
    from vllm.v1.worker.gpu_worker import Worker

    available = Worker.determine_available_memory

    @functools.wraps(available)
    def determine_available_memory(self: Any) -> int:
        left: int = available(self)
        terms = {
            "total": self.init_snapshot.total_memory,
            "free": self.init_snapshot.free_memory,
            "requested": self.requested_memory,
            "weights": self.model_runner.model_memory_usage,
            "activations": getattr(self, "peak_activation_memory", None),
            "outside": getattr(self, "non_torch_memory", None),
            "graphs_estimated": getattr(self, "cudagraph_memory_estimate", None),
            "cache": left,
        }
        seen["ranks"] = [{name: int(value) for name, value in terms.items() if value is not None}]
        watch_capture(self.model_runner, seen["ranks"][0])
        return left

    Worker.determine_available_memory = determine_available_memory


def watch_capture(runner: Any, rank: dict[str, int]) -> None:
    """Keep what the CUDA graphs of a model runner take, of whichever class it is (0.20 has two)."""
    capture = runner.capture_model

    def capture_model() -> int:
        taken: int = capture()
        rank["graphs"] = int(taken)
        if (nodes := graph_nodes()) is not None:
            rank["graph_nodes"] = nodes
        return taken

    runner.capture_model = capture_model


def graph_nodes() -> int | None:
    """Return how many nodes the CUDA graphs of this rank's device have; None: nobody counts them."""
    import torch

    runtime = ctypes.CDLL(None)
    if not hasattr(runtime, "emulated_graph_nodes"):
        return None
    runtime.emulated_graph_nodes.restype = ctypes.c_int64
    return int(runtime.emulated_graph_nodes(torch.cuda.current_device()))


def start(model: str, arguments: list[str], seen: dict[str, Any]) -> None:
    """The engine, until it could serve."""
    import torch
    import vllm
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm_answers import answer_all, notes

    seen |= {"version": vllm.__version__, "torch": torch.__version__, "notes": notes}
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser(prog="analyze serve --engine vllm --"))
    parser.error = refuse
    chosen = EngineArgs.from_cli_args(parser.parse_args(["--model", model, *arguments]))
    chosen.load_format, chosen.disable_log_stats = "dummy", True
    # Of the tokenizer only a model of several kinds of input needs something: what its processor asks for.
    chosen.skip_tokenizer_init = not any((Path(model) / name).exists() for name in _PROCESSORS)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        chosen.distributed_executor_backend = "external_launcher"
    answer_all()
    watch(seen)
    configs = watch_config(EngineArgs, seen)
    size = CacheSize()
    logging.getLogger("vllm").addHandler(size)
    try:
        engine = LLMEngine.from_engine_args(chosen, usage_context=UsageContext.OPENAI_API_SERVER)
    except torch.OutOfMemoryError:
        if not seen["ranks"] and configs:
            seen["needed"] = bytes_of_weights(configs[-1])
        raise
    finally:
        seen |= size.found
    config = engine.vllm_config
    cache = config.cache_config
    seen |= {"blocks": cache.num_gpu_blocks, "block_tokens": cache.block_size}
    if tokens := getattr(cache, "kv_cache_size_tokens", None):  # of releases that keep what others only log
        length, concurrency = config.model_config.max_model_len, cache.kv_cache_max_concurrency
        seen |= {"tokens": tokens, "length": length, "concurrency": round(concurrency, 2)}
    seen["settings"] = settings_of(config)


def settings_of(config: Any) -> dict[str, Any]:
    """Return the settings that decide memory, by name."""
    return {
        name: value if isinstance(value := getattr(part, name, None), (bool, int, float, str)) else str(value)
        for part, names in ((getattr(config, where), names) for where, names in _SETTINGS.items())
        for name in names
    }


def watch_config(arguments: Any, seen: dict[str, Any]) -> list[Any]:
    """Keep the engine's configuration, so that its settings are known if it does not start."""
    configs: list[Any] = []
    made = getattr(arguments, "create_engine_config", None)
    if made is None:
        return configs

    @functools.wraps(made)
    def create_engine_config(self: Any, *positional: Any, **named: Any) -> Any:
        configs.append(made(self, *positional, **named))
        seen["settings"] = settings_of(configs[-1])
        return configs[-1]

    arguments.create_engine_config = create_engine_config
    return configs


def bytes_of_weights(config: Any) -> int:
    """Return the bytes of this rank's weights, of a model that did not fit; 0: unknown."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    config.compilation_config.static_forward_context.clear()  # layers are known by their names, once
    try:
        with (
            set_current_vllm_config(config),
            set_default_torch_dtype(config.model_config.dtype),
            torch.device("meta"),
        ):
            model = initialize_model(vllm_config=config)
    except Exception as error:
        print(f"analyze serve: how much its weights take is not known: {error}", file=sys.stderr)
        return 0
    return sum(tensor.nbytes for tensor in {*model.parameters(), *model.buffers()})


def wait_for_others() -> None:
    """Wait until every rank has written its report, since all end with the first."""
    import torch.distributed as dist
    from vllm.distributed.parallel_state import get_world_group

    with contextlib.suppress(Exception):
        dist.barrier(group=get_world_group().cpu_group)


def main() -> None:
    """Exit code 0: it could serve; 1: it ended in an error, which OUT has."""
    out, model, *arguments = sys.argv[1:]
    is_rank = "RANK" in os.environ
    if is_rank:
        out = f"{out}.{os.environ['RANK']}"
    seen: dict[str, Any] = {"ranks": []}
    try:
        start(model, arguments, seen)
    except Exception as error:
        seen["error"] = {"kind": type(error).__name__, "message": message_of(error), "at": time.time()}
        raise
    finally:
        Path(out).write_text(json.dumps(seen), "utf-8")
    if is_rank:
        wait_for_others()


if __name__ == "__main__":
    main()
