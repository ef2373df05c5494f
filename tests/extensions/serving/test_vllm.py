"""`analyze serve --engine vllm`: what is read from the engine, here a package made for the test, and what is said of it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzer.cli import main
from analyzer.devices import load
from analyzer.errors import AnalyzerError, MissingDependencyError, OptionError, RunError
from analyzer.ranks import Rank
from analyzer.report import formats
from analyzer_emulation.emulate import Held
from analyzer_serving.engines import serving, vllm
from analyzer_serving.engines.changes import changes
from analyzer_serving.report import engine_json, engine_text
from analyzer_serving.results import EngineMemory, RankMemory
from tests import forked
from tests.paths import ROOT

GIB = 2**30
START = ROOT / "extensions/analyzer_serving/engines/inside/vllm_start.py"
H100 = load("h100")
CONFIG = ROOT / "benchmarks/subjects/serving/Llama-3.1-8B-Instruct"
# A Worker of an H100 at 0.95, as vLLM 0.19.0 logs it for Llama-3.1-8B (tests/data/serving): 476,016 tokens in blocks of 16.
WORKER = """
import logging, types
class Runner:
    model_memory_usage = 15 * 2**30
    def capture_model(self): return 2**29
class Worker:
    def __init__(self):
        self.model_runner, self.requested_memory = Runner(), 75 * 2**30
        self.init_snapshot = types.SimpleNamespace(total_memory=79 * 2**30, free_memory=78 * 2**30)
    def determine_available_memory(self):
        self.peak_activation_memory, self.non_torch_memory = 2 * 2**30, 2**28
        return self.requested_memory - 15 * 2**30 - 2 * 2**30 - 2**28
GPUModelRunner = Runner
"""
ENGINE = """
import logging, types
from vllm.v1.worker.gpu_worker import Worker
class LLMEngine:
    @classmethod
    def from_engine_args(cls, chosen, usage_context):
        assert chosen.load_format == "dummy" and chosen.skip_tokenizer_init and usage_context == "server"
        worker, self = Worker(), cls()
        worker.determine_available_memory()
        if chosen.max_model_len == 10**6:
            raise ValueError("no room: \\x1b[31m122 GiB\\x1b[0m are needed")
        logger = logging.getLogger("vllm.core")
        logger.warning("GPU KV cache size: %s tokens", "476,016")
        logger.warning("Maximum concurrency for %s tokens per request: %.2fx", "8,192", 58.11)
        worker.model_runner.capture_model()
        part = types.SimpleNamespace
        self.vllm_config = part(
            cache_config=part(num_gpu_blocks=29751, block_size=16, gpu_memory_utilization=0.95, cache_dtype="auto", enable_prefix_caching=True),
            scheduler_config=part(max_num_batched_tokens=8192, max_num_seqs=1024),
            parallel_config=part(tensor_parallel_size=1), model_config=part(max_model_len=8192, dtype="bfloat16"),
        )
        return self
"""
ARGUMENTS = """
import argparse, types
class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model"); parser.add_argument("--max-model-len", type=int, default=8192)
        return parser
    @staticmethod
    def from_cli_args(args): return types.SimpleNamespace(**vars(args))
"""
PACKAGE = {
    "__init__.py": "__version__ = '0.19.0'",
    "engine/arg_utils.py": ARGUMENTS,
    "usage/usage_lib.py": "class UsageContext: OPENAI_API_SERVER = 'server'",
    "utils/argparse_utils.py": "from argparse import ArgumentParser as FlexibleArgumentParser",
    "v1/engine/llm_engine.py": ENGINE,
    "v1/worker/gpu_worker.py": WORKER,
    "v1/worker/gpu_model_runner.py": "from vllm.v1.worker.gpu_worker import GPUModelRunner",
}


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with a package `vllm` in which nothing is but what is read."""
    folder = tmp_path / "packages"
    for name, text in PACKAGE.items():
        file = folder / "vllm" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def started(packages: Path, out: Path, *arguments: str, **variables: str) -> tuple[int, dict[str, Any]]:
    """As a script starts, whose folder is the first to be looked in; torch is imported already."""
    code = f"import runpy, sys\nsys.path.insert(0, {str(START.parent)!r})\nrunpy.run_path({str(START)!r}, run_name='__main__')"
    known = {"PYTHONPATH": str(packages), "PATH": "", **variables}
    done = forked.ran("-c", code, str(out), "model", *arguments, variables=known)
    written = next(iter(out.parent.glob(f"{out.name}*")), None)
    return done.returncode, json.loads(written.read_text()) if written else {}


