"""Where in the program an operator comes from: phase, module, and line of the user's code.

1. Forward operators get module and line from the Python stack: the innermost frame that is the user's, or the
   line a module was called from, which calls remember once it was asked for.
2. Backward operators get them from the forward operator that made their autograd node (equal sequence
   numbers).
3. Each thread has modules of its own.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

import torch

from analyzer.capture.pytorch.recording.current_stream import Current
from analyzer.graph import Phase
from analyzer.values.own import OWN

_LIBRARY_FOLDERS = (f"{Path(torch.__file__).parent}/", *OWN, "<frozen", "<string>")

_GENERATED = "<eval_with_key"


class CurrentPlace(threading.local):
    """Per-thread state. modules: paths of the running modules, the innermost last; callers: user's line of
    each call, once needed; handles: their numbers by GPU, once it has them; start: the moment it began at
    (`threads.py`); in_order: the loader decides when it runs (`loading.py`)."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.callers: list[str | None] = []
        self.handles: dict[int, int] = {}
        self.start = 0
        self.in_order = False


class Places:
    """Answers for one capture. calling: what calls each module, and puts it among `here.modules`; outermost:
    the file of whoever asked for the analysis, beyond which nothing is the program's."""

    def __init__(self, streams: Current, outermost: str) -> None:
        self.phase = Phase.SETUP
        self.current = CurrentPlace()
        self.calling: CodeType | None = None
        self._streams, self._outermost = streams, outermost
        self._origin: dict[int, tuple[str, str]] = {}
        self._segment_node = 0
        self.checkpoints = (0, 0)
        # By the code's identity, which is cheaper than its hash: what `_user_name` says, and the code, which
        # stays alive.
        self._user_code: dict[int, tuple[str | None, CodeType]] = {}
        self._library_folders: tuple[str, ...] = _LIBRARY_FOLDERS

    @property
    def modules(self) -> list[str]:
        """Paths of the modules that run in this thread, the innermost last."""
        return self.current.modules

    def libraries(self, folders: tuple[str, ...]) -> None:
        """Treat lines in these folders as a library's, not the user's."""
        self._library_folders = (*_LIBRARY_FOLDERS, *folders)

    def is_library(self, filename: str) -> bool:
        """Return whether a file is PyTorch's or this project's, rather than the user's."""
        return filename.startswith(self._library_folders)

    def now(self) -> tuple[str, str]:
        """Return module and line of the running operator; backward nodes it makes share them."""
        if self.phase is Phase.BACKWARD and not self.modules:  # no checkpointed module that runs again
            node = torch._C._current_autograd_node()
            if node is not None:
                origin = self._origin.get(node._sequence_nr())
                if origin is not None:
                    return origin
        place = (self.modules[-1] if self.modules else "", self.line())
        if torch.is_grad_enabled():
            # Any node this operator belongs to has been made just before the call arrives here.
            sequence = torch._C._autograd._get_sequence_nr() - 1
            if (
                sequence not in self._origin
            ):  # else the node was made by an operator before this one, on its stream
                self._origin[sequence] = place
                self._streams.note_node(sequence)
        return place

    def checkpointed(self, regions: int, calls: int) -> None:
        """Checkpointing has begun so many regions, or been called for so many saved tensors."""
        self.checkpoints = (self.checkpoints[0] + regions, self.checkpoints[1] + calls)

    def checkpointing(self) -> tuple[int, int]:
        """Return regions and calls since the last query (`Operator.checkpointing`)."""
        counts, self.checkpoints = self.checkpoints, (0, 0)
        return counts

    def segment_over(self) -> None:
        """Forget the origin of autograd nodes older than the last segment, taken to be gone."""
        first, self._segment_node = self._segment_node, torch._C._autograd._get_sequence_nr()
        self._origin = {node: place for node, place in self._origin.items() if node >= first}

    def line(self) -> str:
        """Return "file:line" of the running user code, "" without; module calls keep their caller's."""
        frame: FrameType | None = sys._getframe(1)
        user_code, callers = self._user_code, self.current.callers
        depth, source = len(callers), ""
        while frame is not None:
            code = frame.f_code
            file_of = user_code.get(id(code))
            if file_of is None:
                file_of = user_code[id(code)] = (self._user_name(code.co_filename), code)
            if file_of[0]:
                source = f"{file_of[0]}:{frame.f_lineno}"
                break
            if file_of[0] is None:
                break
            if code is self.calling:
                depth -= 1
                if (caller := callers[depth]) is not None:
                    source = caller
                    break
            frame = frame.f_back
        for outer in range(depth, len(callers)):
            callers[outer] = source
        return source

    def user_frame(self) -> FrameType | None:
        """Return the innermost frame that runs the user's code."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            name = self._user_name(frame.f_code.co_filename)
            if name:
                return frame
            if name is None:
                break
            frame = frame.f_back
        return None

    def _user_name(self, filename: str) -> str | None:
        """Return a user file's name, "" for a library's, None where the analysis was called from."""
        if filename == self._outermost:
            return None
        if filename.startswith(_GENERATED):  # numbered through the process (torch/fx/graph_module.py)
            return f"{_GENERATED}>"
        return "" if filename.startswith(self._library_folders) else Path(filename).name
