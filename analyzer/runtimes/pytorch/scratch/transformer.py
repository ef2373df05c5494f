"""PyTorch's fused transformer operators, which `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` use
in evaluation without gradients.

1. **Attention**: one product for query, key and value together; the attended values; their projection, which
   is the result. The first two go when it is done. With weights wanted, the scores are kept instead of fused
   away.
2. **Encoder layer** (norm last): attention's result; the first norm, with mean and deviation per row; the
   wide hidden layer; the second product; the second norm, which is the result.

Source: `aten/src/ATen/native/transformers/attention.cpp` (`native_multi_head_attention_cuda`),
`transformer.cpp` (`transformer_encoder_layer_forward`); orders and sizes as recorded (H200, torch 2.11).

Not modelled: padding masks, which turn the input into a nested tensor.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator
from analyzer.runtimes.pytorch.scratch.blas import take_workspace
from analyzer.runtimes.pytorch.scratch.layout import (
    accumulator_bytes,
    bytes_of,
)
from analyzer.runtimes.pytorch.scratch.script import Script, present, rule


@rule("aten::_native_multi_head_attention", name="fused-attention")
def multi_head_attention(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """One product for query, key and value together; the attended values; their projection, which is the
    result. The first two go when it is done. With weights wanted, the scores are kept instead of fused away.
    """
    source = present(operator, "query")
    if len(source.shape) != 3:
        return
    take_workspace(script, device, lt=True)
    nbytes = bytes_of(source)
    weights = (
        len(operator.outputs) > 1
        and operator.outputs[1] is not None
        and operator.outputs[1].shape not in ((), (0,))
    )
    projected = script.temporary(3 * nbytes)
    if weights:
        split = script.temporary(3 * nbytes)
        script.release(projected)
        batch, length, _ = source.shape
        heads = operator.integer("num_head", default=1)
        scores = script.temporary(bytes_of(replace(source, shape=(batch, heads, length, length))))
        attended = script.temporary(nbytes)
        script.output(0)
        script.release(attended)
        script.output(1)
        script.release(scores, split)
        return
    attended = script.temporary(nbytes)
    script.output(0)
    script.release(attended, projected)


@rule("aten::_transformer_encoder_layer_fwd", name="fused-encoder-layer")
def encoder_layer(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Attention's temporaries; the first norm, with mean and deviation a row; the wide hidden layer; the
    second product; the second norm, which is the result (norm last).
    """
    source, hidden = present(operator, "src"), present(operator, "ffn_weight_1")
    if len(source.shape) != 3:
        return
    take_workspace(script, device, lt=True)
    nbytes, rows = bytes_of(source), source.element_count // source.shape[-1]
    statistics = rows * accumulator_bytes(source.dtype)
    projected = script.temporary(3 * nbytes)
    values = script.temporary(nbytes)
    attended = script.temporary(nbytes)
    script.release(values, projected)
    first = script.temporary(nbytes)
    _statistics(script, statistics)
    script.release(attended)
    wide = script.temporary(bytes_of(replace(source, shape=(rows, hidden.shape[0]))))
    narrow = script.temporary(nbytes)
    script.release(wide)
    script.output(0)
    _statistics(script, statistics)
    script.release(narrow, first)


def _statistics(script: Script, nbytes: int) -> None:
    mean, deviation = script.temporary(nbytes), script.temporary(nbytes)
    script.release(deviation, mean)