def test_the_workers_terms_are_read(packages: Path, tmp_path: Path) -> None:
    code, seen = started(packages, tmp_path / "out.json")
    assert code == 0
    (rank,) = seen["ranks"]
    assert rank == {
        "total": 79 * GIB, "free": 78 * GIB, "requested": 75 * GIB, "weights": 15 * GIB, "activations": 2 * GIB,
        "outside": GIB // 4, "cache": 231 * GIB // 4, "graphs": GIB // 2,
    }  # fmt: skip
    assert (seen["version"], seen["blocks"], seen["block_tokens"]) == ("0.19.0", 29751, 16)
    assert (seen["tokens"], seen["length"], seen["concurrency"]) == (476016, 8192, 58.11)
    assert seen["settings"]["max_num_batched_tokens"] == 8192 and "error" not in seen


def test_a_release_that_keeps_its_capacity_is_asked_for_it(packages: Path, tmp_path: Path) -> None:
    """vLLM 0.33 keeps tokens and concurrency in its cache's configuration."""
    engine = packages / "vllm/v1/engine/llm_engine.py"
    kept = "num_gpu_blocks=29751, kv_cache_size_tokens=466272, kv_cache_max_concurrency=56.918"
    engine.write_text(engine.read_text().replace("num_gpu_blocks=29751", kept))
    code, seen = started(packages, tmp_path / "out.json")
    assert code == 0 and (seen["tokens"], seen["length"], seen["concurrency"]) == (466272, 8192, 56.92)


def test_what_the_engine_says_on_a_gpu_it_says_without_one() -> None:
    """Recorded starts of vLLM 0.22.1 on an H100 and here (`python -m benchmarks serving beside` of commit cf817472): of dense models all but what the graphs
    took at last, which is within 7 %, is the same to the byte; a model whose graphs fork has 0.21 % more tokens here."""
    on_gpu = json.loads((ROOT / "tests/data/h100/engines.json").read_text())
    here = json.loads((ROOT / "tests/data/serving/vllm_0.22.1.json").read_text())
    assert on_gpu.keys() == here.keys() and len(on_gpu) == 4
    for name, run in on_gpu.items():
        (measured,), (said,) = run["ranks"], here[name]["ranks"]
        for term in ("total", "free", "requested", "weights", "activations", "outside"):
            assert said[term] == measured[term], (name, term)
        if "MoE" in name:
            assert 0 < here[name]["tokens"] / run["tokens"] - 1 < 0.003
            continue
        assert here[name]["tokens"] == run["tokens"] and here[name]["blocks"] == run["blocks"]
        assert said["cache"] == measured["cache"] and said["graphs_estimated"] == measured["graphs_estimated"]
        assert 0.93 * measured["graphs"] < said["graphs"] < measured["graphs"]


def test_what_it_found_before_its_error_is_kept(packages: Path, tmp_path: Path) -> None:
    code, seen = started(packages, tmp_path / "out.json", "--max-model-len", "1000000", RANK="3")
    assert code == 1 and (tmp_path / "out.json.3").exists()
    assert (
        seen["error"]["kind"] == "ValueError"
        and seen["ranks"][0]["weights"] == 15 * GIB
        and "tokens" not in seen
    )


