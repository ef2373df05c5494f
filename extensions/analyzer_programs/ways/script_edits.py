"""Changes of a program's text that may make it take less, each of a few lines.

1. A line is put behind the last assignment of the model's variable before its first call, and behind the
   `if` that this is in: checkpointing of the blocks it repeats (`torch.utils.checkpoint`), weights in half
   precision; and, of a model that no optimizer trains, that its parameters need no gradients.
2. A keyword of a call is added or replaced: an optimizer's `fused`, a Trainer's arguments (transformers'
   `TrainingArguments`); an optimizer with states is replaced by one with smaller ones (bitsandbytes' 8-bit
   AdamW where it is installed, `torch.optim.Adafactor`, SGD).
3. A context manager goes around the forward pass and its loss (`loops.py`), or into the model's `forward`
   where the text does not show them: saved tensors wait in host memory
   (`torch.autograd.graph.save_on_cpu`), autocast, no gradients. A loss is computed in parts, each of them
   again in the backward pass.
4. Tensors summed or collected with their graph are detached; a function that only evaluates gets
   `@torch.no_grad()`. Tensors kept alive only by a cycle or an exception are released (`gc.collect`,
   `traceback.clear_frames`).

Changes of the batch are in `batch_edits.py`. Whether a change helps, and the program still runs and trains,
is checked by following it (`way_out.py`).
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from analyzer.graph.calls import ModelCall
from analyzer.results.estimate import UNREAD
from analyzer_programs.ways.loops import around_forward, behind_branches
from analyzer_programs.ways.text import calls, inserted, spliced, with_keyword, wrapped

TRAINERS_ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig")
# A packed tensor waits in host memory until the backward pass unpacks it (`torch/autograd/graph.py`).
_OFFLOADED = "torch.autograd.graph.save_on_cpu()"
_AUTOCAST = 'torch.autocast("cuda", torch.bfloat16)'
# A partial of a method is copied with its model (`copy._deepcopy_method`); a closure keeps the original.
# transformers' Trainer reads the signature of `forward` (`_set_signature_columns_if_needed`).
_INSIDE = """import functools
def inside(forward, *args, **kwargs):
    with {context}:
        return forward(*args, **kwargs)
{name}.forward = functools.update_wrapper(functools.partial(inside, {name}.forward), {name}.forward)"""
# Each part is computed again in the backward pass: what a loss saves is never there for all of them.
_IN_PARTS = (
    "def in_parts(x, y, of=torch.nn.functional.cross_entropy):",
    "    from torch.utils.checkpoint import checkpoint",
    "    parts = zip(x.chunk(8), y.chunk(8), strict=True)",
    "    return sum(checkpoint(of, a, b, use_reentrant=False) * len(b) for a, b in parts) / len(y)",
)
_OPTIMIZERS = ("SGD", "Adam", "AdamW", "Adagrad")  # those with fused kernels (torch/optim)


@dataclass(frozen=True, slots=True)
class Edit:
    """One change. name: what it does. text: the program's text with it, "" where that stays; arguments: its
    arguments, None where they stay. numbers: whether it changes the numbers that are computed. cuts: it takes
    tensors out of their graph, which may be one that a backward pass goes through. why: why the text could
    not be changed so, "" where it is."""

    name: str
    text: str = ""
    arguments: tuple[str, ...] | None = None
    numbers: bool = False
    cuts: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Symptoms:
    """Symptoms of a program that runs out of memory. trains: it has a backward pass. vain: the line (its
    number) that makes most of what grows, "" without; held_by: its holder. exception, cycle: frames of an
    exception, or reference cycles, keep memory. half: its forward pass is in half precision already."""

    trains: bool
    vain: str = ""
    held_by: str = ""
    exception: bool = False
    cycle: bool = False
    half: bool = False


def edits(text: str, models: Sequence[ModelCall], symptoms: Symptoms) -> list[Edit]:
    """Return the changes, those first that change nothing of what is computed."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    named = [model for model in models if model.name and model.parameters]
    changes = [*_kept(text, tree, symptoms)]
    if symptoms.vain.isdigit() and symptoms.held_by in ("", *UNREAD[:2]):
        changes += _released(text, tree, int(symptoms.vain), symptoms.held_by)
    if not symptoms.trains:
        changes += [
            edit for model in named[:1] if model.gradients for edit in _without_gradients(text, tree, model)
        ]
    else:
        untrained = [model for model in named if model.optimized is False and model.gradients]
        line = "{name}.requires_grad_(False)"
        changes += _after(text, tree, untrained, "no gradients of what no optimizer trains", line)
        changes += _optimizers(text, tree)
        changes += _trainer(text, tree, {"gradient_checkpointing": True})
        changes += _blocks(text, tree, named)
        if not symptoms.vain:  # where a graph is kept by mistake, the host would keep it
            trained = [model for model in named if model.gradients and model.optimized is not False]
            changes += _around(text, tree, trained, "saved tensors wait on the host", _OFFLOADED)
    changes += _trainer(text, tree, {"eval_accumulation_steps": 1})
    if symptoms.trains:
        changes += _in_parts(text, tree)
        if not symptoms.half:
            changes += _trainer(text, tree, {"bf16": True}, numbers=True)
            changes += _around(text, tree, named[:1], "autocast bf16", _AUTOCAST, numbers=True)
        changes += _smaller_states(text, tree)
    else:
        changes += _after(text, tree, named, "weights in bf16", "{name}.to(torch.bfloat16)", numbers=True)
    changes = [_with_torch(edit, tree) for edit in changes]
    return [edit for edit in changes if edit.why or (edit.text != text and _parses(edit.text))]


