"""An operator's schema as the recorder needs it, computed once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_iter

from analyzer.capture.pytorch.recording import own_meta
from analyzer.capture.pytorch.recording.cudnn import CONVOLUTIONS, convolution_settings
from analyzer.capture.pytorch.recording.products import PRODUCTS, product_settings
from analyzer.values import sizes
from analyzer.values.known import DECIDING, FROM_NOTHING

aten = torch.ops.aten
# Settings of a program for an operator's calls, read at each of them.
_SETTINGS: dict[Any, Callable[[], frozenset[str]]] = {
    **dict.fromkeys(CONVOLUTIONS, convolution_settings),
    **dict.fromkeys(PRODUCTS, product_settings),
}


class Schema:
    """An operator. choice: what is done instead of it; handler: called before it (`OperatorHandler`); kernel:
    what says its results for tensors without memory, where PyTorch's own does not; settings: what
    `Operator.settings` are at a call (of most none); by_shapes: it asks for shapes alone."""

    __slots__ = (
        "choice",
        "composite",
        "decides",
        "fills",
        "from_nothing",
        "func",
        "handler",
        "is_product",
        "kernel",
        "mutable",
        "name",
        "names",
        "remembered",
        "rewrites",
        "settings",
        "sized_by_values",
        "skip",
        "writes",
    )

    def __init__(
        self,
        func: Any,
        choice: Callable[..., Any] | None,
        handler: Callable[..., Any] | None,
        kernel: Callable[..., Any] | None,
        by_shapes: bool,
    ) -> None:
        schema = func._schema
        self.func = func  # which stays alive: it is looked up by its identity
        self.choice, self.handler = choice, handler
        self.kernel = kernel
        self.from_nothing = func in FROM_NOTHING
        self.is_product = func in own_meta.PRODUCTS
        self.decides = func in DECIDING or func is aten._amp_foreach_non_finite_check_and_unscale_.default
        self.mutable = schema.is_mutable
        self.settings = _SETTINGS.get(func, frozenset)
        self.name = schema.name + (f".{schema.overload_name}" if schema.overload_name else ".default")
        self.names = tuple(sys.intern(argument.name) for argument in schema.arguments)
        self.writes = [
            i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write
        ]
        self.sized_by_values = torch.Tag.dynamic_output_shape in func.tags or self.name in sizes.UNTAGGED
        # New results, which follow from the arguments alone (`meta_cache.py`).
        self.remembered = (
            func.namespace == "aten"
            and by_shapes
            and not schema.is_mutable
            and not self.sized_by_values
            and all(returned.alias_info is None for returned in schema.returns)
        )
        # It writes to one of its arguments, and returns that one.
        self.rewrites = (
            func.namespace == "aten"
            and kernel is None
            and not self.sized_by_values
            and torch.Tag.inplace_view not in func.tags
            and torch.Tag.nondeterministic_seeded not in func.tags
            and len(self.writes) == len(schema.returns) == 1
            and isinstance(schema.returns[0].type, torch.TensorType)
            and schema.returns[0].alias_info is not None
            and schema.returns[0].alias_info.is_write
        )
        self.skip = schema.name.startswith("profiler::")
        # Random numbers written into its first argument, which is the result: PyTorch would decompose some of
        # these for fake tensors (`uniform_`, `_decomp/decompositions.py`) into operators that a build without
        # CUDA has not.
        self.fills = torch.Tag.nondeterministic_seeded in func.tags and self.writes == [0]
        # An operator that also has a kernel of its own for a device (`silu_backward`), or here
        # (`_fused_rms_norm`), is one kernel on CUDA too.
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        name = func.name()
        self.composite = has_kernel(name, "CompositeImplicitAutograd") and not (
            has_kernel(name, "CPU") or has_kernel(name, "Meta")
        )

    def written(self, args: Any, kwargs: Any) -> list[torch.Tensor]:
        """Return the tensors without memory among the arguments that it writes into."""
        return [
            tensor
            for place in self.writes
            for tensor in tree_iter(args[place] if place < len(args) else kwargs.get(self.names[place]))
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "meta"
        ]
