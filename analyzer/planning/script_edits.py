"""Changes of a program's text that may make it take less, each of a line or two.

1. A line is put behind the last assignment of the model's variable before its first call: checkpointing of
   the blocks it repeats (`torch.utils.checkpoint`), autocast around its forward pass, weights in half
   precision.
2. A keyword of a call is added or replaced: `batch_size` of a loader, an optimizer's `fused`, a Trainer's
   arguments (transformers' `TrainingArguments`).
3. Numbers equal to the batch of the model's first call, where a call makes a tensor of them, are divided; and
   so are the values of arguments whose name says that they are a batch.
4. What is summed or collected with its graph is detached; a function that only evaluates gets
   `@torch.no_grad()`.

Nothing here says that a change helps, or that the program still runs: that is followed (`way_out.py`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from analyzer.graph.calls import ModelCall

_OPTIMIZERS = ("SGD", "Adam", "AdamW", "Adagrad")  # those with fused kernels (torch/optim)
_MAKERS = ("randn", "rand", "randint", "zeros", "ones", "empty", "full", "randn_like")
_BATCH_OPTION = re.compile(r"--[\w-]*batch[\w-]*")
_BATCH_NAME = re.compile(r"(?i)batch|^bsz?$")


@dataclass(frozen=True, slots=True)
class Edit:
    """One change. name: what it does. text: the program's text with it, "" where that stays; arguments: its
    arguments, None where they stay. numbers: whether it changes the numbers that are computed."""

    name: str
    text: str = ""
    arguments: tuple[str, ...] | None = None
    numbers: bool = False


def edits(text: str, models: Sequence[ModelCall], trains: bool, vain: str) -> list[Edit]:
    """Return the changes, those first that change nothing of what is computed. trains: the program has a
    backward pass. vain: the line (its number) that makes most of what is held in vain, "" without."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    found = [*(_released(text, tree, int(vain)) if vain.isdigit() else ())]
    named = [model for model in models if model.name]
    if not trains:
        found += [
            edit for model in named[:1] if model.gradients for edit in _without_gradients(text, tree, model)
        ]
    else:
        found += _optimizers(text, tree)
        found += _trainer(text, tree, {"gradient_checkpointing": True})
        found += _blocks(text, tree, named)
    found += _trainer(text, tree, {"eval_accumulation_steps": 1})
    if trains:
        found += _trainer(text, tree, {"bf16": True}, numbers=True)
        found += _after(
            text, tree, named[:1], "autocast bf16",
            '{name}.forward = torch.autocast("cuda", torch.bfloat16)({name}.forward)', numbers=True,
        )  # fmt: skip
    else:
        found += _after(text, tree, named, "weights in bf16", "{name}.to(torch.bfloat16)", numbers=True)
    return [edit for edit in found if edit.text != text and _parses(edit.text)]


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def smaller(text: str, arguments: Sequence[str], models: Sequence[ModelCall], by: int) -> list[Edit]:
    """Return the changes that divide the batch."""
    found = []
    changed = _smaller_arguments(arguments, by)
    name = f"batch divided by {by}"
    if changed is not None:
        found.append(Edit(name, arguments=changed, numbers=True))
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return found
    batches = {model.batch for model in models if model.batch}
    numbers = [*_batches_by_name(tree), *_batches_by_size(tree, batches)]
    spans = {(node.lineno, node.col_offset, node.end_col_offset or 0, value) for node, value in numbers}
    if spans and all(value >= by for *_, value in spans):
        lines = text.splitlines(keepends=True)
        for line, begin, end, value in sorted(spans, reverse=True):
            lines[line - 1] = _spliced(lines[line - 1], begin, end, str(value // by))
        found.append(Edit(name, "".join(lines), numbers=True))
    return found


def _smaller_arguments(arguments: Sequence[str], by: int) -> tuple[str, ...] | None:
    """Return the program's arguments with a smaller batch, None where none says one."""
    changed = list(arguments)
    for place, word in enumerate(arguments):
        option, equals, value = word.partition("=")
        if not _BATCH_OPTION.fullmatch(option):
            continue
        if equals and value.isdigit() and int(value) >= by:
            changed[place] = f"{option}={int(value) // by}"
        elif not equals and place + 1 < len(arguments) and arguments[place + 1].isdigit():
            changed[place + 1] = str(max(int(arguments[place + 1]) // by, 1))
    return None if changed == list(arguments) else tuple(changed)


def _integer(node: ast.AST | None) -> int | None:
    is_number = isinstance(node, ast.Constant) and type(node.value) is int and node.value > 1
    return node.value if is_number else None  # type: ignore[union-attr]


def _batches_by_name(tree: ast.Module) -> Iterator[tuple[ast.expr, int]]:
    """Yield the numbers that a name says are a batch: keywords, variables, defaults of options."""
    for node in ast.walk(tree):
        pairs: list[tuple[str, ast.expr]] = []
        if isinstance(node, ast.Call):
            pairs = [(word.arg or "", word.value) for word in node.keywords]
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and _BATCH_OPTION.fullmatch(str(first.value)):
                pairs = [("batch", value) for name, value in pairs if name == "default"]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            pairs = [(node.targets[0].id, node.value)]
        for name, value in pairs:
            if _BATCH_NAME.search(name) and (number := _integer(value)) is not None:
                yield value, number


def _batches_by_size(tree: ast.Module, batches: set[int]) -> Iterator[tuple[ast.expr, int]]:
    """Yield the numbers equal to a batch from which a call makes a tensor."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MAKERS:
            sizes = [
                *node.args,
                *(part for arg in node.args if isinstance(arg, ast.Tuple) for part in arg.elts),
            ]
            for value in sizes:
                if (number := _integer(value)) in batches and number is not None:
                    yield value, number


def _released(text: str, tree: ast.Module, line: int) -> Iterator[Edit]:
    """Yield ways to let go of a graph that is kept by a sum, a list, or an evaluation's variables."""
    function = next(
        (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
        ),
        None,
    )
    calls = ast.walk(function) if function is not None else ()
    if function is not None and not any(
        isinstance(node, ast.Attribute) and node.attr in ("backward", "step") for node in calls
    ):
        yield Edit(
            "no_grad around the evaluation", _inserted(text, function.lineno, function, ["@torch.no_grad()"])
        )
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            yield Edit("what is summed is detached", _wrapped(text, node.value, ".detach()"))
        is_append = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args
        if is_append and node.func.attr == "append":  # type: ignore[attr-defined]
            yield Edit("what is collected is detached", _wrapped(text, node.args[0], ".detach()"))  # type: ignore[attr-defined]
            yield Edit(
                "what is collected goes to the host",
                _wrapped(text, node.args[0], ".detach().cpu()"),  # type: ignore[attr-defined]
            )


def _without_gradients(text: str, tree: ast.Module, model: ModelCall) -> Iterator[Edit]:
    outer = next((node for node in tree.body if node.lineno <= model.line <= (node.end_lineno or 0)), None)
    if outer is not None and not isinstance(outer, (ast.FunctionDef, ast.ClassDef)):
        changed = _inserted(text, outer.lineno, outer, ["torch.set_grad_enabled(False)"])
        yield Edit("no gradients", changed)
    else:
        line = "{name}.forward = torch.no_grad()({name}.forward)"
        yield from _after(text, tree, [model], "no gradients", line)


def _optimizers(text: str, tree: ast.Module) -> Iterator[Edit]:
    for node in _calls(tree, _OPTIMIZERS):
        if not any(word.arg in ("fused", "foreach") for word in node.keywords):
            for keyword in ("fused=True", "foreach=False"):
                yield Edit(f"optimizer with {keyword}", _with_keyword(text, node, keyword))


def _trainer(
    text: str, tree: ast.Module, settings: Mapping[str, object], numbers: bool = False
) -> Iterator[Edit]:
    for node in _calls(tree, ("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig")):
        given = {word.arg: word.value for word in node.keywords}
        for name, value in settings.items():
            if name not in given:
                yield Edit(f"{name}={value}", _with_keyword(text, node, f"{name}={value}"), numbers=numbers)


def _blocks(text: str, tree: ast.Module, models: Sequence[ModelCall]) -> Iterator[Edit]:
    for model in models:
        if model.own_checkpointing:
            yield from _after(text, tree, [model], "checkpointing", "{name}.gradient_checkpointing_enable()")
        elif model.blocks:
            container = model.blocks[0].rpartition(".")[0]
            where = f"{{name}}.{container}" if container else "{name}"
            whole = all(path.rpartition(".")[0] == container for path in model.blocks)
            each = f"{where}.children()" if whole else f"map({{name}}.get_submodule, {list(model.blocks)!r})"
            lines = (
                "import functools; from torch.utils.checkpoint import checkpoint\n"
                f"for block in {each}: block.forward = functools.partial("
                "checkpoint, block.forward, use_reentrant=False)"
            )
            yield from _after(text, tree, [model], "checkpointing", lines)


def _after(
    text: str, tree: ast.Module, models: Sequence[ModelCall], name: str, lines: str, numbers: bool = False
) -> Iterator[Edit]:
    """Yield the program with lines behind the last assignment of each model before its call."""
    changed = text
    for model in models:
        made = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and any(
                isinstance(part, ast.Name) and part.id == model.name for part in ast.walk(node.targets[0])
            )
            and (node.lineno < model.line)
        ]
        if not made:
            return
        last = max(made, key=lambda node: node.lineno)
        added = lines.replace("{name}", model.name).split("\n")
        changed = _inserted(
            changed, (last.end_lineno or last.lineno) + 1 + _added(text, changed), last, added
        )
    if models:
        yield Edit(name, changed, numbers=numbers)


def _added(text: str, changed: str) -> int:
    """Return by how many lines a text has grown; models are in the order of their assignments."""
    return changed.count("\n") - text.count("\n")


def _calls(tree: ast.Module, names: Sequence[str]) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in names:
                yield node


def _with_keyword(text: str, call: ast.Call, keyword: str) -> str:
    """Return the text with a keyword at the end of a call."""
    lines = text.splitlines(keepends=True)
    assert call.end_lineno is not None and call.end_col_offset is not None
    end = call.end_col_offset - 1
    before = "".join(lines[: call.end_lineno - 1]) + lines[call.end_lineno - 1].encode()[:end].decode()
    comma = "" if before.rstrip().endswith((",", "(")) else ", "
    lines[call.end_lineno - 1] = _spliced(lines[call.end_lineno - 1], end, end, comma + keyword)
    return "".join(lines)


def _wrapped(text: str, node: ast.expr, behind: str) -> str:
    """Return the text with an expression in parentheses and something behind it."""
    lines = text.splitlines(keepends=True)
    assert node.end_lineno is not None and node.end_col_offset is not None
    end, begin = node.end_col_offset, node.col_offset
    lines[node.end_lineno - 1] = _spliced(lines[node.end_lineno - 1], end, end, f"){behind}")
    lines[node.lineno - 1] = _spliced(lines[node.lineno - 1], begin, begin, "(")
    return "".join(lines)


def _inserted(text: str, line: int, beside: ast.stmt, added: Sequence[str]) -> str:
    """Return the text with lines before the line of that number, indented as a statement is."""
    lines = text.splitlines(keepends=True)
    indent = " " * beside.col_offset
    lines[line - 1 : line - 1] = [f"{indent}{part}\n" for part in added]
    return "".join(lines)


def _spliced(line: str, begin: int, end: int, new: str) -> str:
    """Return a line with other text between two of the parser's offsets, which count bytes."""
    raw = line.encode()
    return (raw[:begin] + new.encode() + raw[end:]).decode()
