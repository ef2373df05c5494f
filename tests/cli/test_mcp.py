"""`analyze mcp`: tools are commands with the same limits; nothing is executed without being told."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from analyzer import child
from analyzer.cli import _tools
from analyzer.errors import OptionError
from tests.paths import MODELS

CNN = str(MODELS / "cnn.onnx")


def test_a_tool_is_a_command_line() -> None:
    options = {
        "batch": 8,
        "mode": "train",
        "channels_last": True,
        "strict": False,
        "release": ["torch=2.8", "onnxruntime=1.32"],
    }
    assert _tools.words("fit", "a.onnx", options, False) == [
        "fit", "--batch=8", "--mode=train", "--channels-last", "--release=torch=2.8", "--release=onnxruntime=1.32",
        "a.onnx", "--format", "json",
    ]  # fmt: skip
    assert _tools.words("estimate", "hf:org/name", {}, False)[0] == "hf:org/name"


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("net.py", {}),
        ("package.module:Net", {}),
        ("program.pt2", {"trust": True}),
        ("a.onnx", {"loss": "net.py:loss"}),
        ("no-such-file", {}),
    ],
)
def test_nothing_is_executed_without_being_told(target: str, options: dict[str, Any]) -> None:
    for command in ("estimate", "fit", "what-if"):
        with pytest.raises(OptionError, match="would be executed, which this server was not allowed"):
            _tools.words(command, target, options, False)
        assert target in _tools.words(command, target, options, True)


@pytest.mark.parametrize(
    "option", ["output", "o", "plot", "dump_graph", "python", "keep_outputs", "unprotected", "targets"]
)
def test_an_option_that_writes_or_starts_something_is_none(option: str) -> None:
    with pytest.raises(OptionError, match="there is no option"):
        _tools.words("estimate", "a.onnx", {option: "x"}, True)
    with pytest.raises(OptionError, match="is no target"):
        _tools.words("estimate", "--debug", {}, True)


def test_an_answer_has_the_commands_json_and_exit_code() -> None:
    found = _tools.answer(_tools.words("estimate", CNN, {"batch": 4, "device": "t4"}, False))
    assert (
        found["exit_code"] == 0
        and found["result"]["peak_allocated"] > 0
        and found["result"]["device"] == "t4"
    )
    assert "timeline" not in found["result"]
    assert (
        _tools.answer(_tools.words("estimate", CNN, {"batch": 4, "budget": "1MiB"}, False))["exit_code"] == 1
    )
    wrong = _tools.answer(_tools.words("estimate", CNN, {"batch": 4, "device": "t5"}, False))
    assert (
        wrong["exit_code"] == 2 and wrong["result"] is None and "unknown device 't5'" in wrong["messages"][0]
    )


def test_an_errors_text_is_explained_as_it_is(tmp_path: Path) -> None:
    """An agent has the text, and may name a target whose tensors are of that size: 8 x 8 x 222 x 222 float32."""
    text = "CUDA out of memory. Tried to allocate 14.00 MiB. GPU 0 has a total capacity of 23.64 GiB of which 1.20 MiB is free."
    answer = _tools.answer(*_tools.explaining(text, "", {}, False))
    assert answer["exit_code"] == 1
    assert answer["result"]["message"]["verdict"].startswith("out of memory: 14.00 MiB requested")
    log = tmp_path / "log.txt"
    log.write_text(text)
    assert _tools.answer(*_tools.explaining(str(log), "", {}, False))["exit_code"] == 1
    request = "Failed to allocate memory for requested buffer of size 12616704"
    answer = _tools.answer(*_tools.explaining(request, CNN, {"batch": 8}, False))
    shapes = [each["origin"]["shape"] for each in answer["result"]["message"]["requests"]]
    assert [8, 8, 222, 222] in shapes
    with pytest.raises(OptionError, match="would be executed"):
        _tools.explaining(text, "net.py", {"batch": 8}, False)
    with pytest.raises(OptionError, match="is no name"):
        _tools.explaining("--debug", "", {}, True)


def test_the_tools_are_told(run: Any) -> None:
    lines = run("mcp", "--tools").out.splitlines()
    assert [line.partition(":")[0] for line in lines[:-1]] == ["estimate", "fit", "what_if", "explain"]
    assert "refused" in lines[-1] and "refused" not in run("mcp", "--tools", "--allow-code").out


def test_an_agent_asks_by_the_protocol(tmp_path: Path) -> None:
    mcp = pytest.importorskip("mcp")
    from mcp.client.stdio import stdio_client

    async def ask() -> tuple[list[str], dict[str, Any], dict[str, Any]]:
        typed = child.command("analyzer", "mcp", folders=[*child.FOLDERS, *filter(None, sys.path)])
        parameters = mcp.StdioServerParameters(command=typed[0], args=typed[1:], cwd=tmp_path)
        async with stdio_client(parameters) as (read, write), mcp.ClientSession(read, write) as session:
            await session.initialize()
            tools = [tool.name for tool in (await session.list_tools()).tools]
            asked = {"target": CNN, "options": {"batch": 4, "device": "t4"}}
            told = await session.call_tool("estimate", asked)
            refused = await session.call_tool("estimate", {"target": "net.py"})
            return tools, *(json.loads(answer.content[0].text) for answer in (told, refused))

    tools, told, refused = asyncio.run(ask())
    assert tools == ["estimate", "fit", "what_if", "explain"]
    assert told["exit_code"] == 0 and told["result"]["peak_reserved"] > 0
    assert refused["exit_code"] == 2 and "would be executed" in refused["messages"][0]
