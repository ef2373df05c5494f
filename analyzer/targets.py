"""Targets: a model file or a Python object is located, opened and built, but not yet analysed.

1. TARGET is `model.onnx`, `program.pt2`, `file.py[:attr]` or `package.module:attr`; the suffix before the
   last colon decides. `parse` needs neither torch nor onnx.
2. A Python target is the user's own program and is executed, with its folder importable as under `python
   file.py`. `attr` is an `nn.Module`, or a class or function that makes one when called without arguments;
   `make_model` when it is not given.
3. It is executed and built under the meta device, so that weights take no memory. A failure there is tried
   once more on the CPU (some constructors look at values), and only that attempt's error counts.
4. `make_batch(batch)` and `loss(output, *targets)` are picked up from the same file or module when they are
   there. A batch is (inputs, targets), either of them a tensor, a tuple of arguments, a dictionary or None;
   or one dictionary, whose model then computes its loss itself.
5. Code that raises is reported with its own source line, never with a traceback.

Not modelled: other effects of the code; arguments of constructors.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from analyzer.errors import (
    AnalyzerError,
    MissingDependencyError,
    TargetError,
    did_you_mean,
    file_like,
    hub_name,
    install,
)
from analyzer.files import UnreadableError
from analyzer.logs import without_ours
from analyzer.nested import strangers_in

if TYPE_CHECKING:
    from torch import nn

Kind = Literal["onnx", "python", "module", "pt2", "config"]
FORMS = "give model.onnx, file.py[:attr], package.module:attr, program.pt2, config.json or hf:ORG/NAME"
_BATCHES = (
    "return (inputs, targets): tensors, tuples of them, dictionaries by the names of forward's parameters, or"
    " None; or one dictionary with the labels in it"
)
DEFAULT_ATTRIBUTE = "make_model"
_MEND = "the same line fails under plain Python: mend it there"
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a model is: `path`, or `module` of `package.module:attr`; `attr`; `name` to show."""

    kind: Kind
    name: str
    path: Path | None = None
    module: str = ""
    attr: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """A PyTorch target, built.

    make_batch: batch (and length, if it takes one) -> (inputs, targets), on the meta device: inputs a tuple,
        or a mapping of what the model takes by name; targets a tuple. Their parts are tensors, or hold some
        (`nested.py`). None if the target does not say.
    own_batch: what it is called with where nobody gives a batch.
    is_file: it comes from a file or a module of the user's, whose code may do more than compute.
    loss: (output, *targets) -> scalar; None if the target does not say.
    """

    model: nn.Module
    make_batch: Callable[..., tuple[tuple[Any, ...] | Mapping[str, Any], tuple[Any, ...]]] | None = None
    loss: Callable[..., Any] | None = None
    own_batch: int = 1
    is_file: bool = False


def parse(text: str | os.PathLike[str]) -> Target:
    """Return the target `text` names, by the suffix before its last colon.

    Raises TargetError for a missing file, a folder, or no known form.
    """
    name = os.fspath(text)
    if not name:
        raise TargetError("the target is empty", FORMS)
    if _is_config(name):
        return Target("config", name)
    head, colon, attr = name.rpartition(":")
    if not colon or not (head.lower().endswith((".py", ".onnx", ".pt2")) or _MODULE.fullmatch(head)):
        head, colon, attr = name, "", ""
    suffix = Path(head).suffix.lower()
    if suffix in (".onnx", ".pt2", ".py"):
        path = Path(head)
        _require_file(path)
        if suffix == ".py":
            return Target("python", name, path, attr=attr or DEFAULT_ATTRIBUTE)
        if colon:
            raise TargetError(f"{head} has no attributes, so ':{attr}' means nothing", f"give {head} alone")
        return Target("onnx" if suffix == ".onnx" else "pt2", name, path)
    if colon and attr:
        return Target("module", name, module=head, attr=attr)
    path = Path(name)
    _require_file(path)
    raise TargetError(f"{name}: no kind of model is known by the suffix '{path.suffix}'", FORMS)


def _is_config(name: str) -> bool:
    """Return whether a target is a configuration: `hf:ORG/NAME`, JSON file, folder with one."""
    path = Path(name)
    return (
        name.startswith("hf:")
        or path.suffix.lower() == ".json"
        or (path.is_dir() and (path / "config.json").is_file())
    )


