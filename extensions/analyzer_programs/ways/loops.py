"""The training loop in a program's text: where its statements stand, and how lines are put around them.

1. The forward pass is the simple statement with the model's call at the line that was recorded, and the
   assignments behind it in its block (the loss). A context manager goes around these; where they are all
   of a `with`, it is one more item of that.
2. Steps of an optimizer, and what belongs to them (`clip_grad_norm_`, `unscale_`, `update`, a scheduler's
   step, `zero_grad`), are the statements of the block in which `backward` is called. They go under a
   condition on the loop's counter, which is its own (`enumerate`, `range`), or one more.

A copy of a model (`copy.deepcopy`, as an EMA has it) must not call the original: nothing here puts a function
on a model that keeps the model in a closure or a default.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from analyzer.graph.calls import ModelCall
from analyzer_programs.ways.text import calls, spliced

Block = list[ast.stmt]
_STEPS = ("step", "zero_grad", "unscale_", "update", "clip_grad_norm_", "clip_grad_value_")
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)


def around_forward(text: str, model: ModelCall, context: str) -> str | None:
    """Return the text with a context manager around a model's forward pass and the loss of it, None where
    the text does not show where that is."""
    place = _forward(ast.parse(text), model)
    if place is None:
        return None
    owner, block, first, last = place
    whole = first == 0 and last == len(block) - 1
    if isinstance(owner, ast.With) and whole:
        item = owner.items[-1]
        end = item.optional_vars or item.context_expr
        lines = text.splitlines(keepends=True)
        row, column = (end.end_lineno or 0) - 1, end.end_col_offset or 0
        lines[row] = spliced(lines[row], column, column, f", {context}")
        return "".join(lines)
    return under(text, block[first], block[last], f"with {context}:")


def _forward(tree: ast.Module, model: ModelCall) -> tuple[ast.AST, Block, int, int] | None:
    """Return the forward pass: what its block belongs to, the block, and its first and last statement."""
    for owner, block in _blocks(tree):
        for first, statement in enumerate(block):
            if not isinstance(statement, _SIMPLE) or not _spans(statement, model.line):
                continue
            called = (node.func for node in calls(statement, (model.name,)))
            if not any(isinstance(func, ast.Name) for func in called):
                continue
            last = first
            while last + 1 < len(block) and _is_of_the_loss(block[last + 1]):
                last += 1
            return owner, block, first, last
    return None


def _spans(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or statement.lineno)


def _is_of_the_loss(statement: ast.stmt) -> bool:
    is_assignment = isinstance(statement, ast.Assign | ast.AnnAssign)
    return is_assignment and not any(calls(statement, ("backward", "item", *_STEPS)))


def _blocks(tree: ast.AST) -> Iterator[tuple[ast.AST, Block]]:
    """Yield every list of statements, with what it belongs to."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield node, block


def under(text: str, first: ast.stmt, last: ast.stmt, head: str) -> str:
    """Return the text with statements of one block under a head ("if ...:"), each on lines of its own."""
    lines = text.splitlines(keepends=True)
    begin, end = first.lineno - 1, last.end_lineno or last.lineno
    before = lines[begin].encode()[: first.col_offset].decode()
    indent = lines[begin][: len(lines[begin]) - len(lines[begin].lstrip())]
    behind = lines[end - 1].encode()[last.end_col_offset or 0 :].decode()
    inner = "".join(lines[begin:end])[len(before) :]
    inner = inner[: len(inner) - len(behind)]
    rest = behind.strip().lstrip(";").strip()
    comment = f"  {rest}" if rest.startswith("#") else ""
    changed = []
    if before.strip():
        changed.append(before.rstrip().rstrip(";").rstrip() + "\n")
    changed.append(f"{indent}{head}\n")
    changed += [f"{indent}    {inner.splitlines()[0]}\n"]
    changed += [f"    {line}\n" if line.strip() else "\n" for line in inner.splitlines()[1:]]
    changed[-1] = changed[-1].rstrip("\n") + f"{comment}\n"
    if rest and not comment:
        changed.append(f"{indent}{rest}\n")
    return "".join([*lines[:begin], *changed, *lines[end:]])


