"""`analyze mcp`: an agent asks by the Model Context Protocol, over stdin and stdout."""

from __future__ import annotations

from typing import Any

import click

from analyzer.cli._help import Command
from analyzer.cli._output import deliver
from analyzer.errors import MissingDependencyError, install

_ABOUT = (
    "Predicts the GPU memory that an ONNX file, a PyTorch model or a config.json (hf:ORG/NAME) needs, without"
    " a GPU. Sizes are bytes. exit_code 0: it fits, or no device was named; 1: it does not; 2: see messages."
)


# Description of each tool for an agent.
_TOOLS = {
    "estimate": (
        "GPU memory of a target (model.onnx, program.pt2, config.json, hf:ORG/NAME, file.py:attr)."
        ' options by name: batch, mode ("infer", "train", "generate"), device ("rtx4090", "24GiB"), ...'
    ),
    "fit": (
        "The largest batch of a target that runs on a device, and what fails beyond; options as for estimate."
    ),
    "what_if": "Ways to run a target with less memory, what each saves and costs; options as for estimate.",
    "explain": (
        'The rule behind a figure ("cublas-workspace"), an operator\'s rules ("aten::mm"), a snapshot of'
        " PyTorch's allocator, or an out-of-memory error: its text, or a file. With a target (batch and mode"
        " as for estimate) also its tensors of the size that failed."
    ),
}


@click.command(
    cls=Command,
    short_help="The tools of an agent (Model Context Protocol).",
    examples=("analyze mcp --tools", "analyze mcp --allow-code --tools"),
)
@click.option("--allow-code", is_flag=True, help="Also allow Python targets, which are executed.")
@click.option("--tools", is_flag=True, help="Describe each tool, and exit.")
def command(allow_code: bool, tools: bool) -> None:
    """Serve estimate, fit, what_if and explain to an agent over stdin and stdout, until it closes them. Put
    the command `analyze mcp` into its configuration.

    Each is the command of that name with --format json, in a process of its own. Nothing is executed without
    --allow-code: ONNX files, program.pt2 and configurations are data. Needs the official SDK: the extra mcp.
    """
    if tools:
        lines = [f"{name}: {about}\n" for name, about in _TOOLS.items()]
        deliver("".join(lines) + ("" if allow_code else "Python targets are refused (--allow-code).\n"), None)
        return
    server(allow_code).run()


def server(allow_code: bool) -> Any:
    """Return the server. Raises MissingDependencyError without the SDK."""
    try:
        from mcp.server.mcpserver import MCPServer as Server
    except ModuleNotFoundError:
        try:
            from mcp.server.fastmcp import FastMCP as Server  # its name before 2.0
        except ModuleNotFoundError:
            raise MissingDependencyError("the SDK of the protocol is not installed", install("mcp")) from None
    made = Server("analyzer", instructions=_ABOUT)

    def answered(
        name: str, target: str, options: dict[str, Any] | None, explained: str = ""
    ) -> dict[str, Any]:
        from analyzer.cli._tools import answer, explaining, words
        from analyzer.errors import AnalyzerError

        try:
            if explained:
                return answer(*explaining(explained, target, options or {}, allow_code))
            return answer(words(name, target, options or {}, allow_code))
        except AnalyzerError as error:
            return {"exit_code": 2, "result": None, "messages": [error.message, f"hint: {error.hint}"]}

    def estimate(target: str, options: dict[str, Any] | None = None) -> dict[str, Any]:
        return answered("estimate", target, options)

    def fit(target: str, device: str, options: dict[str, Any] | None = None) -> dict[str, Any]:
        return answered("fit", target, {**(options or {}), "device": device})

    def what_if(target: str, options: dict[str, Any] | None = None) -> dict[str, Any]:
        return answered("what-if", target, options)

    def explain(name: str, target: str = "", options: dict[str, Any] | None = None) -> dict[str, Any]:
        return answered("explain", target, options, name)

    for function in (estimate, fit, what_if, explain):
        made.tool(description=_TOOLS[function.__name__])(function)
    return made