def load(target: Target, real: bool = False, trust: bool = False) -> Program:
    """Build a PyTorch target: its file is executed, under the meta device first. Raises TargetError, or
    MissingDependencyError without torch.

    real: on the CPU, with memory, as running the program itself would; its batches too. trust: an exported
        program may run code of its own.
    """
    require_torch(f"{target.name} is a PyTorch target")
    if target.kind == "pt2":
        return _exported(target, real, trust)
    if real:
        return _build(target, "cpu", real=True)
    try:
        return _build(target, "meta", real=False)
    except TargetError as error:
        if error.__cause__ is None:  # nothing was raised by the target's code: the CPU would not help
            raise
        return _build(target, "cpu", real=False)


def load_function(text: str) -> Callable[..., Any]:
    """Return the function `file.py:name` or `package.module:name` names. Raises TargetError."""
    require_torch(f"{text} is a PyTorch target")
    target = parse(text)
    with without_ours():
        function = _attribute(_execute(target), target)
    if not callable(function):
        raise TargetError(f"{text} is a {type(function).__name__}, not a function", "name a function")
    return function  # type: ignore[no-any-return]


def require_torch(what: str) -> None:
    """Raise MissingDependencyError without torch. `what`: reason that begins the sentence."""
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError(
            f"{what}, and torch is not installed",
            f"{install('torch')}, or export the model to ONNX, whose inference needs no torch",
        )


def describe_error(error: BaseException, path: Path | str | None) -> str:
    """Return `file.py:12: ValueError: message`, of the innermost line of `path` if any."""
    line = ""
    if path is not None:
        wanted = os.path.realpath(path)
        frames = [
            f for f in traceback.extract_tb(error.__traceback__) if os.path.realpath(f.filename) == wanted
        ]
        line = f"{path}:{frames[-1].lineno}: " if frames else ""
        if isinstance(error, SyntaxError) and error.filename and os.path.realpath(error.filename) == wanted:
            line = f"{path}:{error.lineno}: "
    return line + _in_a_line(error) + first_cause(error)


