"""What vLLM is answered in its process (`analyzer_serving/engines/inside/vllm_answers.py`), with packages made for the test."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.extensions.serving.insides import inside, placed


@pytest.fixture
def answers() -> Iterator[Any]:
    with inside("vllm_answers") as module:
        yield module


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("has", [False, True])
def test_flashinfers_experts_are_taken_where_they_come_compiled(
    answers: Any, monkeypatch: pytest.MonkeyPatch, has: bool, compiled: bool
) -> None:
    """Without their binaries the engine finds none, and where it could have had some that is a note."""
    placed(monkeypatch, "vllm.utils.flashinfer", has_flashinfer_cutlass_fused_moe=lambda: has)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: "found" if compiled else None)
    answers.answer_experts()
    asked = sys.modules["vllm.utils.flashinfer"].has_flashinfer_cutlass_fused_moe
    assert asked() is (has and compiled) and asked() is (has and compiled)
    assert len(sys.modules["engine_answers"].notes) == (has and not compiled)


@pytest.mark.parametrize(("said", "then"), [([], ["layers."]), (["self_attn.q_proj"], ["self_attn.q_proj"])])
def test_gptq_without_weights_quantizes_the_blocks(
    answers: Any, monkeypatch: pytest.MonkeyPatch, said: list[str], then: list[str]
) -> None:
    class GPTQMarlinConfig:
        modules_in_block_to_quantize: list[str] = said

        def maybe_update_config(self, model: str) -> None:
            assert model == "folder"

    placed(
        monkeypatch, "vllm.model_executor.layers.quantization.gptq_marlin", GPTQMarlinConfig=GPTQMarlinConfig
    )
    answers.answer_gptq()
    config = GPTQMarlinConfig()
    config.maybe_update_config("folder")
    assert config.modules_in_block_to_quantize == then


def test_models_are_looked_at_in_this_process(answers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = placed(monkeypatch, answers._REGISTRY, _run_in_subprocess=lambda function: "elsewhere")
    answers.answer_registry()
    assert registry._run_in_subprocess(lambda: "here") == "here"
