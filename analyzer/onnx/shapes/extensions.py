"""Result types of ONNX Runtime's extensions: tokenizers, pre- and post-processing of text, images and sound.

1. They live in a domain of their own (`DOMAINS`) and run on the CPU, whatever the session's provider; a
   session needs the library `onnxruntime_extensions` registered. Their results are tensors like any others;
   what they take besides is not the arena's.
2. Those whose results are as large as an operand say so here (`LIKE_FIRST`, `TYPED`). Of those whose results
   depend on the text, image or sound (`OPEN`) the element type and rank are known, and what is known of the
   dimensions; the file's own declaration, if it has one, says the rest, otherwise the caller bounds or
   guesses it.

Source: `docs/custom_ops.md` and the operators' declarations of onnxruntime-extensions 0.15 (`_cuops.py`).
Measured with 0.15.2 and onnxruntime 1.31 on the CPU provider: results only, no scratch in the arena
(`tests/runtimes/onnxruntime/test_extensions.py`).
"""

from __future__ import annotations

from typing import Any

from analyzer.onnx.types import Dim, ValueType

DOMAINS = frozenset({"ai.onnx.contrib", "com.microsoft.extensions"})

# Every result like the first operand, in type and shape.
_LIKE_FIRST = """
    DrawBoundingBoxes GaussianBlur Inverse NegPos StringConcat StringECMARegexReplace StringLower
    StringMapping StringRegexReplace StringStrip StringUpper
"""
LIKE_FIRST = frozenset(_LIKE_FIRST.split())

# Shaped like the first operand, of this type.
TYPED = {"StringEqual": "bool", "StringHash": "int64", "StringHashFast": "int64", "StringLength": "int64"}

_TOKENS = ("int64", ("rows", "padded"))
# Operator -> type and dimensions of each result: numbers, "rows" (of the first operand), "padded" (the
# attribute padding_length), "" where only data tells.
OPEN: dict[str, tuple[tuple[str, tuple[Dim, ...]], ...]] = {
    "AudioDecoder": (("float32", (1, "")),),
    "BertTokenizer": (("int64", ("",)), ("int64", ("",)), ("int64", ("",)), ("int64", ("", 2))),
    "BertTokenizerDecoder": (("string", ("",)),),
    "BlingFireSentenceBreaker": (("string", ("",)),),
    "BpeDecoder": (("string", ("rows",)),),
    "CLIPTokenizer": (_TOKENS, _TOKENS, ("int64", ("rows", "padded", 2))),
    "DecodeImage": (("uint8", ("", "", 3)),),
    "EncodeImage": (("uint8", ("",)),),
    "GPT2Tokenizer": (_TOKENS, _TOKENS),
    "HfJsonTokenizer": (_TOKENS, _TOKENS, ("int64", ("rows", "padded", 2))),
    "ImageDecoder": (("uint8", ("", "", 3)),),
    "ImageReader": (("uint8", ("", "", 3)),),
    "MaskedFill": (("string", ("",)),),
    "RobertaTokenizer": (_TOKENS, _TOKENS, ("int64", ("rows", "padded", 2))),
    "SentencepieceDecoder": (("string", ("",)),),
    "SentencepieceTokenizer": (("int32", ("",)), ("int64", ("",)), ("int32", ("",))),
    "SpmTokenizer": (_TOKENS, _TOKENS, ("int64", ("rows", "padded", 2))),
    "StringJoin": (("string", ("",)),),
    "StringSplit": (("int64", ("", 2)), ("string", ("",)), ("int64", (2,))),
    "StringToVector": (("float32", ("rows", "")),),
    "TrieDetokenizer": (("string", ("rows",)),),
    "TrieTokenizer": (("int64", ("rows", "")),),
    "VectorToString": (("string", ("rows",)),),
    "WordpieceTokenizer": (("string", ("",)), ("int64", ("",)), ("int64", ("",)), ("int64", ("",))),
}


def known(op: str) -> bool:
    """Return whether these tables have the operator."""
    return op in LIKE_FIRST or op in TYPED or op in OPEN


def results(node: Any, first: ValueType | None) -> list[ValueType]:
    """Return the node's results in order, [] where nothing is known. first: what its first operand is."""
    if node.op_type in OPEN:
        rows: Dim = first.shape[0] if first is not None and first.shape else ""
        padding = next((item.i for item in node.attribute if item.name == "padding_length"), -1)
        sizes: dict[Dim, Dim] = {"rows": rows, "padded": padding if padding > 0 else ""}
        return [
            ValueType(dtype, tuple(sizes.get(size, size) for size in shape))
            for dtype, shape in OPEN[node.op_type]
        ]
    if first is None or first.kind != "tensor":
        return []
    if node.op_type in TYPED:
        return [ValueType(TYPED[node.op_type], first.shape)]
    return [first] * len(node.output) if node.op_type in LIKE_FIRST else []
