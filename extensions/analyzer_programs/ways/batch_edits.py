"""Changes of a program's batch: where it stands in its arguments or its text, and what divides it.

1. Values of arguments whose name says that they are a batch; numbers that a name in the text says are one
   (keywords, variables, defaults of options); and numbers equal to the batch of a model's first call, where a
   call makes a tensor of them.
2. All of them are divided, or one alone: a validation may have a batch of its own.
3. **Accumulation**: the batch is divided, and the optimizer makes a step for every so many backward passes,
   of the mean of their losses. A Trainer's arguments say so (`gradient_accumulation_steps`), or an option of
   the program's own; else the text does, where one loop with one loss and one optimizer is in it: steps go
   under a condition (`loops.py`).

Nothing here says that a change helps, or that the program still runs: that is followed (`way_out.py`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from analyzer.graph.calls import ModelCall
from analyzer_programs.ways.loops import stepped
from analyzer_programs.ways.script_edits import TRAINERS_ARGUMENTS, Edit
from analyzer_programs.ways.text import calls, spliced, with_keyword

_MAKERS = ("randn", "rand", "randint", "zeros", "ones", "empty", "full", "randn_like")
_BATCH_OPTION = re.compile(r"--[\w-]*batch[\w-]*")
# A number of batches is none.
_BATCH_NAME = re.compile(r"(?i)^(?!.*batches)(?!(.*_)?(num|max|total|n)_batch)(.*batch.*|bsz?)$")
_ACCUMULATION = re.compile(r"--[\w-]*accum[\w-]*")
_SITES = 3
_NO_LOOP = (
    "the script does not show one loop with one loss and one optimizer: divide the batch, and step by hand"
)


def smaller(text: str, arguments: Sequence[str], models: Sequence[ModelCall], by: int) -> list[Edit]:
    """Return the changes that divide the batch, all of the program's or one alone."""
    edits = []
    changed = _smaller_arguments(arguments, by)
    name = f"batch divided by {by}"
    if changed is not None:
        edits.append(Edit(name, arguments=changed, numbers=True))
    numbers = _numbers(text, models)
    if all(value >= by for *_, value in numbers):
        if numbers:
            edits.append(Edit(name, _divided(text, numbers, by), numbers=True))
        if len({line for line, *_ in numbers}) > 1:
            for line in sorted({line for line, *_ in numbers}, reverse=True)[:_SITES]:
                alone = [number for number in numbers if number[0] == line]
                edits.append(
                    Edit(f"batch of line {line} divided by {by}", _divided(text, alone, by), numbers=True)
                )
    return edits


def accumulated(text: str, arguments: Sequence[str], models: Sequence[ModelCall], by: int) -> list[Edit]:
    """Return the changes that divide the batch and keep what the optimizer makes of it."""
    name = f"gradient accumulation, batch divided by {by}"
    divided = _smaller_arguments(arguments, by)
    option = next(iter(_ACCUMULATION.findall(text)), "")
    if option:
        divided = divided or _smaller_defaults(text, arguments, by)
    if divided is not None and option:
        before = _defaults(text, _ACCUMULATION).get(option, 1)
        return [Edit(name, arguments=_times(divided, option, by, before), numbers=True)]
    if divided is not None:
        changed = stepped(text, by)
        words = [word for word in divided if word not in arguments]
        name = f"{name} ({' '.join(words)} on the command line)"
        return [
            Edit(name, changed or "", divided if changed else None, True, why="" if changed else _NO_LOOP)
        ]
    numbers = _numbers(text, models)
    if not numbers or any(value < by for *_, value in numbers):
        return []
    smaller_text = _divided(text, numbers, by)
    tree = ast.parse(smaller_text)
    for node in calls(tree, TRAINERS_ARGUMENTS):
        given = {word.arg for word in node.keywords}
        if "per_device_train_batch_size" in given and "gradient_accumulation_steps" not in given:
            keyword = f"gradient_accumulation_steps={by}"
            return [Edit(name, with_keyword(smaller_text, node, keyword), numbers=True)]
    changed = stepped(smaller_text, by)
    return [Edit(name, changed, numbers=True)] if changed else [Edit(name, why=_NO_LOOP, numbers=True)]


def _defaults(text: str, pattern: re.Pattern[str]) -> dict[str, int]:
    """Return the options of the text's parser whose names a pattern matches, with their numbers."""
    numbers = {}
    for node in calls(ast.parse(text), ("add_argument",)):
        named = [str(word.value) for word in node.args if isinstance(word, ast.Constant)]
        option = next(filter(pattern.fullmatch, named), "")
        number = next((word.value for word in node.keywords if word.arg == "default"), None)
        if option and isinstance(number, ast.Constant) and type(number.value) is int:
            numbers[option] = number.value
    return numbers


def _smaller_defaults(text: str, arguments: Sequence[str], by: int) -> tuple[str, ...] | None:
    """Return the arguments with a smaller batch than the parser's default, None without one."""
    batches = _defaults(text, _BATCH_OPTION)
    if len(batches) != 1 or any(value < by for value in batches.values()):
        return None
    ((option, value),) = batches.items()
    return (*arguments, option, str(value // by))


def _times(arguments: Sequence[str], option: str, by: int, default: int) -> tuple[str, ...]:
    """Return the arguments with an option's number multiplied, its default where it is not among them."""
    changed = list(arguments)
    for name, place, before, value in _numbered(arguments):
        if name == option:
            changed[place] = f"{before}{value * by}"
            return tuple(changed)
    return (*changed, option, str(default * by))


def _numbers(text: str, models: Sequence[ModelCall]) -> list[tuple[int, int, int, int]]:
    """Return where the text's numbers are that are batches (line, begin, end), each with its value."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    batches = {model.batch for model in models if model.batch}
    constants = (*_batches_by_name(tree), *_batches_by_size(tree, batches))
    places = {(node.lineno, node.col_offset, node.end_col_offset or 0, value) for node, value in constants}
    return sorted(places)


def _divided(text: str, numbers: Sequence[tuple[int, int, int, int]], by: int) -> str:
    lines = text.splitlines(keepends=True)
    for line, begin, end, value in sorted(numbers, reverse=True):
        lines[line - 1] = spliced(lines[line - 1], begin, end, str(value // by))
    return "".join(lines)


def _smaller_arguments(arguments: Sequence[str], by: int) -> tuple[str, ...] | None:
    """Return the program's arguments with a smaller batch, None where none says one."""
    changed = list(arguments)
    for option, place, before, value in _numbered(arguments):
        if _BATCH_OPTION.fullmatch(option) and (value >= by or not before):
            changed[place] = f"{before}{max(value // by, 1)}"
    return None if changed == list(arguments) else tuple(changed)


def _numbered(arguments: Sequence[str]) -> Iterator[tuple[str, int, str, int]]:
    """Yield each option with a number: its name, the number's word, what stands before it there, and it."""
    for place, word in enumerate(arguments):
        option, equals, value = word.partition("=")
        following = "" if equals else next(iter(arguments[place + 1 : place + 2]), "")
        if value.isdigit():
            yield option, place, f"{option}=", int(value)
        elif following.isdigit():
            yield option, place + 1, "", int(following)


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
        elif isinstance(node, ast.FunctionDef) and node.args.defaults:
            named = node.args.args[-len(node.args.defaults) :]
            pairs = [(arg.arg, value) for arg, value in zip(named, node.args.defaults, strict=True)]
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
