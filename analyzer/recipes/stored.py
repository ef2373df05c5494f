"""Weights stored quantized: a configuration's `quantization_config`, and a checkpoint as that method writes
it.

1. The methods are those transformers names (`quantizers/auto.py`). The modules that hold such weights, and so
   the names, shapes and types of the checkpoint's tensors, are made by transformers' own quantizer of the
   method, as `from_pretrained` makes them.
2. Formats that a quantizer's modules do not show before they are loaded are written down: bitsandbytes packs
   a weight of 4 bits in a column, beside the scales of its blocks (again quantized or not) and one tensor
   that says how (`functional.py`, `QuantState.as_dict`); a weight of 8 bits has a scale a row
   (`nn/modules.py`, `Linear8bitLt._save_to_state_dict`).
3. Experts stored as mxfp4 are packed blocks of 32 with a scale of a byte each. They are dequantized while
   they load: the kernels that would take them as they are (`kernels-community/gpt-oss-triton-kernels`) are
   fetched on the machine with the GPU, and are not followed.
4. Quantizers that need packages which are not modelled are refused before anything is built.

Not modelled: checkpoints whose experts bitsandbytes quantized one by one, which transformers 5 has no modules
for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from analyzer.errors import TargetError
from analyzer.recipes.config import ModelConfig

# How each method's quantizer is followed here: with these packages beside transformers. The values are names
# of packages.
_FOLLOWED: Mapping[str, tuple[str, ...]] = {
    "bitsandbytes_4bit": ("bitsandbytes",),
    "bitsandbytes_8bit": ("bitsandbytes",),
    "fp8": (),
    "mxfp4": (),
    "compressed-tensors": ("compressed_tensors",),
}
# Whose configuration in transformers has `dequantize` (`utils/quantization_config.py`), by its name.
_DEQUANTIZED = {
    "fp8": "FineGrainedFP8Config",
    "mxfp4": "Mxfp4Config",
    "compressed-tensors": "CompressedTensorsConfig",
}
# Packages that run weights of these methods, beside transformers.
_RUN_BY = {"awq": "gptqmodel", "gptq": "gptqmodel and optimum", "auto-round": "auto-round"}
_BLOCK = 64  # weights to a scale (bitsandbytes/functional.py, quantize_4bit)
_NESTED_BLOCK = 256  # scales to a scale of theirs


@dataclass(frozen=True, slots=True)
class Stored:
    """method: transformers' name of it. settings: what the configuration says beside."""

    method: str
    settings: Mapping[str, Any]

    @property
    def packages(self) -> tuple[str, ...]:
        """The user's own packages that load such weights, as they are imported."""
        return _FOLLOWED[self.method]

    @property
    def trains(self) -> bool:
        """Whether adapters can be trained beside such weights (`HfQuantizer.is_trainable`)."""
        return self.method.startswith("bitsandbytes")

    @property
    def dequantizes(self) -> bool:
        """Whether loading may turn them back (`quantization_config`'s own `dequantize`)."""
        return self.method in _DEQUANTIZED


def stored(config: ModelConfig) -> Stored | None:
    """Return how the weights are quantized, None if they are not. Raises TargetError if unsupported."""
    quantization = config.document.get("quantization_config") or config.text.get("quantization_config")
    if quantization is None:
        return None
    method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
    if isinstance(quantization, Mapping) and (
        quantization.get("load_in_4bit") or quantization.get("load_in_8bit")
    ):
        method = f"bitsandbytes_{'4bit' if quantization.get('load_in_4bit') else '8bit'}"
    if not isinstance(method, str):
        raise TargetError(
            f"{config.path}: quantization_config does not say by which method",
            "give its quant_method, such as fp8",
        )
    if method not in _FOLLOWED:
        by = f", which {_RUN_BY[method]} would run on the GPU" if method in _RUN_BY else ""
        raise TargetError(
            f"{config.path}: weights stored as {method}{by}, are not followed",
            "followed are bitsandbytes, fp8, mxfp4 and compressed-tensors; in a copy without"
            " quantization_config, --load-in-4bit or --load-in-8bit takes weights of as many bits",
        )
    return Stored(method, quantization)


