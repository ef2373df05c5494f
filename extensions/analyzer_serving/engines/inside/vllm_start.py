"""Starts vLLM's engine, as `vllm serve` would, and writes down what it accounts for: `python vllm_start.py
OUT MODEL [ARGUMENT ...]`, with vLLM's own arguments, in an environment that has vLLM, under the emulated
runtime.

OUT: the report (`engine_starting.py`).

Weights are random (`--load-format dummy`) and nothing is tokenized, so a folder with a `config.json` is
enough; a model that sees images has its processor and tokenizer beside it. Each rank is a process that
`torchrun` could have started (`distributed_executor_backend` "external_launcher").

Source: vLLM 0.19, `v1/worker/gpu_worker.py` (`determine_available_memory`), `v1/worker/gpu_model_runner.py`
(`capture_model`), `v1/core/kv_cache_utils.py` (what it logs of the cache).
"""

from __future__ import annotations

import functools
import logging
import os
import re
from pathlib import Path
from typing import Any

from engine_answers import notes
from engine_starting import graph_nodes, refuse, report, settings_of, weights_of

_TOKENS = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
_CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
# Files beside the configuration of a model with image inputs: transformers' and Mistral's.
_PROCESSORS = ("processor_config.json", "tekken.json")
_SETTINGS = {
    "cache_config": ("gpu_memory_utilization", "cache_dtype", "enable_prefix_caching"),
    "scheduler_config": ("max_num_batched_tokens", "max_num_seqs"),
    "parallel_config": ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
    "model_config": ("max_model_len", "dtype", "quantization", "enforce_eager"),
}


class CacheSize(logging.Handler):
    """Reads what vLLM logs of the size of its cache."""

    def __init__(self) -> None:
        super().__init__()
        self.figures: dict[str, Any] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if match := _TOKENS.search(text):
            self.figures["tokens"] = int(match[1].replace(",", ""))
        if match := _CONCURRENCY.search(text):
            self.figures |= {"length": int(match[1].replace(",", "")), "concurrency": float(match[2])}


def watch(result: dict[str, Any]) -> None:
    """Keep the worker's figures, also where the engine ends in an error afterwards."""
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
        result["ranks"] = [{name: int(value) for name, value in terms.items() if value is not None}]
        watch_capture(self.model_runner, result["ranks"][0])
        return left

    Worker.determine_available_memory = determine_available_memory


def watch_capture(runner: Any, rank: dict[str, int]) -> None:
    """Keep what the CUDA graphs of a model runner take, of whichever class it is (0.20 has two)."""
    capture = runner.capture_model

    def capture_model() -> int:
        nbytes: int = capture()
        rank["graphs"] = int(nbytes)
        if (nodes := graph_nodes()) is not None:
            rank["graph_nodes"] = nodes
        return nbytes

    runner.capture_model = capture_model


def start(model: str, arguments: list[str], result: dict[str, Any]) -> None:
    """The engine, until it could serve."""
    import torch
    import vllm
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm_answers import answer_all

    result |= {"version": vllm.__version__, "torch": torch.__version__, "notes": notes}
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser(prog="analyze serve --engine vllm --"))
    parser.error = refuse
    chosen = EngineArgs.from_cli_args(parser.parse_args(["--model", model, *arguments]))
    chosen.load_format, chosen.disable_log_stats = "dummy", True
    # Only a model of several kinds of input needs the tokenizer, for its processor.
    chosen.skip_tokenizer_init = not any((Path(model) / name).exists() for name in _PROCESSORS)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        chosen.distributed_executor_backend = "external_launcher"
    answer_all()
    watch(result)
    configs = watch_config(EngineArgs, result)
    size = CacheSize()
    logging.getLogger("vllm").addHandler(size)
    try:
        engine = LLMEngine.from_engine_args(chosen, usage_context=UsageContext.OPENAI_API_SERVER)
    except torch.OutOfMemoryError:
        if not result["ranks"] and configs:
            result["needed"] = bytes_of_weights(configs[-1])
        raise
    finally:
        result |= size.figures
    config = engine.vllm_config
    cache = config.cache_config
    result |= {"blocks": cache.num_gpu_blocks, "block_tokens": cache.block_size}
    # Releases without these fields only log them (`CacheSize`).
    if tokens := getattr(cache, "kv_cache_size_tokens", None):
        length, concurrency = config.model_config.max_model_len, cache.kv_cache_max_concurrency
        result |= {"tokens": tokens, "length": length, "concurrency": round(concurrency, 2)}
    result["settings"] = settings(config)


def settings(config: Any) -> dict[str, Any]:
    """Return the settings that decide memory, by name."""
    parts = ((getattr(config, where), names) for where, names in _SETTINGS.items())
    named = {name: getattr(part, name, None) for part, names in parts for name in names}
    return dict(settings_of(named))


def watch_config(arguments: Any, result: dict[str, Any]) -> list[Any]:
    """Keep the engine's configuration, so that its settings are known if it does not start."""
    configs: list[Any] = []
    create_config = getattr(arguments, "create_engine_config", None)
    if create_config is None:
        return configs

    @functools.wraps(create_config)
    def create_engine_config(self: Any, *positional: Any, **named: Any) -> Any:
        configs.append(create_config(self, *positional, **named))
        result["settings"] = settings(configs[-1])
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

    def without_memory() -> Any:
        with (
            set_current_vllm_config(config),
            set_default_torch_dtype(config.model_config.dtype),
            torch.device("meta"),
        ):
            return initialize_model(vllm_config=config)

    return int(weights_of(without_memory))


def world() -> Any:
    """Return vLLM's group of all ranks."""
    from vllm.distributed.parallel_state import get_world_group

    return get_world_group()


if __name__ == "__main__":
    report(start, world)