def _with_torch(edit: Edit, tree: ast.Module) -> Edit:
    """Return the change with an import of torch, where its lines are the first that need one."""
    imports = (name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names)
    bound = {name.asname or name.name.partition(".")[0] for name in imports}
    begin = next((node for node in tree.body if not _is_head(node)), None)
    if "torch" in bound or begin is None or not edit.text or "torch." not in edit.text:
        return edit
    return replace(edit, text=inserted(edit.text, begin.lineno, begin, ["import torch"]))


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _released(text: str, tree: ast.Module, line: int, held_by: str) -> Iterator[Edit]:
    """Yield ways to let go of what is kept by a sum, a list, or an evaluation's variables."""
    function = next(
        (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
        ),
        None,
    )
    parts = ast.walk(function) if function is not None else ()
    in_graph = held_by in ("", UNREAD[1])
    if (
        in_graph
        and function is not None
        and function.name not in ("forward", "__init__", "__call__")
        and not any(isinstance(node, ast.Attribute) and node.attr in ("backward", "step") for node in parts)
    ):
        begins = min([function.lineno, *(node.lineno for node in function.decorator_list)])
        changed = inserted(text, begins, function, ["@torch.no_grad()"])
        yield Edit("no_grad around the evaluation", changed, cuts=True)
    for node in ast.walk(tree):
        if in_graph and isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            changed = wrapped(text, node.value, ".detach()")
            yield Edit("what is summed is detached", changed, cuts=True)
        is_append = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args
        if is_append and node.func.attr == "append":  # type: ignore[attr-defined]
            value = node.args[0]  # type: ignore[attr-defined]
            if in_graph:
                changed = wrapped(text, value, ".detach()")
                yield Edit("what is collected is detached", changed, cuts=True)
            changed = wrapped(text, value, ".detach().cpu()")
            yield Edit("what is collected goes to the host", changed, cuts=True)


def _kept(text: str, tree: ast.Module, symptoms: Symptoms) -> Iterator[Edit]:
    """Yield ways to let go of what an exception or a cycle keeps."""
    if symptoms.exception:
        clears = "import sys, traceback; traceback.clear_frames(sys.exc_info()[2])"
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler):
                begin = node.body[0]
                changed = inserted(text, begin.lineno, begin, [clears])
                yield Edit("frames of the exception are cleared", changed)
    if symptoms.cycle and symptoms.vain.isdigit():
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr, ast.Return)):
                continue
            if node.lineno <= int(symptoms.vain) <= (node.end_lineno or 0):
                changed = inserted(text, node.lineno, node, ["import gc; gc.collect()"])
                yield Edit("garbage is collected in every step", changed)


