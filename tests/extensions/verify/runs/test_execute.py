"""The captured graph executed, every tensor freed at its last use, needs what the liveness pass says it needs.

The interpreter frees values by what uses them in the `torch.fx` graph, the liveness pass storages by their live ranges:
two independent derivations. Here tensors are on the meta device and their storages are counted; `analyze verify` does
the same on a GPU with the allocator's own count.
"""

from __future__ import annotations

import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from analyzer.capture.pytorch.kernels.results import META_KERNELS  # noqa: E402
from analyzer.options import Options  # noqa: E402
from analyzer.pipeline import analysis  # noqa: E402
from analyzer_verify.runs.execute import execute  # noqa: E402
from tests.paths import MODELS  # noqa: E402

CASES: dict[str, dict[str, Any]] = {
    "variable.py": {},
    "cnn.py": {"batch": 4, "mode": "train"},
    "linear.py": {"batch": 3, "mode": "train", "optimizer": "adam"},
    "feedforward.py": {"batch": 5},
    "linear_mnist.py": {"batch": 7, "mode": "train", "optimizer": "momentum"},
    "resnet50.py": {"batch": 2, "mode": "train", "optimizer": "adam"},
    "vit_b_16.py": {"batch": 2, "mode": "train", "optimizer": "adamw"},
    "unetr.py": {"batch": 1, "mode": "train", "optimizer": "sgd"},
    "gpt2.py": {"batch": 1, "mode": "train", "optimizer": "adamw", "amp": "bf16"},
    "llama.py": {"batch": 1},
    "retinanet_r50_fpn.py": {"batch": 1, "mode": "train", "optimizer": "momentum", "amp": "fp16"},
    "retinanet_r50_fpn.py:make_model_checkpointed": {"batch": 1, "mode": "train", "grad_accumulation": 2},
}


class LiveStorages(TorchDispatchMode):
    """Counts the bytes of meta storages that are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0
        self._seen: dict[int, weakref.ref[Any]] = {}

    def read(self) -> int:
        return self.nbytes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = META_KERNELS.get(func, func)(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "meta":
                self._watch(tensor.untyped_storage())
        return out

    def _watch(self, storage: Any) -> None:
        key, nbytes = storage._cdata, storage.nbytes()
        if key in self._seen:
            return

        def died(_: Any) -> None:
            self.nbytes -= nbytes
            del self._seen[key]

        self.nbytes += nbytes
        self._seen[key] = weakref.ref(storage, died)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(3)
def test_executed_graph_needs_what_liveness_says(name: str) -> None:
    found = analysis(f"{MODELS}/{name}", Options(device="h200", **CASES[name]))
    estimate = found.estimate
    with LiveStorages() as live:
        measured, node_count = execute(found.graph, "meta", live)
    # A loss nobody reads goes at once in Python and with the iteration here: up to 16 bytes.
    assert estimate.graph_peak <= measured <= estimate.graph_peak + 16
    assert node_count > 0


def test_a_tensor_kept_too_long_would_be_seen() -> None:
    """The check above can fail: with every value kept, the same graph needs clearly more."""
    found = analysis(f"{MODELS}/resnet50.py", Options(batch=2, device="h200"))
    estimate = found.estimate
    from torch import fx

    original = fx.Interpreter.__init__

    def keep_all(self: Any, module: Any) -> None:
        original(self, module, garbage_collect_values=False)

    with pytest.MonkeyPatch.context() as patch, LiveStorages() as live:
        patch.setattr(fx.Interpreter, "__init__", keep_all)
        measured, _ = execute(found.graph, "meta", live)
    assert measured > 1.2 * estimate.graph_peak