def _in_a_line(error: BaseException) -> str:
    """Return `ValueError: message`, the message's first line."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    first = next(iter(text.strip().splitlines()), "")
    return f"{type(error).__name__}{': ' if first else ''}{first}"


def first_cause(error: BaseException) -> str:
    """Return ` (first RuntimeError: message, library/file.py:12)` of the error that an import's failure was
    raised from, "" where that says all: a library that imports its parts late names only what it lacks."""
    cause = error
    while isinstance(error, ImportError) and cause.__cause__ is not None:
        cause = cause.__cause__
    if cause is error:
        return ""
    raised = traceback.extract_tb(cause.__traceback__)[-1:]
    where = "".join(f", {'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno}" for frame in raised)
    return f" (first {_in_a_line(cause)}{where})"


def _require_file(path: Path) -> None:
    """Raise TargetError for a folder, a missing file (with names like it) or no regular file."""
    if path.is_dir():
        inside = sorted(p.name for p in path.iterdir() if p.suffix in (".onnx", ".py", ".pt2"))[:3]
        raise TargetError(
            f"{path} is a folder", f"give a file in it, such as {path / inside[0]}" if inside else FORMS
        )
    if not path.exists():
        raise TargetError(
            f"{path}: no such file", (hub_name(str(path)) or file_like(path, 3)).strip() or FORMS
        )
    if not path.is_file():
        raise TargetError(f"{path} is not a regular file", FORMS)


def _build(target: Target, device: str, real: bool) -> Program:
    """Build the module that a target names. Raises TargetError."""
    import torch
    from torch import nn

    with torch.device(device), without_ours():
        namespace = _execute(target)
        attribute = _attribute(namespace, target)
        if not isinstance(attribute, nn.Module):
            attribute = _call_factory(attribute, target)
    if not isinstance(attribute, nn.Module):
        hint = f"{target.attr} must be, or return, a torch.nn.Module"
        raise TargetError(f"{target.name}: {target.attr} gave {_kind_of(attribute)}, which is no model", hint)
    make_batch, loss = getattr(namespace, "make_batch", None), getattr(namespace, "loss", None)
    return Program(
        attribute,
        _batch_maker(make_batch, target, real) if callable(make_batch) else None,
        loss if callable(loss) else None,
        is_file=True,
    )


def _execute(target: Target) -> ModuleType:
    """Return the target's module, executed. A file is executed afresh, a package module imported."""
    if target.path is not None and target.attr == DEFAULT_ATTRIBUTE:
        _require_default(target.path)
    folder = str(target.path.resolve().parent) if target.path else str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)  # and it stays: the target may import its neighbours when it runs
    with _reporting(target, "cannot be imported"):
        if target.path is None:
            return importlib.import_module(target.module)
        name = f"analyzer_target_{target.path.stem}"
        spec = importlib.util.spec_from_file_location(name, target.path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # Dataclasses and pickling look the module up by name while it runs.
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module


def _require_default(path: Path) -> None:
    """Raise TargetError, with nothing executed, for a script without make_model() or a name like it."""
    text = path.read_text(encoding="utf-8", errors="replace")
    own = re.findall(r"^(?:def|class)\s+([A-Za-z]\w*)", text, re.MULTILINE)
    set_by_code = rf"{DEFAULT_ATTRIBUTE}|import\s*\*|globals\(|vars\(|exec\(|__getattr__"
    if re.search(set_by_code, text) or did_you_mean(DEFAULT_ATTRIBUTE, own, 3) or not _parses(text):
        return
    raise TargetError(f"{path} has no function {DEFAULT_ATTRIBUTE}()", _naming(str(path), own, text))


def _parses(text: str) -> bool:
    """Return whether a text is valid Python."""
    try:
        compile(text, "", "exec", ast.PyCF_ONLY_AST)
    except (SyntaxError, ValueError):
        return False
    return True


def _naming(where: str, names: list[str], text: str) -> str:
    """Return a hint for a file in which no model is named: what to define, and how a script that trains as it
    is is followed, and its largest batch found. text: the file's, whose own option for a batch is named."""
    listed = f"; it defines {', '.join(names[:8])}" if names else ""
    own = re.search(r"""["'](--[\w-]*batch[\w-]*)["']""", text)
    option = own[1] if own else "--batch-size"
    return (
        f"define {DEFAULT_ATTRIBUTE}() in it, or name the model: {where}:attr{listed}; a whole script:"
        f" analyze run --device NAME {where}; its largest batch: analyze fit --vary={option} --device NAME"
        f" {where}"
    )


def _attribute(namespace: ModuleType, target: Target) -> Any:
    value: Any = namespace
    for part in target.attr.split("."):
        if not hasattr(value, part):
            public = [name for name in dir(value) if not name.startswith("_")]
            where = target.path or target.module
            raise TargetError(
                f"{where} has no attribute {target.attr!r}", _attribute_hint(target, part, public, namespace)
            )
        value = getattr(value, part)
    return value


def _attribute_hint(target: Target, part: str, public: list[str], namespace: ModuleType) -> str:
    near = did_you_mean(part, public, 3)
    if near:
        return near.strip()
    own = [
        name
        for name in public
        if getattr(getattr(namespace, name, None), "__module__", None) == namespace.__name__
    ]
    text = target.path.read_text(encoding="utf-8", errors="replace") if target.path else ""
    return _naming(str(target.path or target.module), own, text)


def _call_factory(factory: Any, target: Target) -> Any:
    """Return what the attribute makes. Raises TargetError if it is no callable or needs arguments."""
    if not callable(factory):
        hint = f"{target.attr} must be a torch.nn.Module, or a class or function that makes one"
        raise TargetError(f"{target.name}: {target.attr} is {_kind_of(factory)}, which is no model", hint)
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        parameters = ()  # type: ignore[assignment]
    needed = [
        p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed:
        raise TargetError(
            f"{target.name}: {target.attr} needs arguments: {', '.join(needed)}",
            "write a function make_model() that calls it with them",
        )
    with _reporting(target, f"{target.attr}() failed"):
        return factory()


def _batch_maker(
    function: Callable[..., Any], target: Target, real: bool
) -> Callable[..., tuple[tuple[Any, ...] | Mapping[str, Any], tuple[Any, ...]]]:
    """Wrap `make_batch`: made on `meta` if it can be, its return checked and as (inputs, targets)."""

    @functools.wraps(function)
    def make_batch(batch: int, *length: int) -> tuple[tuple[Any, ...] | Mapping[str, Any], tuple[Any, ...]]:
        import torch

        try:
            with torch.device("cpu" if real else "meta"):
                result = function(batch, *length)
        except Exception:
            with torch.device("cpu"), _reporting(target, f"make_batch({batch}) failed"):
                result = function(batch, *length)
        if isinstance(result, Mapping) or hasattr(result, "shape") or result is None:
            result = result, None  # a batch that has its targets in it, or none
        if not isinstance(result, tuple) or len(result) != 2:
            raise TargetError(f"{target.name}: make_batch({batch}) returned {_kind_of(result)}", _BATCHES)
        inputs, targets = arguments(result[0]), arguments(result[1])
        if isinstance(targets, Mapping):
            targets = (targets,)
        for part in (*((inputs,) if isinstance(inputs, Mapping) else inputs), *targets):
            for stranger in strangers_in(part):
                raise TargetError(
                    f"{target.name}: make_batch({batch}) returned {_kind_of(stranger)} among its tensors",
                    _BATCHES,
                )
        return inputs, targets

    return make_batch


def arguments(part: Any) -> tuple[Any, ...] | Mapping[str, Any]:
    """Return the arguments a model or loss is called with: positional, or by name."""
    if part is None:
        return ()
    if isinstance(part, Mapping):
        return part
    # A list of dictionaries (a detector's targets, one an image) is one argument.
    several = isinstance(part, tuple) or (isinstance(part, list) and all(hasattr(x, "shape") for x in part))
    return tuple(part) if several else (part,)


def _exported(target: Target, real: bool, trust: bool) -> Program:
    """Return an exported program as a module, with its sample inputs at any batch. Raises TargetError."""
    from analyzer.exported.batches import batches_of
    from analyzer.exported.loading import RunsCodeError, load

    assert target.path is not None
    what, hint = "cannot be opened as a torch.export program", "save it with torch.export.save(program, path)"
    with _reporting(target, what, hint):
        try:
            program = _trusted(target.path) if trust else load(target.path, real)
            module = program.module()
        except UnreadableError as error:
            raise TargetError(f"{target.name} {what}: {error}", hint) from None
        except RunsCodeError as error:
            raise TargetError(
                f"{target.name} runs code of its own when it is opened: {error}",
                "if you know where it comes from: --trust",
            ) from None
    own, make_batch = batches_of(target.name, program, "cpu" if real else "meta")
    return Program(module, make_batch, own_batch=own, is_file=trust)


def _trusted(path: Path) -> Any:
    """Return the exported program as PyTorch loads it, which runs what the file names."""
    import torch

    logging.disable(logging.CRITICAL)  # torch logs the traceback of what is said in one line here
    try:
        return torch.export.load(str(path))
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def _reporting(target: Target, what: str, hint: str = "") -> Iterator[None]:
    """Turn the user's exceptions into one TargetError with its source line."""
    try:
        yield
    except (AnalyzerError, KeyboardInterrupt, MemoryError):
        raise
    except SystemExit as error:
        raise TargetError(
            f"{target.name} {what}: it ended the program (exit code {error.code})",
            "put what the file runs under `if __name__ == '__main__':`",
        ) from error
    except ModuleNotFoundError as error:
        package = missing_package(error)
        if target.module and package == target.module.partition(".")[0]:
            raise TargetError(
                f"no module named {error.name}", "check the name, or run where it can be imported"
            ) from error
        raise TargetError(
            f"{target.name} {what}: {describe_error(error, target.path)}",
            f"install {package} in this environment" if package else _MEND,
        ) from error
    except Exception as error:
        where = target.path or _file_of(target.module)
        raise TargetError(
            f"{target.name} {what}: {describe_error(error, where)}",
            hint or _MEND,
        ) from error


def missing_package(error: BaseException) -> str:
    """Return the package an ImportError lacks, also through another library's; "" if unknown."""
    cause: BaseException | None = error
    while cause is not None:
        name = getattr(cause, "name", None) if isinstance(cause, ImportError) else None
        quoted = re.search(r"No module named '([\w.]+)'", str(cause))
        if name or quoted:
            return str(name or quoted[1]).partition(".")[0]  # type: ignore[index]
        cause = cause.__cause__ or cause.__context__
    return ""


def _file_of(module: str) -> str | None:
    """Return the file a module would come from, without importing it anew."""
    loaded = sys.modules.get(module)
    return getattr(loaded, "__file__", None)


def _kind_of(value: Any) -> str:
    if value is None:
        return "nothing (None)"
    if isinstance(value, (tuple, list, Mapping)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
