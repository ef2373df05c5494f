"""llama.cpp with a GGUF file: its arguments, its log, what starting it again finds, and how it is shown."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from analyzer.devices import load
from analyzer.errors import MissingDependencyError, OptionError
from analyzer.report.formats import render
from analyzer_emulation import store
from analyzer_serving import command
from analyzer_serving.engines import llama_cpp
from analyzer_serving.engines.llama_arguments import settings_of
from analyzer_serving.llama_results import Buffer, LlamaMemory, Phase, Point
from tests.extensions.serving.ggufs import SMALL, written
from tests.paths import ROOT

MEASURED = json.loads((ROOT / "tests/data/h200/llama_cpp.json").read_text("utf-8"))["runs"]
GIB = 2**30


def test_a_server_without_arguments_has_four_slots_that_share_the_cache() -> None:
    settings = settings_of([])
    assert settings["context"] == {
        "n_ctx": 0, "swa_full": False, "n_seq_max": 4, "kv_unified": True, "n_batch": 2048, "n_outputs_max": 4,
    }  # fmt: skip
    assert settings["model"] == {} and settings["fit"] and settings["fit_context"] == 4096


def test_arguments_are_the_members_of_its_structures() -> None:
    words = "-c 32768 -ngl 99 -fa on -ctk q8_0 --cache-type-v q4_0 -np 2 -ub 1024 -sm row -ts 3,1 -mg 1 -nkvo"
    settings = settings_of([*words.split(), "-ncmoe", "2", "-ot", r"blk\.1=CPU", "-fit", "off", "-t", "8"])
    context = {
        "n_ctx": 32768,
        "flash_attn_type": 1,
        "type_k": 8,
        "type_v": 2,
        "n_seq_max": 2,
        "n_ubatch": 1024,
    }
    assert context.items() <= settings["context"].items() and not settings["context"]["offload_kqv"]
    assert "kv_unified" not in settings["context"]
    assert settings["model"] == {"n_gpu_layers": 99, "split_mode": 2, "main_gpu": 1}
    assert settings["tensor_split"] == [3.0, 1.0] and not settings["fit"]
    experts = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
    assert settings["on_cpu"] == [rf"blk\.0{experts}", rf"blk\.1{experts}", r"blk\.1"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-c"], "-c needs a value"),
        (["-c", "many"], "-c: not a value of it"),
        (["-c", "-4"], "-c: not a value of it: -4 is no number"),
        (["-ctk", "q3_K"], "-ctk: not a value of it: one of f32"),
        (["--mmproj", "x.gguf"], "--mmproj of llama.cpp is not answered here"),
        (["-m", "x.gguf"], "-m of llama.cpp is not answered here"),
        (["-ot", "a=CUDA1"], "PATTERN=CPU"),
    ],
)
def test_arguments_without_an_answer_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        settings_of(words)


@pytest.mark.parametrize("name", MEASURED)
def test_buffers_are_read_from_the_log_of_a_gpu(name: str) -> None:
    """Every line of a log that speaks of a buffer is read: on an H200, ten models."""
    found = llama_cpp.buffers_of(MEASURED[name]["log"])
    of_layers = sum("offloaded" in line for line in MEASURED[name]["log"])
    places = {line.split()[1] for line in MEASURED[name]["log"] if "buffer size" in line}
    assert {one.place for one in found} == places and of_layers == 1
    logged = sum(float(line.split("=")[1].split()[0]) for line in MEASURED[name]["log"] if "buffer" in line)
    assert sum(one.mib for one in found) == pytest.approx(logged)


def test_a_compute_buffer_that_is_reserved_again_is_its_last() -> None:
    lines = [
        "llama_kv_cache:      CUDA0 KV buffer size =   160.00 MiB",
        "llama_kv_cache:      CUDA0 KV buffer size =    40.00 MiB",
        "sched_reserve:      CUDA0 compute buffer size =   100.00 MiB",
        "sched_reserve:      CUDA0 compute buffer size =   120.50 MiB",
        "llama_context: n_ctx = 512",
    ]
    assert llama_cpp.buffers_of(lines) == (Buffer("CUDA0", "KV", 200.0), Buffer("CUDA0", "compute", 120.5))


MEMORY = LlamaMemory(
    "m.gguf", "rtx4090", "", "llama.cpp v0.5.0", 24 * GIB,
    (Buffer("CPU_Mapped", "model", 70.31), Buffer("CUDA0", "model", 4342.55), Buffer("CUDA0", "KV", 1024.0)),
    (Phase("backend", (GIB,)), Phase("full", (6 * GIB,))), (33, 33), 8192, 2048, 4, 131072,
)  # fmt: skip


class Card:
    """In place of a start: a model of 10 layers, whose memory is layers and context."""

    def __init__(self, room: int) -> None:
        self.room, self.starts = room, 0

    def run(self, settings: Mapping[str, Any]) -> LlamaMemory:
        self.starts += 1
        layers = min(settings["model"].get("n_gpu_layers", 10), 10)
        used = 100 * layers + settings["context"]["n_ctx"] // 64
        error = (
            None if used <= self.room else "allocating 9.00 MiB on device 0: cudaMalloc failed: out of memory"
        )
        context = settings["context"]["n_ctx"]
        return replace(MEMORY, error=error, layers=(layers, 10), context=context, sequences=1, trained=65536)


def changes(room: int, words: str) -> tuple[str, ...]:
    settings, card = settings_of(words.split()), Card(room)
    return llama_cpp._changes(card, settings, card.run(settings))  # type: ignore[arg-type]


def test_without_room_it_is_started_again_until_it_fits() -> None:
    context, layers = changes(1200, "-c 32768 -np 1")
    low = int(context.split()[1].rstrip(":"))
    assert 12800 - 2048 <= low <= 12800 and "fits" in context and "does not" in context
    assert layers == "-ngl 6: 6 of its 10 layers on the GPU fit with this context, 7 do not"


def test_with_room_the_largest_context_is_found() -> None:
    (whole,) = changes(3000, "-c 4096 -np 1")
    assert whole == "-c 65536: the model's whole context fits"
    (part,) = changes(1500, "-c 4096 -np 1")
    assert 32000 - 4096 <= int(part.split()[1].rstrip(":")) <= 32000


def test_text_says_the_verdict_first() -> None:
    shown = render("engine", "text", replace(MEMORY, changes=("-c 9: fits",), notes=("a note",)))
    assert isinstance(shown, str)
    first, *lines = shown.splitlines()
    assert first == "fits: 33 of 33 layers on the GPU, a context of 8,192 tokens (4 x 2,048), 18.0"
    assert (
        "CUDA0           model             4,342.55" in lines
        and "- a note" in lines
        and "- -c 9: fits" in lines
    )
    assert lines.index("CUDA0           KV cache          1,024.00") < lines.index(
        "CPU_Mapped      model                70.31"
    )
    assert all(len(line) <= 80 for line in lines)
    failed = render("engine", "text", replace(MEMORY, error="cudaMalloc failed: out of memory\x1b[1m"))
    assert isinstance(failed, str) and failed.startswith("does not fit: cudaMalloc failed: out of memory")
    assert "\x1b" not in failed


def test_json_and_page_have_the_curve() -> None:
    memory = replace(MEMORY, curve=(Point(4096, 512.0, 100.0, 5 * GIB), Point(65536, 8192.0, 200.0, None)))
    document = json.loads(str(render("engine", "json", memory)))
    assert document["fits"] and document["curve"][1] == {
        "context": 65536, "kv_mib": 8192.0, "compute_mib": 200.0, "used": None,
    }  # fmt: skip
    assert document["phases"][1] == {"name": "full", "used": [6 * GIB]}
    shown = str(render("engine", "html", memory))
    assert "no room" in shown and "5,120" in shown
    assert "no room" in str(render("engine", "text", memory))


def test_contexts_of_a_curve_are_numbers() -> None:
    assert llama_cpp.sizes_of("4k,32K,100000") == (4096, 32768, 100000) and llama_cpp.sizes_of("") == ()
    for text in ("4kk", "0", "-1", "1e9"):
        with pytest.raises(OptionError, match="is no number of tokens"):
            llama_cpp.sizes_of(text)


def test_what_is_no_llama_cpp_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "every", lambda: iter(()))
    with pytest.raises(MissingDependencyError, match="has no libllama"):
        llama_cpp.package_of(tmp_path)
    with pytest.raises(MissingDependencyError, match=r"no llama\.cpp is available"):
        llama_cpp.folder_with(None)


def test_options_of_other_engines_are_refused(tmp_path: Path) -> None:
    model = str(written(tmp_path, SMALL))
    for words, message in (
        (["--kv-cache-dtype", "fp8", "--engine", "llama.cpp"], "is not of llama.cpp"),
        (["--context", "4k"], "--context and --binary are of llama.cpp"),
    ):
        done = CliRunner().invoke(command.command, [model, *words], standalone_mode=False)
        assert isinstance(done.exception, OptionError) and message in str(done.exception)


@pytest.mark.parametrize("name", ["llama8b", "gemma3_4b", "gpt_oss_20b"])
def test_an_h200_had_as_much_in_use(name: str, tmp_path: Path) -> None:
    """Where ANALYZER_LLAMA names llama.cpp's libraries and ANALYZER_GGUFS the headers that the H200 was given."""
    folder, models = os.environ.get("ANALYZER_LLAMA"), os.environ.get("ANALYZER_GGUFS")
    if folder is None or models is None:
        pytest.skip("no llama.cpp is named")
    package = llama_cpp.package_of(Path(folder))
    starter = llama_cpp._Starter(package, load("h200"), tmp_path, 1)
    memory = starter.run(MEASURED[name]["settings"] | {"path": f"{models}/{name}.gguf"})
    assert memory.buffers == llama_cpp.buffers_of(MEASURED[name]["log"]) and memory.fits
    used = {phase.name: phase.used[0] for phase in memory.phases}
    for phase, measured in MEASURED[name]["used"].items():
        assert measured <= used[phase] <= measured + 2 * 2**20


def test_errors_are_in_its_own_words() -> None:
    lines = [
        {"line": "alloc_tensor_range: failed to allocate CUDA0 buffer of size 9", "level": 4},
        {"line": "llama_model_load: error loading model", "level": 4},
        {"line": "only a hint", "level": 2},
    ]
    assert llama_cpp._words(lines, 0).startswith("alloc_tensor_range: failed to allocate")
    assert llama_cpp._words(lines[1:], 0) == "llama_model_load: error loading model"
    assert llama_cpp._words([], -6) == "it ended by signal 6"