def stepped(text: str, by: int) -> str | None:
    """Return the text of a loop that makes a step for every so many backward passes, of the mean of their
    losses; None where the text does not show one loop with one loss and one optimizer's step."""
    tree = ast.parse(text)
    backward = list(calls(tree, ("backward",)))
    if len(backward) != 1 or backward[0].args or backward[0].keywords or _optimizers(tree) != 1:
        return None
    loop = _loop_around(tree, backward[0])
    block = loop and _with_backward(loop, backward[0])
    if not loop or not block:
        return None
    runs = list(_runs(block))
    if not any(calls(statement, ("zero_grad",)) for run in runs for statement in run):
        return None
    counter = _counter(loop)
    name = counter or _free(tree)
    for run in reversed(runs):
        is_before = run[-1].lineno < backward[0].lineno
        turn = f"if {name} % {by} == 0:" if is_before else f"if ({name} + 1) % {by} == 0:"
        text = under(text, run[0], run[-1], turn)
    return _finished(text, by, None if counter else loop, name)


def _finished(text: str, by: int, loop: ast.For | None, name: str) -> str | None:
    """Return the text with its loss divided, and with a counter for a loop that has none."""
    loss = next(calls(ast.parse(text), ("backward",))).func.value  # type: ignore[attr-defined]
    if loss.end_lineno != loss.lineno:
        return None
    lines = text.splitlines(keepends=True)
    row = loss.lineno - 1
    divided = f"({ast.unparse(loss)} / {by})"
    lines[row] = spliced(lines[row], loss.col_offset, loss.end_col_offset or 0, divided)
    if loop is not None:
        target, items = loop.target, loop.iter
        if target.lineno != items.end_lineno:
            return None
        row = target.lineno - 1
        named = ast.get_source_segment(text, target) or ast.unparse(target)
        named = f"({named})" if isinstance(target, ast.Tuple) and not named.startswith("(") else named
        source = ast.get_source_segment(text, items)
        whole = f"{name}, {named} in enumerate({source})"
        lines[row] = spliced(lines[row], target.col_offset, items.end_col_offset or 0, whole)
    return "".join(lines)


def _optimizers(tree: ast.Module) -> int:
    """Return how many optimizers the text makes."""
    return sum(
        any("optim" in ast.unparse(call.func).lower() for call in calls(node, None))
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
    )


def _loop_around(tree: ast.Module, call: ast.Call) -> ast.For | None:
    """Return the innermost loop around a call."""
    loops = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and node.lineno < call.lineno <= (node.end_lineno or 0)
    ]
    return max(loops, key=lambda node: node.lineno, default=None)


def _with_backward(loop: ast.For, call: ast.Call) -> Block | None:
    """Return the loop's own statements, if `backward` is called and steps are made among them."""
    is_here = any(isinstance(one, ast.Expr) and one.value is call for one in loop.body)
    is_step = any(_is_step(one) and any(calls(one, ("step",))) for one in loop.body)
    return loop.body if is_here and is_step else None


def _is_step(statement: ast.stmt) -> bool:
    value = getattr(statement, "value", None) if isinstance(statement, ast.Expr | ast.Assign) else None
    if not isinstance(value, ast.Call):
        return False
    called = value.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if name == "update":  # a meter's is for every part
        return any(word in ast.unparse(called).lower() for word in ("scaler", "ema"))
    return name in _STEPS


def _runs(block: Sequence[ast.stmt]) -> Iterator[Block]:
    """Yield the steps that follow one another directly."""
    run: Block = []
    for statement in block:
        if _is_step(statement):
            run.append(statement)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _counter(loop: ast.For) -> str:
    """Return the name of a loop's counter from 0; "" without one."""
    items, target = loop.iter, loop.target
    if not isinstance(items, ast.Call) or not isinstance(items.func, ast.Name) or items.keywords:
        return ""
    if len(items.args) != 1:
        return ""
    if items.func.id == "range" and isinstance(target, ast.Name):
        return target.id if target.id != "_" else ""
    is_pair = isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name)
    if items.func.id == "enumerate" and is_pair:
        return target.elts[0].id  # type: ignore[attr-defined,no-any-return]
    return ""


def _free(tree: ast.AST) -> str:
    """Return a name that the text does not use."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return next(name for name in ("i", "part", "part_of_batch") if name not in used)


def behind_branches(tree: ast.AST, assigned: ast.stmt, name: str, call_line: int) -> ast.stmt:
    """Return the statement behind which a name has its value on every path: an `if` around its assignment
    that does not read it further, else the assignment."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.If) or assigned is node or not _spans(node, assigned.lineno):
            continue
        reads = [
            part
            for part in ast.walk(node)
            if isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load)
        ]
        if any(part.lineno > (assigned.end_lineno or 0) for part in reads) or _spans(node, call_line):
            continue
        return node  # the walk is from the outermost
    return assigned
