"""Forms of a serving engine's memory, worked out and as it is (entry point "analyzer.formats")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzer_serving.llama_results import LlamaMemory

if TYPE_CHECKING:
    from analyzer.report.formats import View
    from analyzer_serving.results import EngineMemory

SERVING = {
    "text": "analyzer_serving.report:text",
    "json": "analyzer_serving.report:arithmetic_json",
    "html": "analyzer_serving.page:arithmetic",
}
ENGINE = {
    "text": "analyzer_serving.formats:_text",
    "json": "analyzer_serving.formats:_json",
    "html": "analyzer_serving.formats:_html",
}


def _text(memory: EngineMemory | LlamaMemory, view: View) -> str:
    from analyzer_serving import llama_report, report

    return llama_report.text(memory) if isinstance(memory, LlamaMemory) else report.engine_text(memory, view)


def _json(memory: EngineMemory | LlamaMemory, view: View) -> str:
    from analyzer_serving import llama_report, report

    return (
        llama_report.as_json(memory) if isinstance(memory, LlamaMemory) else report.engine_json(memory, view)
    )


def _html(memory: EngineMemory | LlamaMemory, view: View) -> str:
    from analyzer_serving import llama_report, page

    return llama_report.html(memory) if isinstance(memory, LlamaMemory) else page.engine(memory, view)
