"""Libraries in C that open files by themselves: they are given the path in the overlay.

Not modelled: other such libraries. Under Landlock they are refused what they would write; without it they
write outside.
"""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from analyzer_sandbox.databases import connection_type
from analyzer_sandbox.importing import Pairs, exchange_all, once_imported
from analyzer_sandbox.layer import Layer

Function = Callable[..., Any]
_FACTORY = 5  # the place of `factory` among the arguments of `sqlite3.connect`


def _of_mode(*arguments: Any, mode: str | None = None, **_: Any) -> str:
    return {"r": "reads", "w": "makes", "x": "makes", "w-": "makes"}.get(
        (arguments[1:2] or (mode,))[0] or "r", "changes"
    )


def _of_sharing(*arguments: Any, shared: bool | None = False, **_: Any) -> str:
    return "changes" if any(arguments[1:2]) or shared else "reads"


# The module, the function or class in it, which of its arguments is the path (by number and by name), and
# what is done to the file.
_LIBRARIES: tuple[tuple[str, str, int, str, str | Function], ...] = (
    ("_sqlite3", "connect", 0, "database", "changes"),
    ("h5py._hl.files", "make_fid", 0, "name", _of_mode),
    ("safetensors", "safe_open", 0, "filename", "reads"),
    ("safetensors", "serialize_file", 1, "filename", "makes"),
    ("tokenizers", "Tokenizer.save", 1, "path", "makes"),
    ("tokenizers", "Tokenizer.from_file", 0, "path", "reads"),
    ("tokenizers.models", "Model.save", 1, "folder", "changes"),
    ("torch._C", "PyTorchFileWriter", 0, "filename", "makes"),
    ("torch._C", "PyTorchFileReader", 0, "filename", "reads"),
    ("torch._C", "ScriptModule.save", 1, "filename", "makes"),
    ("torch._C", "ScriptFunction.save", 1, "filename", "makes"),
    ("torch._C", "import_ir_module", 1, "filename", "reads"),
    # Of a module that torch._C makes later than it is imported.
    ("torch.autograd.profiler", "torch._C._autograd._ProfilerResult.save", 1, "path", "makes"),
    ("torch", "from_file", 0, "filename", _of_sharing),
    ("torch", "UntypedStorage.from_file", 0, "filename", _of_sharing),
    ("pyarrow", "memory_map", 0, "path", _of_mode),
    ("cv2", "imread", 0, "filename", "reads"),
    ("cv2", "imwrite", 0, "filename", "makes"),
)


class _Paths:
    """Maps the paths libraries open into the overlay. aside, work: as in `functions.py`."""

    def __init__(
        self,
        layer: Layer,
        aside: Callable[[], bool],
        work: Callable[..., contextlib.AbstractContextManager[None]],
    ) -> None:
        self._layer, self.is_bypassed, self._work = layer, aside, work

    def in_overlay(self, path: Any, how: str) -> str | bytes:
        """Return the overlay's path. how: what the library does ("reads", "makes", ...)."""
        with self._work(path):
            text, before, mark, options = os.fsdecode(path), "", "", ""
            if text.startswith("file:"):  # SQLite's: file:PATH?mode=ro
                before = "file:"
                text, mark, options = text.removeprefix(before).partition("?")
            place = self._layer.place(text)
            does: dict[str, Callable[[str], str]] = {
                "reads": self._layer.reading,
                "makes": self._layer.truncating,
                "changes": self._layer.changing,
            }
            name = before + does[how](place) + mark + options
        return os.fsencode(name) if isinstance(path, bytes) else name

    def replacement(self, original: Any, index: int, name: str, how: str | Function) -> Any:
        """Return a function or class that gets the overlay's path, as `_LIBRARIES` says."""

        def given(
            arguments: tuple[Any, ...], named: dict[str, Any]
        ) -> tuple[tuple[Any, ...], dict[str, Any]]:
            path = arguments[index] if len(arguments) > index else named.get(name)
            if (
                self.is_bypassed()
                or not isinstance(path, (str, bytes, os.PathLike))
                or os.fsdecode(path) in ("", ":memory:")
            ):
                return arguments, named
            new = self.in_overlay(path, how(*arguments, **named) if callable(how) else how)
            if len(arguments) > index:
                return (*arguments[:index], new, *arguments[index + 1 :]), named
            return arguments, {**named, name: new}

        def call(*arguments: Any, **named: Any) -> Any:
            arguments, named = given(arguments, named)
            return original(*arguments, **named)

        if isinstance(original, type):
            function: Any = original
            begin = function.__init__

            def begun(self: Any, *arguments: Any, **named: Any) -> None:
                arguments, named = given(arguments, named)
                begin(self, *arguments, **named)

            with contextlib.suppress(TypeError):  # a class nobody may derive from
                return type(original)(original.__name__, (original,), {"__init__": begun})
        return call


def _attaching(connect: Function, sqlite: ModuleType, paths: _Paths) -> Function:
    """Return `sqlite3.connect` whose connections' statements name files in the overlay."""

    def in_overlay(path: str) -> str:
        return path if paths.is_bypassed() else str(paths.in_overlay(path, "changes"))

    def call(*arguments: Any, **named: Any) -> Any:
        if paths.is_bypassed() or len(arguments) > _FACTORY:
            return connect(*arguments, **named)
        base = named.pop("factory", None)
        if base is not None and not isinstance(base, type):
            return connect(*arguments, factory=base, **named)
        return connect(*arguments, factory=connection_type(sqlite, in_overlay, base), **named)

    return call


@contextlib.contextmanager
def libraries(
    layer: Layer, aside: Callable[[], bool], work: Callable[..., contextlib.AbstractContextManager[None]]
) -> Iterator[None]:
    """While open, they are, from when the program imports them on. aside, work: as in `functions.py`."""
    paths = _Paths(layer, aside, work)
    # Of libraries that are imported already: modules are gone through once for all of them.
    parts: list[Pairs] = []
    opened = False
    with contextlib.ExitStack() as stack:
        for module, path, index, argument, how in _LIBRARIES:

            def imported(
                module: ModuleType,
                path: str = path,
                index: int = index,
                argument: str = argument,
                how: Any = how,
            ) -> None:
                owner, _, name = path.rpartition(".")
                try:
                    holder: Any = operator.attrgetter(owner)(module) if owner else module
                except AttributeError:  # another release's
                    return
                original = getattr(holder, name, None)
                if original is None:
                    return
                kept = vars(holder).get(name, original)  # a static method, as it stands
                new = paths.replacement(original, index, argument, how)
                if module.__name__ == "_sqlite3":
                    new = _attaching(new, module, paths)
                if owner:
                    setattr(holder, name, staticmethod(new) if isinstance(original, type(len)) else new)
                    stack.callback(setattr, holder, name, kept)
                elif not opened:
                    parts.append({name: (original, new)})
                else:
                    stack.callback(exchange_all([{name: (original, new)}]))

            stack.enter_context(once_imported(module, imported))
        stack.callback(exchange_all(parts))
        opened = True
        yield
