"""Operators that CUDA has no kernel of its own for, and PyTorch makes of others: `torch.cdist` of many points, `torch.dist`,
`torch.block_diag`, bilinear layers. Their parts are what is recorded.

1. Which they are `native_functions.yaml` says: a CompositeExplicit kernel and none for CUDA. A build of PyTorch for the CPU cannot be
   asked, so they are named here; a test holds the names to what every release says (`tests/data/releases/schemas`).
2. The parts come from PyTorch's own kernel, which runs on tensors without memory while the recorder looks on. Autograd has been
   there before: gradients go by the formula of the whole, as on CUDA.

Source: `aten/src/ATen/native/native_functions.yaml`; the kernels' files: `Distance.cpp` (`_euclidean_dist`, `dist`), `Linear.cpp`
(`_trilinear`), `TensorShape.cpp` (`block_diag`, `unsafe_split_with_sizes`), `PackedSequence.cpp`, `ConvolutionTBC.cpp`.

Not here: kernels that ask for values (`allclose`), that do something else for tensors without memory (`kaiser_window`), that are
followed as one operator for a reason (a rule, views and their copies).
"""

from __future__ import annotations

from typing import Any

import torch

from analyzer.capture.pytorch.recording.recorder import Own, Recorder

aten = torch.ops.aten
_KEYS = (
    torch._C.DispatchKey.CompositeExplicitAutograd,
    torch._C.DispatchKey.CompositeExplicitAutogradNonFunctional,
)
# By name: not every release has all of them.
NAMES = (
    "_euclidean_dist.default", "_pack_padded_sequence.default", "_trilinear.default", "_unsafe_masked_index.default",
    "_unsafe_masked_index_put_accumulate.default", "addr_.default", "bartlett_window.default", "bartlett_window.periodic",
    "blackman_window.default", "blackman_window.periodic", "block_diag.default", "conv_tbc.default", "dist.default",
    "fft_fftfreq.default", "fft_rfftfreq.default", "linalg_pinv.atol_rtol_tensor", "mvlgamma_.default", "put.default",
    "rrelu_with_noise_backward.default",
)  # fmt: skip


def _followed(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with recorder:
        return func._op_dk(key_of(func), *args, **kwargs)


def key_of(func: Any) -> torch._C.DispatchKey:
    """Under which of both keys PyTorch has the kernel that makes the operator of others."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return next(key for key in _KEYS if has_kernel(func.name(), key.name))


def _overloads() -> list[Any]:
    """The operators of these names that the installed release has."""
    split = (name.split(".") for name in NAMES)
    found = [getattr(getattr(aten, name, None), overload, None) for name, overload in split]
    return [func for func in found if func is not None]


OWN: dict[Any, Own] = dict.fromkeys(_overloads(), _followed)
