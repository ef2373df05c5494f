"""`analyze serve --engine sglang`: what is read from the engine, here a package made for the test, and what is said of it."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analyzer.cli import main
from analyzer.devices import load
from analyzer.errors import OptionError
from analyzer.ranks import Rank
from analyzer_emulation.emulate import Held
from analyzer_serving.engines import serving, sglang
from analyzer_serving.engines.changes import SGLANG as WORDS
from analyzer_serving.engines.changes import changes
from analyzer_serving.page import engine as engine_page
from analyzer_serving.report import engine_json, engine_text
from analyzer_serving.results import EngineMemory, RankMemory
from tests.extensions.serving.insides import INSIDE, inside, placed
from tests.paths import ROOT

GIB = 2**30
START = INSIDE / "sglang_start.py"
H100 = load("h100")
CONFIG = ROOT / "benchmarks/subjects/serving/Llama-3.1-8B-Instruct"
FOUND = ROOT / "tests/data/serving/sglang.json"
# A GPU of 80 GiB whose free memory is what the engine leaves of it.
TORCH = """
__version__ = "2.11.0"
class OutOfMemoryError(RuntimeError): pass
class cuda:
    free = 79 * 2**30
    current_device = staticmethod(lambda: 0)
    mem_get_info = staticmethod(lambda: (cuda.free, 80 * 2**30))
"""
RUNNER = """
import logging, types, torch
logger = logging.getLogger("sglang.runner")
class Pool:
    def get_kv_size_bytes(self): return 20 * 2**30, 20 * 2**30
class ModelRunner:
    def __init__(self, args):
        self.args = args
        self.model_config = types.SimpleNamespace(dtype="torch.bfloat16", quantization=None, context_len=8192)
    def load_model(self):
        logger.info("Load weight begin. avail mem=79.00 GB")
        if self.args.context_length == 4: raise torch.OutOfMemoryError("CUDA out of memory")
        torch.cuda.free -= 15 * 2**30
        logger.info("Load weight end. mem usage=15.00 GB")
    def serve(self):
        self.load_model()
        if self.args.context_length == 5: raise ValueError("Loaded weights leave no GPU memory")
        torch.cuda.free -= 41 * 2**30
        self.token_to_kv_pool = Pool()
        self.max_total_num_tokens, self.max_running_requests = 327680, 2048
        logger.info("Memory pool end. avail mem=23.00 GB")
        for phase, gib in (("prefill", 2), ("decode", 1)):
            logger.info(f"Capture target {phase} CUDA graph begin. avail mem")
            torch.cuda.free -= gib * 2**30
            logger.info(f"Capture target {phase} CUDA graph end. mem usage")
"""
SCHEDULER = """
from sglang.srt.model_executor.model_runner import ModelRunner
class Scheduler:
    def __init__(self, args, ports, tp_rank):
        assert tp_rank == args.rank and args.nccl_port == (4000 if args.rank else None)
        ModelRunner(args).serve()
def run_scheduler_process(args, ports, tp_rank, writer):
    try:
        Scheduler(args, ports, tp_rank)
        raise SystemExit("it serves")
    except Exception:
        raise SystemExit("it ends its parent")
"""
ENGINE = """
import multiprocessing as mp
from sglang.srt.managers.scheduler import run_scheduler_process
class Engine:
    @classmethod
    def _launch_subprocesses(cls, server_args, init_tokenizer_manager_func, run_scheduler_process_func, run_detokenizer_process_func):
        server_args.resolved = True
        for rank in range(server_args.tp_size):
            reader, writer = mp.Pipe(duplex=False)
            process = mp.Process(target=run_scheduler_process_func, args=(server_args, None, rank, writer))
            process.start()
"""
ARGUMENTS = """
import argparse
def prepare_server_args(argv):
    parser = argparse.ArgumentParser()
    for name in ("--model-path", "--load-format"): parser.add_argument(name)
    for name in ("--context-length", "--tp-size", "--nccl-port", "--rank"): parser.add_argument(name, type=int)
    parser.add_argument("--skip-tokenizer-init", action="store_true")
    args = parser.parse_args(argv)
    assert args.load_format == "dummy" and args.skip_tokenizer_init
    args.mem_fraction_static, args.page_size, args.tp_size, args.rank = 0.75, 1, args.tp_size or 1, args.rank or 0
    return args
