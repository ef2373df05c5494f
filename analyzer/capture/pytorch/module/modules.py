"""Which module is running, and what leaf modules return: seen by `torch.nn.Module.__call__` while a program
is captured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from analyzer.capture.pytorch.patches import replaced
from analyzer.graph.model import LeafOutput

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder


class _Watch:
    """Results of `module_paths`: leaf outputs and the model's output, of the first forward pass only."""

    def __init__(self) -> None:
        self.leaves: list[LeafOutput] = []
        self.output_bytes = 0
        self.done = False


def named_tensors(module: torch.nn.Module, kind: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a module holds, by name. kind: "parameters" or "buffers".

    A class outside PyTorch may have a method of this name that does more than tell (Keras makes its
    parameters in it): PyTorch's own is called.
    """
    own = getattr(type(module), f"named_{kind}")
    in_torch = own.__module__.partition(".")[0] == "torch"
    tells = own if in_torch else getattr(torch.nn.Module, f"named_{kind}")
    yield from tells(module, prefix)


def bytes_in(value: Any) -> tuple[int, int]:
    """Return bytes and elements of all tensors in a module's output."""
    tensors = [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]
    return sum(t.numel() * t.element_size() for t in tensors), sum(t.numel() for t in tensors)


@contextlib.contextmanager
def module_paths(
    model: torch.nn.Module, recorder: Recorder, progress: Callable[[str], None] | None
) -> Iterator[_Watch]:
    """Keep `recorder.places.modules` a stack of running modules' paths; collect leaf outputs."""
    paths = {id(part): name for name, part in model.named_modules()}
    leaf = {id(part): not any(True for _ in part.children()) for part in model.modules()}
    original = torch.nn.Module.__call__
    watch = _Watch()

    def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        path = paths.get(id(self))
        recorder.places.modules.append(type(self).__name__ if path is None else path)
        if progress is not None and path is not None:
            progress(path)
        try:
            out = original(self, *args, **kwargs)
        except Exception as error:
            # By number: the exception itself would keep its frames, and their tensors, alive (checkpointing
            # stops its recomputation with an exception).
            if recorder.failed[0] != id(error):
                recorder.failed = (id(error), recorder.places.modules[-1])
            raise
        finally:
            recorder.places.modules.pop()
        if not watch.done and path is not None:
            if leaf[id(self)]:
                nbytes, count = bytes_in(out)
                watch.leaves.append(LeafOutput(path, nbytes, count, bool(self._parameters)))
            if self is model:
                watch.output_bytes, _ = bytes_in(out)
                watch.done = True
        return out

    with replaced({"torch.nn.Module.__call__": call}):
        yield watch
