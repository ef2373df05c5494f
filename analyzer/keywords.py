"""Sentences that name options of the command line, for readers of Python.

1. Messages and hints are written with the options of the command line. `in_python` writes an option as the
   keyword it is there: "--grad-accumulation 4" as "grad_accumulation=4", "--mode train" as "mode='train'",
   "--input x=3x8:float32" as "inputs={'x': TensorSpec((batch, 3, 8), 'float32')}".
2. An option without a keyword stays as it is, and so does a command ("analyze fit TARGET --device a100").
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Options with a keyword of another name.
RENAMED = {
    "input": "inputs",
    "value": "values",
    "runtime-option": "runtime_options",
    "nproc-per-node": "ranks",
}
# Those whose keyword takes a mapping from what stands before "=".
_MAPPINGS = ("inputs", "values", "runtime_options", "assume", "release")
# Every option that is a keyword of `analyzer.analyze`, `analyzer.run` or `analyzer.emulate`.
_NAMES = (
    "batch batches mode inputs values assume loss optimizer dtype amp channels_last grad_accumulation"
    " checkpoint parallel device budget runtime runtime_options release strict trust task length"
    " new_tokens lora load_in_8bit load_in_4bit no_double_quant dequantize gradient_checkpointing attn"
    " cache prefill_chunk beams sample packed precompute_reference load revision engine python until ranks"
    " rank keep_outputs"
)
KEYWORDS = frozenset(_NAMES.split())
_WORDS = (
    "train|infer|generate|bf16|fp16|float16|bfloat16|float32|auto|trace|emulate|causal-lm|seq2seq"
    "|classification|vision|speech|sft|dpo|reward|grpo|sdpa|eager"
)
_COMMAND = re.compile(r"\b(?:analyze|pip|python3?|vllm|torchrun) (?=[A-Za-z./*'\[{-])[^;,()]*")
_WORD = re.compile(
    r"--(?P<flag>[a-z][a-z0-9-]*)"
    r"(?:(?P<mapping> (?!=)[^\s=;,]+=[^\s;,)]+)|(?P<value> (?:[A-Z]+\b|\d[^\s;)]*|'[^']*'|(?:"
    + _WORDS
    + r")\b)))?"
)


def in_python(text: str) -> str:
    """Return the text with the options in it as keywords."""
    kept, place = [], 0
    for command in _COMMAND.finditer(text):
        kept += [_WORD.sub(_keyword, text[place : command.start()]), command.group()]
        place = command.end()
    return "".join([*kept, _WORD.sub(_keyword, text[place:])])


def _keyword(match: re.Match[str]) -> str:
    """Return an option, with the value behind it, as Python writes it."""
    flag = match["flag"]
    name = RENAMED.get(flag, flag.replace("-", "_"))
    mapping, value = (match["mapping"] or "").strip(), (match["value"] or "").strip()
    if name == "no_network":
        return "network=False"
    if name not in KEYWORDS:
        return match.group()
    if mapping and name in _MAPPINGS:
        key, _, entry = mapping.partition("=")
        return f"{name}={{{key!r}: {_specification(entry) if name == 'inputs' else repr(entry)}}}"
    if mapping:
        return f"{name}={mapping!r}"
    if not value:
        return name
    if name == "batches" and not value.isupper():
        return f"{name}=({value})"
    written = value.isdigit() or value.isupper() or value.startswith("'")
    return f"{name}={value if written else repr(value)}"


def _specification(text: str) -> str:
    """Return "3x224x224:float32" as a `TensorSpec`."""
    shape, _, dtype = text.partition(":")
    sizes: Iterable[str] = filter(None, shape.split("x"))
    return f"TensorSpec(({', '.join(['batch', *sizes])},){f', {dtype!r}' if dtype else ''})".replace(
        ",)", ")" if shape else ",)"
    )