"""
PACKAGE = {
    "torch/__init__.py": TORCH,
    "sglang/__init__.py": "__version__ = '0.5.14'",
    "sglang/srt/utils/common.py": "",
    "sglang/srt/server_args.py": ARGUMENTS,
    "sglang/srt/entrypoints/engine.py": ENGINE,
    "sglang/srt/managers/scheduler.py": SCHEDULER,
    "sglang/srt/model_executor/model_runner.py": RUNNER,
}


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with packages `sglang` and `torch` in which nothing is but what is read."""
    folder = tmp_path / "packages"
    for name, text in PACKAGE.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def started(packages: Path, out: Path, *arguments: str, **variables: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-S", START, out, "model", *arguments],
        env={"PYTHONPATH": str(packages), "PATH": "", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    written = next(iter(out.parent.glob(f"{out.name}*")), None)
    assert written is not None, done.stderr
    return done.returncode, json.loads(written.read_text())


def test_what_is_free_at_each_step_is_read(packages: Path, tmp_path: Path) -> None:
    """Of 79 GiB it may take 0.75; its pools take 1 GiB besides keys and values; graphs of both phases count."""
    code, seen = started(packages, tmp_path / "out.json")
    assert code == 0 and "error" not in seen
    (rank,) = seen["ranks"]
    assert rank == {
        "total": 80 * GIB, "free": 79 * GIB, "requested": 79 * GIB * 3 // 4, "weights": 15 * GIB, "cache": 40 * GIB,
        "pools": GIB, "graphs": 3 * GIB, "left": 20 * GIB,
    }  # fmt: skip
    assert (seen["version"], seen["torch"], seen["tokens"]) == ("0.5.14", "2.11.0", 327680)
    assert (seen["length"], seen["concurrency"]) == (8192, 40.0)
    assert (seen["blocks"], seen["block_tokens"]) == (327680, 1)
    assert seen["settings"]["dtype"] == "torch.bfloat16" and seen["settings"]["max_running_requests"] == 2048


def test_this_ranks_process_is_this_one(packages: Path, tmp_path: Path) -> None:
    """Of the processes that the engine launches, the second; all meet at the job's port."""
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "4000"}
    code, seen = started(packages, tmp_path / "out.json", "--tp-size", "2", "--rank", "1", **variables)
    assert code == 0 and (tmp_path / "out.json.1").exists() and seen["tokens"] == 327680


def test_what_it_found_before_its_error_is_kept(packages: Path, tmp_path: Path) -> None:
    """The cache is then what the share leaves beside the weights. SGLang ends its parent where an error reaches it: none does."""
    code, seen = started(packages, tmp_path / "out.json", "--context-length", "5")
    assert code == 1 and seen["error"]["message"] == "Loaded weights leave no GPU memory"
    assert seen["ranks"][0]["cache"] == 79 * GIB * 3 // 4 - 15 * GIB and "tokens" not in seen


def test_weights_that_do_not_fit_are_counted_or_said_to_be_unknown(packages: Path, tmp_path: Path) -> None:
    code, seen = started(packages, tmp_path / "out.json", "--context-length", "4")
    assert code == 1 and seen["error"]["kind"] == "OutOfMemoryError" and not seen["ranks"]
    assert seen["needed"] == 0  # nothing of the package says how a model is made


def test_what_is_no_argument_of_the_engines_is_said(packages: Path, tmp_path: Path) -> None:
    code, seen = started(packages, tmp_path / "out.json", "--context-lenght", "8192")
    assert code == 1 and seen["error"]["kind"] == "ArgumentError"
    assert "--context-lenght" in seen["error"]["message"]


def test_settings_are_those_a_release_resolved() -> None:
    """From 0.5.20 on they are not written into what the command line said."""
    with inside("sglang_start") as module:
        args = SimpleNamespace(mem_fraction_static=None, resolved_dict=lambda: {"mem_fraction_static": 0.83})
        assert module.settings(args, [])["mem_fraction_static"] == 0.83


@pytest.fixture
def answers() -> Iterator[Any]:
    with inside("sglang_answers") as module:
        yield module


def test_kernels_that_a_gpu_compiles_are_launches(answers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class CompileCallable:
        def __call__(self, *_: Any) -> str:
            return "compiled"

    placed(monkeypatch, "cutlass.base_dsl.compiler", CompileCallable=CompileCallable)
    jit = placed(monkeypatch, answers._JIT[1], load_jit=lambda *words: "compiled")
    launches: list[Any] = []
    monkeypatch.setattr(sys.modules["engine_answers"], "launched", lambda *words: launches.append(words))
    monkeypatch.setattr(answers, "launched", lambda *words: launches.append(words))
    answers.answer_cute()
    answers.answer_jit()
    compile_it: Any = CompileCallable()
    compile_it(SimpleNamespace(__name__="norm"), 1)(2, 3)
    jit.load_jit("rope", 128).run(4)
    assert launches == [(2, 3), (4,)]
    said = sys.modules["engine_answers"].notes
    assert [text.partition(" is not")[0] for text in said] == ["CuTe's norm", "SGLang's rope_128"]


def test_the_gpus_memory_is_nvmls(answers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An H100's nvidia-smi lists 81,559 MiB; of several GPUs the smallest counts."""
    common = placed(monkeypatch, answers._COMMON, get_nvgpu_memory_capacity=lambda: "nvidia-smi")
    totals = {0: 81559 * 2**20, 1: 143771 * 2**20}
    placed(
        monkeypatch, "pynvml", nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(total=totals[device]),
    )  # fmt: skip
    answers.answer_smi()
    assert common.get_nvgpu_memory_capacity() == 81559.0


@pytest.mark.parametrize(
    ("arguments", "ranks", "kept"),
    [
        ([], 1, []),
        (["--tp", "2", "--log-level", "info"], 2, ["--tp-size", "2", "--log-level", "info"]),
        (["--tensor-parallel-size=2", "--pp-size=2"], 4, ["--tp-size", "2", "--pp-size", "2"]),
    ],
)
def test_ranks_are_the_engines_own(arguments: list[str], ranks: int, kept: list[str]) -> None:
    start = sglang.start("model", arguments)
    assert start.job == (Rank(0, ranks, ranks, launched=True) if ranks > 1 else Rank())
    assert list(start.arguments) == kept and not start.notes


def test_of_engines_beside_one_another_one_is_started() -> None:
    start = sglang.start("model", ["--dp-size", "3", "--tp-size", "2"])
    assert start.job.world_size == 2 and start.arguments == ("--tp-size", "2")
    assert start.notes[0].startswith("3 engines that share nothing")
    with pytest.raises(OptionError, match="--enable-dp-attention: engines"):
        sglang.start("model", ["--enable-dp-attention"])
    with pytest.raises(OptionError, match="--tp-size two: not a number"):
        sglang.start("model", ["--tp", "two"])


def recorded(name: str, release: str) -> EngineMemory:
    """A recorded start (`python -m benchmarks serving sglang` of commit cf817472)."""
    said = json.loads(FOUND.read_text())[name][release]
    ranks = [
        RankMemory(**{key: value for key, value in rank.items() if key != "graphs_most"})
        for rank in said["ranks"]
    ]
    tokens, settings = said["tokens"], said["settings"]
    return EngineMemory(
        name, "h100", "", release, said["torch"], tuple(ranks), settings, tokens, 1, tokens, 131072, tokens / 131072
    )  # fmt: skip


@pytest.mark.parametrize("release", ["SGLang 0.5.9", "SGLang 0.5.14", "SGLang 0.5.23"])
def test_the_cache_is_what_the_share_leaves_beside_the_weights(release: str) -> None:
    """SGLang's own arithmetic, of bytes read at its steps: behind the weights its start takes some 14 MB, and a page is added."""
    found = recorded("Llama-3.1-8B-Instruct", release)
    (rank,) = found.ranks
    assert rank.weights == 16_127_098_880 and found.token_bytes == pytest.approx(131072, rel=1e-5)
    assert 0 <= rank.requested - rank.weights - rank.cache < 20_000_000
    assert rank.pools is not None and rank.graphs is not None and rank.left is not None
    taken = rank.weights + rank.cache + rank.pools + rank.graphs + rank.left
    assert 0 <= rank.free - taken < 0.3 * GIB  # cuBLAS's workspaces and what its start takes between


def test_a_public_servers_log_says_the_same() -> None:
    """A server of August 2026 on an H100, beside the release that was then the newest: GiB to two digits."""
    (run,) = csv.DictReader((ROOT / "tests/data/serving/sglang_h100.csv").open())
    said = json.loads(FOUND.read_text())[f"{run['model']} {run['arguments']}"][run["release"]]
    (rank,) = said["ranks"]
    for term in ("free", "weights", "cache"):
        assert round(rank[term] / GIB, 2) == float(run[term]), term
    assert abs(said["tokens"] / int(run["tokens"]) - 1) < 0.0002
    assert abs(rank["graphs"] / GIB - float(run["graphs"])) < 0.05
    assert abs(rank["left"] / GIB - float(run["left"])) < 0.05


def test_the_table_says_where_the_memory_goes() -> None:
    found = recorded("Llama-3.1-8B-Instruct", "SGLang 0.5.14")
    text = engine_text(found)
    assert text.startswith("room for 3.13 requests of 131,072 tokens at a time\n410,626 tokens\n")
    for line in ("0.83 of what is free of h100", "- model weights", "= KV cache", "left for activations"):
        assert line in text
    assert "it runs no batch before it serves" in text and max(map(len, text.splitlines())) <= 80
    assert json.loads(engine_json(found))["ranks"][0]["left"] == found.ranks[0].left
    assert "410,626 tokens" in engine_page(found)


def test_the_changes_are_worked_out_by_hand() -> None:
    """Of 80 GiB free 8.5 are behind the budget: 2 GiB of tables, 1.5 of graphs, 5 for activations. 0.89 of it is 71.2 GiB, 7.2 GiB more;
    a token takes 40 GiB / 327,680 = 128 KiB."""
    rank = RankMemory(
        total=81 * GIB, free=80 * GIB, requested=64 * GIB, weights=24 * GIB, cache=40 * GIB, pools=2 * GIB, graphs=3 * GIB // 2
    )  # fmt: skip
    settings = {
        "mem_fraction_static": 0.8,
        "kv_cache_dtype": "auto",
        "dtype": "torch.bfloat16",
        "quantization": "None",
    }
    made: dict[str, Any] = {"ranks": (rank,), "settings": settings, "tokens": 327680, "length": 8192}
    found = EngineMemory("llama", "h100", "", "SGLang 0.5.14", "2.11.0", concurrency=40.0, **made)
    said = changes(found, H100, WORDS)
    assert said[:2] == (
        "--mem-fraction-static 0.89, with 5.0 GiB left for activations: 58,982 tokens more",
        "--kv-cache-dtype fp8_e4m3: half as many bytes a token, some 655,360 tokens",
    )
    assert any(change.startswith("--tp-size 2,") for change in said)
    behind = EngineMemory(
        "llama", "h100", "", "SGLang 0.5.14", "2.11.0", error=("OutOfMemoryError", "full"), **made
    )
    said = changes(behind, H100, WORDS)
    assert said[0].startswith("a lower --mem-fraction-static than 0.8:")
    other = replace(behind, error=("AssertionError", "no plan"))
    assert changes(other, H100, WORDS) == (
        "its weights and its cache have room: it ended for another reason than memory",
    )
    short = EngineMemory(
        "llama", "h100", "", "SGLang 0.5.14", "2.11.0", error=("ValueError", "no memory for the cache"), settings=settings,
        ranks=(RankMemory(total=81 * GIB, free=80 * GIB, requested=64 * GIB, weights=70 * GIB, cache=-6 * GIB),),
    )  # fmt: skip
    said = changes(short, H100, WORDS)
    assert said[0] == "6.0 GiB are missing before the first block of the cache"
    assert said[1] == "--mem-fraction-static 0.93, with 5.0 GiB left for activations: 10.4 GiB more, enough"


def test_the_engine_is_asked_with_its_own_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `analyze serve` names as vLLM does is handed on as SGLang names it; its start is the recorded one."""
    asked: dict[str, Any] = {}

    def ran(program: Any, _options: object, _python: object, variables: Any, _job: Rank) -> Held:
        out, _, *asked["arguments"] = program.arguments
        asked["variables"], asked["starter"] = variables, program.place.name
        said = json.loads(FOUND.read_text())["Llama-3.1-8B-Instruct"]["SGLang 0.5.14"]
        ranks = [
            {key: value for key, value in rank.items() if key != "graphs_most"} for rank in said["ranks"]
        ]
        report = {"version": "0.5.14", "ranks": ranks, "tokens": said["tokens"], "settings": said["settings"]}
        Path(out).write_text(json.dumps(report | {"length": 8192, "concurrency": 50.13}))
        return Held(1, ())

    monkeypatch.setattr(serving, "held", ran)
    monkeypatch.setattr(serving, "_has", lambda python, package: package == "sglang")
    words = [
        "--engine",
        "sglang",
        "--python",
        sys.executable,
        "--length",
        "8192",
        "--no-enable-prefix-caching",
    ]
    own = ["--", "--max-running-requests", "64"]
    assert main(["serve", str(CONFIG / "config.json"), "--device", "h100", *words, *own]) == 0
    assert asked["arguments"] == [
        *("--context-length", "8192", "--disable-radix-cache", "--max-running-requests", "64")
    ]
    assert asked["starter"] == "sglang_start.py" and "SGLANG_CACHE_DIR" in asked["variables"]
    assert capsys.readouterr().out.startswith("room for 50.13 requests of 8,192 tokens")


def test_without_it_nothing_else_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The arithmetic is vLLM's."""
    monkeypatch.setattr(serving.reach, "places", lambda package, near: iter(()))
    assert main(["serve", str(CONFIG), "--device", "h100", "--engine", "sglang"]) == 2
    said = capsys.readouterr().err
    assert "no SGLang is available" in said and "analyze engine install sglang==0.5.14" in said