def imports(weights: Stored) -> Iterator[str]:
    """Yield the import lines the checkpoint needs."""
    if weights.method == "bitsandbytes_4bit":
        yield "from bitsandbytes.functional import QuantState"
    if weights.method != "mxfp4":
        yield "from transformers.quantizers.auto import AutoHfQuantizer"


def dequantized(weights: Stored) -> str:
    """Return the name of the class that says they are turned back while they are loaded."""
    return _DEQUANTIZED[weights.method]


def modules(weights: Stored, device: str, dtype: str) -> Iterator[str]:
    """Yield the lines that give `skeleton` the method's modules, as `from_pretrained` does."""
    if weights.method == "mxfp4":
        return  # whose modules would fetch the kernels
    yield "    quantizer = AutoHfQuantizer.from_config(config.quantization_config)"
    if weights.method == "compressed-tensors":
        yield "    quantizer.validate_environment()"
    yield (
        f'    quantizer.preprocess_model(skeleton, dtype={dtype}, device_map={{"": {device}}},'
        " checkpoint_files=None)"
    )


def packed(weights: Stored, dtype: str) -> Iterator[str]:
    """Yield the lines that pack the weights of `skeleton`. dtype: before packing."""
    if weights.method == "bitsandbytes_8bit":
        yield "for module in skeleton.modules():"
        yield "    if isinstance(module, bitsandbytes.nn.Linear8bitLt):"
        yield '        module.weight.SCB = torch.empty(module.out_features, device="meta")'
    if weights.method != "bitsandbytes_4bit":
        return
    kind, double = (
        weights.settings.get("bnb_4bit_quant_type", "fp4"),
        weights.settings.get("bnb_4bit_use_double_quant", False),
    )
    yield "for module in skeleton.modules():"
    yield "    if isinstance(module, bitsandbytes.nn.Linear4bit):"
    yield f"        shape, blocks = module.weight.shape, -(-module.weight.numel() // {_BLOCK})"
    yield "        bytes_each = module.weight.element_size()"
    yield "        module.weight = bitsandbytes.nn.Params4bit("
    yield (
        "            torch.empty((shape.numel() + 1) // 2 // bytes_each, 1, dtype=module.weight.dtype,"
        ' device="meta"),'
    )
    yield "            bnb_quantized=True,"
    yield "            quant_state=QuantState("
    yield (
        f'                torch.empty(blocks, dtype=torch.{"uint8" if double else "float32"}, device="meta"),'
        " shape,"
    )
    yield f'                torch.empty(16, device="meta"), {_BLOCK}, {kind!r}, {dtype},'
    if double:
        yield "                torch.zeros(()),"
        yield "                QuantState("
        yield (
            f'                    torch.empty(-(-blocks // {_NESTED_BLOCK}), device="meta"),'
            ' code=torch.empty(256, device="meta"),'
        )
        yield f"                    blocksize={_NESTED_BLOCK}, dtype=torch.float32,"
        yield "                ),"
    yield "            ),"
    yield "        )"


def renamed(weights: Stored) -> Iterator[str]:
    """Yield the lines that give the tensors `held` the checkpoint's names and shapes (and values that say how
    others are read)."""
    if weights.method == "compressed-tensors":
        yield 'for name in [name for name in held if name.endswith(".weight_shape")]:'
        yield '    part = skeleton.get_submodule(name.removesuffix(".weight_shape"))'
        yield "    held[name] = torch.tensor([part.out_features, part.in_features])"
    if weights.method == "mxfp4":
        yield (
            'for name in [name for name in held if name.endswith((".experts.gate_up_proj",'
            ' ".experts.down_proj"))]:'
        )
        yield "    experts, inner, outer = held.pop(name).shape"
        yield (
            '    held[f"{name}_blocks"] = torch.empty(experts, outer, inner // 32, 16, dtype=torch.uint8,'
            ' device="meta")'
        )
        yield (
            '    held[f"{name}_scales"] = torch.empty(experts, outer, inner // 32, dtype=torch.uint8,'
            ' device="meta")'
        )