def test_what_is_no_argument_of_the_engines_is_said(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, seen = started(packages, tmp_path / "out.json", "--max-modell-len", "8192")
    assert code == 1 and seen["error"]["kind"] == "ArgumentError"
    monkeypatch.setattr(serving, "held", Ranks({"error": seen["error"]}, error=RunError("nothing", "")))
    with pytest.raises(OptionError, match="vLLM: unrecognized arguments: --max-modell-len 8192"):
        serving.engine_memory(vllm.VLLM, str(CONFIG), [], "h100", "python")


def test_a_configuration_that_is_refused_says_why_alone(packages: Path, tmp_path: Path) -> None:
    """pydantic's error has the whole input, and a link."""
    refusing = (
        "class ValidationError(ValueError):\n"
        "    def errors(self): return [{'msg': 'Value error, too long'}, {'msg': 'no such type'}]\n"
        "from vllm.v1.worker.gpu_worker import Worker\n"
        "class LLMEngine:\n"
        "    @classmethod\n"
        "    def from_engine_args(cls, *_, **__): raise ValidationError('2 validation errors, input_value=...')\n"
    )
    (packages / "vllm/v1/engine/llm_engine.py").write_text(refusing)
    code, seen = started(packages, tmp_path / "out.json")
    assert code == 1 and seen["error"]["message"] == "too long; no such type"


@pytest.mark.parametrize(
    ("arguments", "ranks"),
    [
        ([], 1),
        (["--tensor-parallel-size", "2"], 2),
        (["-tp", "4", "--pipeline_parallel_size=2"], 8),
        (["--max-num-seqs", "256"], 1),
    ],
)
def test_ranks_are_the_engines_own(arguments: list[str], ranks: int) -> None:
    job = vllm._job(arguments)
    assert job == (Rank(0, ranks, ranks, launched=True) if ranks > 1 else Rank())


def test_no_number_of_ranks() -> None:
    with pytest.raises(OptionError, match="not a number of ranks"):
        vllm._job(["-tp", "two"])


@pytest.mark.parametrize(
    "arguments", [["-dp", "2"], ["--data-parallel-size=2"], ["--data_parallel_size", "2"]]
)
def test_engines_beside_one_another_are_counted(arguments: list[str]) -> None:
    others = ["-tp", "2", "-cc.mode=3", "--hf-overrides", '{"a": "-dp=3"}']
    assert vllm._engines([*others, *arguments, "-pp=1"]) == (2, [*others, "-pp=1"])
    assert vllm._job(others, 2) == Rank(0, 4, 4, launched=True)


@pytest.mark.parametrize("name", ["--data-parallel-rank", "-dpr", "--data_parallel_hybrid_lb", "-dpl"])
def test_engines_on_several_machines_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name.replace('_', '-')}: engines on several machines"):
        vllm._engines(["-dp", "2", name, "1"])
    with pytest.raises(OptionError, match="--data-parallel-size 0: not a number"):
        vllm._engines(["-dp", "0"])


def test_what_has_experts() -> None:
    configs = ROOT / "benchmarks/subjects/serving"
    found = {place.name for place in configs.iterdir() if vllm._has_experts(str(place))}
    assert found == {
        "Qwen1.5-MoE-A2.7B",
        "Qwen3-30B-A3B-FP8",
        "Llama-4-Scout-17B-16E-Instruct",
        "gpt-oss-20b",
    }


@pytest.mark.parametrize(
    ("model", "ranks", "said"),
    [("Llama-3.1-8B-Instruct", 2, "share nothing"), ("Qwen1.5-MoE-A2.7B", 4, "share their experts")],
)
def test_engines_that_share_experts_start_together(
    monkeypatch: pytest.MonkeyPatch, model: str, ranks: int, said: str
) -> None:
    """Others share nothing, and one of them is started."""
    asked: dict[str, Any] = {}

    def ran(program: Any, _options: object, _python: object, _variables: object, job: Rank) -> Any:
        out, _, *asked["arguments"] = program.arguments
        asked["ranks"] = job.world_size
        for rank in range(job.world_size):
            memory = {"total": 80, "free": 79, "requested": 76, "weights": 20 + rank, "cache": 40}
            Path(f"{out}.{rank}").write_text(json.dumps({"ranks": [memory], "tokens": 64}))
        return Held(1, ())

    monkeypatch.setattr(serving, "held", ran)
    model = str(ROOT / "benchmarks/subjects/serving" / model)
    found = serving.engine_memory(vllm.VLLM, model, ["-dp", "2", "-tp", "2"], "h100", sys.executable)
    beside = ["--data-parallel-size", "2"] if ranks == 4 else []
    assert asked == {"arguments": ["-tp", "2", *beside], "ranks": ranks}
    assert len(found.ranks) == ranks and said in found.notes[0]
    text = engine_text(found)
    assert all(f"\n{rank}  " in text for rank in range(ranks)) and f"\n{ranks}  " not in text


