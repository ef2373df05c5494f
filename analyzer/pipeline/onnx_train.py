"""Training from an ONNX file: the graph lowered to a PyTorch module, then the PyTorch pipeline as for any other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analyzer.errors import InputError, MissingDependencyError
from analyzer.targets import Target

if TYPE_CHECKING:
    from analyzer.estimate import Estimate


def analyze_onnx_training(target: Target, options: Any) -> Estimate:
    """A training step of `target`, an ONNX file. `options` is a checked `analyze.Options`. Raises AnalyzerError."""
    try:
        from analyzer.capture.onnx_train import lower
        from analyzer.pipeline.pytorch import analyze_pytorch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingDependencyError(
            "training an ONNX graph is analysed through PyTorch, which is not installed",
            "pip install 'analyzer[torch]'",
        ) from None
    lowered = lower(target.path or target.name, batch=options.batch, inputs=described(options.inputs))
    estimate = analyze_pytorch(
        lowered.module, None, replace(options, inputs=lowered.inputs, runtime="pytorch")
    )
    return replace(
        estimate,
        target=target.name,
        framework="onnx",
        batch=options.batch,
        notes=("trained as PyTorch trains the same operators", *lowered.notes, *estimate.notes),
    )


def described(inputs: Any) -> dict[str, tuple[tuple[int, ...], str | None]] | None:
    """`analyze`'s inputs as the ONNX capture takes them: name -> (shape, element type). Raises InputError."""
    if inputs is None:
        return None
    if not isinstance(inputs, Mapping):
        raise InputError(
            "the inputs of an ONNX graph go by name",
            "give a mapping: inputs={'image': TensorSpec((64, 3, 224, 224))}",
        )
    return {
        name: (tuple(spec.shape), str(spec.dtype).removeprefix("torch.") or None)
        for name, spec in inputs.items()
    }
