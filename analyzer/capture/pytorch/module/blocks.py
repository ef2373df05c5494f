"""The blocks a model repeats, and modules by a pattern: what checkpointing recomputes, what FSDP2 shards
together.

1. **By pattern**: modules whose dotted path matches (`layer*`, `blocks.?`; `fnmatch` rules); a match inside a
   match is left alone. A container that is never called itself (`ModuleList`, `ModuleDict`) stands for the
   modules in it.
2. **Repeated**: a model of Hugging Face names the classes of its blocks (`_no_split_modules`). Otherwise they
   are the children of the containers whose children (at least `LEAST_BLOCKS`) are all of one class and
   blocks: more than a layer, and run themselves. Of containers inside one another the outermost counts.
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import torch

from analyzer.errors import OptionError

LEAST_BLOCKS = 2


def matching(model: torch.nn.Module, pattern: str, what: str) -> dict[str, torch.nn.Module]:
    """Return the modules that match by path. Raises OptionError if none does; what: names the pattern."""
    matched: dict[str, torch.nn.Module] = {}
    containers: set[str] = set()
    for path, part in model.named_modules():
        inside = any(path.startswith(f"{outer}.") for outer in matched)
        is_match = path.rpartition(".")[0] in containers or fnmatch.fnmatchcase(path, pattern)
        if not path or inside or not is_match:
            continue
        if not _runs(part):
            containers.add(path)
            continue
        matched[path] = part
    if not matched:
        children = ", ".join(name for name, _ in model.named_children())
        raise OptionError(
            f"no module matches the {what} pattern {pattern!r}", f"top-level modules: {children}"
        )
    return matched


def matching_any(model: torch.nn.Module, patterns: str, what: str) -> dict[str, torch.nn.Module]:
    """Path -> module of those that match one of several patterns, separated by commas; a match inside a match
    is left alone. Raises OptionError for a pattern that nothing matches."""
    by_path: dict[str, torch.nn.Module] = {}
    for pattern in patterns.split(","):
        by_path |= matching(model, pattern.strip(), what)
    return _outermost({path: by_path[path] for path in sorted(by_path, key=lambda path: path.count("."))})


def pattern_of(model: torch.nn.Module, paths: Sequence[str]) -> str:
    """Return the patterns that match these modules and no others, as `matching_any` takes them: numbers
    beside one another as a range of digits, a container's modules, where all are meant, as `*`."""
    beside: dict[str, list[str]] = {}
    for path in paths:
        beside.setdefault(path.rpartition(".")[0], []).append(path)
    patterns: list[str] = []
    for container, members in beside.items():
        inside = f"{container}." if container else ""
        names = [path.removeprefix(inside) for path in members]
        everyone = {name for name, _ in model.get_submodule(container).named_children()}
        patterns += (
            [f"{inside}*"] if everyone == set(names) else [f"{inside}{name}" for name in _ranges(names)]
        )
    pattern = ",".join(patterns)
    if set(matching_any(model, pattern, "checkpoint")) != set(paths):
        return ",".join(paths)
    return pattern


def _ranges(names: Sequence[str]) -> list[str]:
    """Names, with those that differ in the last digit alone as one pattern: "1[0-3]" for 10, 11, 12, 13."""
    tens: dict[str, list[str]] = {}
    for name in names:
        if name[-1:].isdecimal():
            tens.setdefault(name[:-1], []).append(name[-1])
    ranges = [name for name in names if not name[-1:].isdecimal()]
    for before, digits in tens.items():
        ordered = sorted(digits)
        runs = int(ordered[-1]) - int(ordered[0]) == len(ordered) - 1
        last = (
            ordered[0]
            if len(ordered) == 1
            else f"[{ordered[0]}-{ordered[-1]}]"
            if runs
            else f"[{''.join(ordered)}]"
        )
        ranges.append(f"{before}{last}")
    return ranges


def repeated(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Path -> module of the blocks the model repeats, in its own order; none where nothing repeats."""
    named = set(getattr(model, "_no_split_modules", None) or ())
    of_class = {path: part for path, part in model.named_modules() if path and type(part).__name__ in named}
    counts = Counter(type(part) for part in of_class.values())
    repeated_blocks = {path: part for path, part in of_class.items() if counts[type(part)] >= LEAST_BLOCKS}
    if repeated_blocks:
        return _outermost(repeated_blocks)
    blocks: dict[str, torch.nn.Module] = {}
    for path, part in model.named_modules():
        if is_stack(part):
            blocks |= {f"{path}.{name}" if path else name: child for name, child in part.named_children()}
    return _outermost(blocks)


def stacks(model: torch.nn.Module) -> dict[str, list[str]]:
    """Return the blocks of every stack in the model by `--checkpoint` pattern, and similar ones together."""
    by_pattern: dict[str, list[str]] = {}
    for path, part in model.named_modules():
        if is_stack(part):
            inside = f"{path}." if path else ""
            by_pattern[f"{inside}*"] = [f"{inside}{name}" for name, _ in part.named_children()]
    together: dict[str, list[str]] = {}
    for length in {len(pattern) for pattern in by_pattern}:
        compatible = [pattern for pattern in by_pattern if len(pattern) == length]
        columns = ("".join(dict.fromkeys(letters)) for letters in zip(*compatible, strict=True))
        pattern = "".join(letters if len(letters) == 1 else f"[{letters}]" for letters in columns)
        blocks = [block for stack in compatible for block in by_pattern[stack]]
        if len(compatible) > 1 and list(matching(model, pattern, "checkpoint")) == blocks:
            together[pattern] = blocks
    return by_pattern | together


def is_stack(part: torch.nn.Module) -> bool:
    """Return whether the module's children, at least two, are all of one class, and blocks."""
    children = dict(part.named_children())
    kinds = {type(child) for child in children.values()}
    return len(children) >= LEAST_BLOCKS and len(kinds) == 1 and _are_blocks(children)


def patterns(paths: Iterable[str]) -> list[str]:
    """Return the paths with numbers as `*`, without repetition, for reports on many blocks."""
    return list(dict.fromkeys(re.sub(r"(?<![^._])\d+(?=\.|$)", "*", path) for path in paths))


def _outermost(blocks: Mapping[str, torch.nn.Module]) -> dict[str, torch.nn.Module]:
    kept: dict[str, torch.nn.Module] = {}
    for path, part in blocks.items():
        if not any(path.startswith(f"{outer}.") for outer in kept):
            kept[path] = part
    return kept


def _are_blocks(blocks: Mapping[str, torch.nn.Module]) -> bool:
    """Return whether modules are blocks: more than a layer each, and run (unlike a module list)."""
    return all(any(True for _ in block.children()) and _runs(block) for block in blocks.values())


def _runs(part: torch.nn.Module) -> bool:
    return type(part).forward is not torch.nn.Module.forward