def test_only_the_configuration_is_handed_on(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text((CONFIG / "config.json").read_text())
    for name in ("tokenizer.json", "model.safetensors", "modeling_own.py"):
        (model / name).write_text("{}")
    folder = serving._folder_of(str(model), tmp_path / "place")
    assert sorted(file.name for file in folder.iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]


def test_of_the_weights_only_their_headers_are_handed_on(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text((CONFIG / "config.json").read_text())
    header = b'{"a":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}}'
    length = len(header).to_bytes(8, "little")
    (model / "model.safetensors").write_bytes(length + header + b"data")
    folder = serving._folder_of(str(model), tmp_path / "place")
    assert (folder / "model.safetensors").read_bytes() == length + header


class Ranks:
    """In place of the processes: what each rank writes down, and how the job ends."""

    def __init__(self, *written: dict[str, Any], error: RunError | None = None) -> None:
        self.written, self.error = written, error
        self.variables: dict[str, str] = {}

    def __call__(self, program: Any, _options: Any, _python: Any, variables: Any, job: Rank) -> Any:
        self.variables = dict(variables)
        out, model = map(Path, program.arguments[:2])
        assert (model / "config.json").exists() and (program.packages[0] / "vllm_answers.py").exists()
        for rank, seen in enumerate(self.written):
            place = Path(f"{out}.{rank}") if job.launched else out
            place.write_text(json.dumps({"version": "0.19.0", "ranks": [], **seen}))
        if self.error is not None:
            raise self.error
        return Held(5, ("NCCL bounded",))


TERMS = {"total": 80 * GIB, "free": 79 * GIB, "requested": 76 * GIB, "weights": 15 * GIB}


def test_every_rank_is_read_and_the_smallest_cache_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(*({"ranks": [TERMS | {"cache": cache}], "tokens": 64} for cache in (4 * GIB, 3 * GIB)))
    monkeypatch.setattr(serving, "held", ranks)
    found = serving.engine_memory(vllm.VLLM, str(CONFIG), ["-tp", "2"], "h100", "python")
    assert [rank.cache for rank in found.ranks] == [4 * GIB, 3 * GIB]
    assert found.rank is not None and found.rank.cache == 3 * GIB
    assert found.notes == ("NCCL bounded",) and found.peak_reserved == 5 and found.changes


def test_the_first_error_is_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that ends takes the connection of the others with it."""
    lost = {"error": {"kind": "RuntimeError", "message": "connection closed by peer", "at": 2.0}}
    full = {
        "error": {"kind": "OutOfMemoryError", "message": "CUDA out of memory", "at": 1.0},
        "needed": 90 * GIB,
    }
    monkeypatch.setattr(serving, "held", Ranks(lost, full, error=RunError("rank 1 ended", "")))
    found = serving.engine_memory(vllm.VLLM, str(CONFIG), ["-tp", "2"], "h100", "python")
    assert found.error == ("OutOfMemoryError", "CUDA out of memory") and found.needed == 90 * GIB
    assert found.changes[0].startswith("the weights alone take 90.0 GiB") and not found.fits


def test_what_ended_without_an_error_of_the_engines_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "held", Ranks(error=RunError("it was ended by signal 9", "")))
    with pytest.raises(RunError, match="signal 9"):
        serving.engine_memory(vllm.VLLM, str(CONFIG), [], "h100", "python")


def test_the_users_caches_are_neither_read_nor_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU compiled before lies there; each start has a folder of its own, which goes with it."""
    ranks = Ranks({})
    monkeypatch.setattr(serving, "held", ranks)
    caches = (*serving._CACHES, *vllm.VLLM.caches)
    for name in caches:
        monkeypatch.setenv(name, str(Path.home() / ".cache"))
    serving.engine_memory(vllm.VLLM, str(CONFIG), [], "h100", "python")
    kept = {name: ranks.variables[name] for name in caches}
    assert {"VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE"} <= kept.keys()
    assert len(set(kept.values())) == 1
    assert "analyze-serve-" in kept["VLLM_CACHE_ROOT"] and not Path(kept["VLLM_CACHE_ROOT"]).exists()


def memory(**fields: Any) -> EngineMemory:
    rank = RankMemory(
        total=85017493504, free=84465090560, requested=80766618829, weights=16095641600, cache=62395539456,
        activations=2029382144, outside=246055629, graphs_estimated=536870912, graphs=644245094,
    )  # fmt: skip
    settings = {
        "gpu_memory_utilization": 0.95, "cache_dtype": "auto", "dtype": "torch.bfloat16", "quantization": "None",
        "max_num_seqs": 1024, "max_num_batched_tokens": 8192,
    }  # fmt: skip
    usual: dict[str, Any] = {
        "ranks": (rank,),
        "blocks": 29753,
        "block_tokens": 16,
        "tokens": 476048,
        "length": 8192,
        "concurrency": 58.11,
    }
    return EngineMemory(
        "llama", "h100", "", "vLLM 0.19.0", "2.10.0+cu128", settings=settings, **(usual | fields)
    )


def test_the_table_says_where_the_memory_goes() -> None:
    text = engine_text(memory())
    assert text.startswith(
        "room for 58.11 requests of 8,192 tokens at a time\n29,753 blocks of 16 tokens: 476,048 tokens\n"
    )
    for line in (
        "- model weights",
        "- peak activation",
        "- non-torch memory",
        "= KV cache",
        "CUDA graphs, as captured",
    ):
        assert line in text
    assert "0.95 of h100" in text and max(map(len, text.splitlines())) <= 80


def test_the_changes_are_worked_out_by_hand() -> None:
    """A token takes 62,395,539,456 / 476,048 = 131,070 bytes; 0.99 of the device is 84,167,318,569 bytes, 3,400,699,740 more. Half of
    the weights is 8,047,820,800 bytes; an H200 has 150,109,880,320 bytes."""
    said = changes(memory(), H100)
    assert said[:4] == (
        "--gpu-memory-utilization 0.99, all that is free at its start: 25,945 tokens more",
        "--kv-cache-dtype fp8: half as many bytes a token, some 952,096 tokens",
        "requests of 4,096 tokens: some 116.2 at a time",
        "--max-num-seqs below 1,024 and --max-num-batched-tokens below 8,192: less activation, 15,483 tokens more at most",
    )
    assert said[4] == "weights of 8 bits: some 61,401 tokens more"
    assert said[5].startswith("--tensor-parallel-size 2,") and said[5].endswith("up to 1,074,898 tokens")
    assert said[6].endswith("tokens") and "the next larger GPU" in said[6]


def test_quantized_weights_are_not_quantized_again() -> None:
    quantized = replace(
        memory(), settings={**memory().settings, "quantization": "gptq_marlin", "cache_dtype": "fp8"}
    )
    assert not any("8 bits" in change or "fp8" in change for change in changes(quantized, H100))


def test_what_does_not_start_says_why_and_what_would_help() -> None:
    short = RankMemory(
        total=85017493504, free=84465090560, requested=80766618829, weights=79 * GIB, cache=-4 * GIB
    )
    found = memory(
        ranks=(short,),
        tokens=0,
        blocks=0,
        concurrency=0.0,
        error=("ValueError", "No available\n memory \x1b[2J"),
    )
    found = replace(found, changes=changes(found, H100))
    text = engine_text(found)
    assert text.startswith("does not start: ValueError: No available memory") and "\x1b" not in text
    assert "4.0 GiB are missing before the first block" in text
    assert "--tensor-parallel-size 2: 39.5 GiB of weights less on each GPU" in text
    said = json.loads(engine_json(found))
    assert said["fits"] is False and said["error"] == ["ValueError", "No available\n memory \x1b[2J"]
    small = replace(found, ranks=(replace(short, cache=GIB // 2),))
    assert (
        changes(small, H100)[0]
        == "the cache has 512.0 MiB: a shorter --max-model-len, or --kv-cache-dtype fp8"
    )


TOO_LONG = (
    "To serve at least one request with the models's max seq len (131072), (16.0 GiB KV cache is needed, which is larger than the"
    " available KV cache memory (4.24 GiB). Based on the available memory, the estimated maximum model length is 34720. Try"
)


def test_graphs_of_another_driver_are_bounded() -> None:
    """31,110 nodes, each of at most 64 KiB x 1.1367 / 3.8086 = 19,559 bytes for 2,560."""
    (rank,) = memory().ranks
    assert rank.graphs_most is None
    found = memory(ranks=(replace(rank, graph_nodes=31110),))
    most = 644245094 + 31110 * (19559 - 2560)
    assert json.loads(engine_json(found))["ranks"][0]["graphs_most"] == most
    assert "up to 1.1 GiB for the same 31,110" in " ".join(engine_text(found).split())


def test_a_request_too_long_says_which_changes_would_do() -> None:
    """vLLM 0.19's own words for Llama-3.1-8B on an L4: 16.00 - 4.24 = 11.76 GiB are missing. Half as many bytes a token give 8.0, the
    rest of the GPU 2.0, weights of 8 bits 7.5, a second GPU 7.5 and half of a request's, 8.0."""
    rank = RankMemory(
        total=23659020288, free=23533191168, requested=21293118260, weights=16094142464, cache=4551240275, activations=521288704
    )  # fmt: skip
    found = memory(ranks=(rank,), tokens=0, blocks=0, concurrency=0.0, error=("ValueError", TOO_LONG))
    found = replace(found, device="l4", settings={**found.settings, "gpu_memory_utilization": 0.9})
    said = changes(found, load("l4"))
    assert said[:5] == (
        "11.8 GiB are missing: one request takes 16.0 GiB, the cache has 4.2 GiB",
        "--max-model-len 34720: the longest request that it holds, by the engine's own estimate",
        "--kv-cache-dtype fp8: 8.0 GiB a request, not enough alone",
        "--gpu-memory-utilization 0.99, all that is free at its start: 2.0 GiB more, not enough alone",
        "fewer --max-num-batched-tokens and --max-num-seqs: 497.1 MiB of activation at most, not enough alone",
    )
    assert said[5] == "weights of 8 bits: some 7.5 GiB, not enough alone"
    assert said[6] == "--tensor-parallel-size 2: 7.5 GiB of weights less on each GPU, enough"
    other = load(said[7].partition(",")[0])
    assert "next GPU that holds it" in said[7] and other.capacity_bytes > load("l4").capacity_bytes


def test_a_length_beyond_the_models_positions_is_said() -> None:
    message = "User-specified max_model_len (10000000) is greater than the derived max_model_len (max_position_embeddings=131072.0 or"
    found = memory(ranks=(), tokens=0, blocks=0, concurrency=0.0, error=("ValidationError", message))
    assert changes(found, H100)[0] == "--max-model-len 131072: all that the model has positions for"


def test_an_engine_without_room_behind_its_cache_is_not_told_how_to_get_more_tokens() -> None:
    found = memory(concurrency=0.0, error=("OutOfMemoryError", "CUDA out of memory"))
    found = replace(found, ranks=(replace(found.ranks[0], graphs=None),))
    said = changes(found, H100)
    assert said[0].startswith("a lower --gpu-memory-utilization than 0.95") and "--enforce-eager" in said[1]
    assert len(said) == 2


def test_weights_that_fit_without_their_profile_run() -> None:
    found = memory(
        ranks=(), tokens=0, blocks=0, concurrency=0.0, needed=70 * GIB, error=("OutOfMemoryError", "CUDA out of memory")
    )  # fmt: skip
    said = changes(found, H100)
    assert "no room for its profile run" in said[0] and "--max-num-batched-tokens" in said[1]


def test_weights_that_do_not_fit_say_how_many_gpus_hold_them() -> None:
    """Of 135.4 GiB 0.95 of an H100 holds 75.2: two hold 67.7 each, which is the most of 0.9 of that; 8 bits are 67.7."""
    found = memory(
        ranks=(),
        tokens=0,
        blocks=0,
        concurrency=0.0,
        needed=int(135.4 * GIB),
        error=("OutOfMemoryError", "CUDA out of memory"),
    )
    said = changes(found, H100)
    assert said[0] == "the weights alone take 135.4 GiB of a GPU that has 79.2 GiB"
    assert said[1] == "--tensor-parallel-size 4: 33.8 GiB of weights on each"
    assert said[2] == "weights of 4 bits: some 33.8 GiB" and said[3].startswith("b200: ")
    assert changes(replace(found, needed=0), H100) == (
        "it ended before its weights were loaded, so nothing of its memory is known",
    )
    on_two = replace(found, settings={**found.settings, "tensor_parallel_size": 2})
    assert changes(on_two, H100)[1] == "--tensor-parallel-size 8: 33.8 GiB of weights on each"


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_page_has_what_the_text_has(ranks: int) -> None:
    found = replace(
        memory(ranks=memory().ranks * ranks), name="<script>alert(1)</script>", device_note="a note"
    )
    found = replace(found, changes=changes(found, H100))
    page = formats.render("engine", "html", found)
    assert isinstance(page, str) and "<script>alert" not in page and "62,395,539,456" in page
    for words in (
        "peak activation",
        "Ways to gain room",
        "25,945 tokens more",
        "gpu_memory_utilization",
        "a note",
    ):
        assert words in page
    assert ("Each GPU" in page) is (ranks == 2)
    ended = replace(found, ranks=(), blocks=0, error=("ValueError", "no <b>room</b>"))
    said = formats.render("engine", "html", ended)
    assert isinstance(said, str) and "does not start: ValueError: no &lt;b&gt;room" in said


@pytest.mark.parametrize(("form", "said"), [("json", '"requests"'), ("html", "= cache"), ("text", "= cache")])
def test_the_arithmetic_has_every_form(form: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    terms = ["--weights", "15GiB", "--activations", "2GiB", "--outside", "256MiB"]
    assert main(["serve", str(CONFIG), *terms, "--device", "h100", "--length", "8192", "--format", form]) == 0
    assert said in capsys.readouterr().out


def test_without_the_engine_its_arithmetic_is_done_and_said_to_be(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving.reach, "places", lambda package, near: iter(()))
    terms = ["--weights", "15GiB", "--activations", "1GiB", "--outside", "1GiB", "--graphs", "0GiB"]
    assert main(["serve", str(CONFIG), "--engine", "vllm", "--device", "h100", "--length", "8192"]) in (0, 1)
    said = capsys.readouterr()
    assert "analyze engine install vllm==" in said.err and "Llama-3.1-8B-Instruct · vLLM" in said.out
    assert main(["serve", str(CONFIG), *terms, "--engine", "vllm"]) in (0, 1, 2)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--", "--max-num-seqs", "8"], "is an argument of an engine"),
        (["--engine", "vllm", "--python", sys.executable, "--weights", "1GiB"], "is of the arithmetic"),
    ],
)
def test_what_belongs_to_the_other_engine_is_said(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(CONFIG), *words]) == 2
    assert complaint in capsys.readouterr().err


def test_a_python_without_it_is_said() -> None:
    with pytest.raises(MissingDependencyError, match="has no vLLM"):
        serving.python_with(vllm.VLLM, sys.executable)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_fifo_beside_a_configuration_is_not_opened(tmp_path: Path, name: str) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "llama"}')
    os.mkfifo(model / name)
    with pytest.raises(AnalyzerError, match="it is a FIFO"):
        serving._folder_of(str(model), tmp_path / "place")