def _in_parts(text: str, tree: ast.Module) -> Iterator[Edit]:
    """Yield the program with a loss that is computed in parts, each of them again in the backward pass."""
    losses = [
        node.func
        for node in calls(tree, ("cross_entropy",))
        if len(node.args) == 2 and not node.keywords and node.func.end_lineno == node.func.lineno
    ]
    begin = next((node for node in tree.body if not _is_head(node)), None)
    if losses and begin is not None:
        lines = text.splitlines(keepends=True)
        for func in sorted(losses, key=lambda func: (func.lineno, func.col_offset), reverse=True):
            lines[func.lineno - 1] = spliced(
                lines[func.lineno - 1], func.col_offset, func.end_col_offset or 0, "in_parts"
            )
        yield Edit("loss in 8 parts", inserted("".join(lines), begin.lineno, begin, _IN_PARTS), numbers=True)


def _is_head(node: ast.stmt) -> bool:
    """Return whether a statement is a module's docstring or an import."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or isinstance(node, (ast.Import, ast.ImportFrom))


def _smaller_states(text: str, tree: ast.Module) -> Iterator[Edit]:
    """Yield the program with an optimizer whose states are smaller."""
    others = ["torch.optim.Adafactor", "torch.optim.SGD"]
    if importlib.util.find_spec("bitsandbytes") is not None:
        others.insert(0, '__import__("bitsandbytes").optim.AdamW8bit')
    for node in calls(tree, ("Adam", "AdamW")):
        for other in others:
            lines = text.splitlines(keepends=True)
            func = node.func
            if func.end_lineno == func.lineno:
                lines[func.lineno - 1] = spliced(
                    lines[func.lineno - 1], func.col_offset, func.end_col_offset or 0, other
                )
                yield Edit(f"optimizer {other.rpartition('.')[2]}", "".join(lines), numbers=True)


def _without_gradients(text: str, tree: ast.Module, model: ModelCall) -> Iterator[Edit]:
    outer = next((node for node in tree.body if node.lineno <= model.line <= (node.end_lineno or 0)), None)
    if outer is not None and not isinstance(outer, (ast.FunctionDef, ast.ClassDef)):
        changed = inserted(text, outer.lineno, outer, ["torch.set_grad_enabled(False)"])
        yield Edit("no gradients", changed)
    else:
        yield from _around(text, tree, [model], "no gradients", "torch.no_grad()")


def _optimizers(text: str, tree: ast.Module) -> Iterator[Edit]:
    for node in calls(tree, _OPTIMIZERS):
        if not any(word.arg in ("fused", "foreach") for word in node.keywords):
            for keyword in ("fused=True", "foreach=False"):
                yield Edit(f"optimizer with {keyword}", with_keyword(text, node, keyword))


def _trainer(
    text: str, tree: ast.Module, settings: Mapping[str, object], numbers: bool = False
) -> Iterator[Edit]:
    for node in calls(tree, TRAINERS_ARGUMENTS):
        given = {word.arg: word.value for word in node.keywords}
        for name, value in settings.items():
            if name not in given:
                yield Edit(f"{name}={value}", with_keyword(text, node, f"{name}={value}"), numbers=numbers)


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
        ]
        made = [node for node in made if node.lineno < model.line] or made
        if not made:
            yield Edit(name, why=f"the script does not assign `{model.name}`, the model")
            return
        last = behind_branches(tree, max(made, key=lambda node: node.lineno), model.name, model.line)
        added = lines.replace("{name}", model.name).split("\n")
        changed = inserted(changed, (last.end_lineno or last.lineno) + 1 + _added(text, changed), last, added)
    if models:
        yield Edit(name, changed, numbers=numbers)


def _around(
    text: str,
    tree: ast.Module,
    models: Sequence[ModelCall],
    name: str,
    context: str,
    numbers: bool = False,
) -> Iterator[Edit]:
    """Yield the program with a context manager around the forward passes of models and their losses."""
    changed: str | None = text
    for model in sorted(models, key=lambda model: model.line, reverse=True):
        changed = around_forward(changed, model, context) if changed else None
    if changed and models:
        yield Edit(name, changed, numbers=numbers)
    else:
        yield from _after(text, tree, models, name, _INSIDE.replace("{context}", context), numbers=numbers)


def _added(text: str, changed: str) -> int:
    """Return by how many lines a text has grown; models are in the order of their assignments."""
    return changed.count("\n") - text.count("\n")
