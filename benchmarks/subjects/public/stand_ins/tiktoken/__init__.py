"""tiktoken where nothing can be downloaded: a byte is a token, the vocabulary is as large as the named one."""

from __future__ import annotations

from typing import Any

_SIZES = {"gpt2": 50257, "r50k_base": 50257, "cl100k_base": 100277}


class Encoding:
    """As far as training scripts use it."""

    def __init__(self, name: str, **_: Any) -> None:
        self.name, self.n_vocab = name, _SIZES[name]
        self.eot_token = self.n_vocab - 1
        self._special_tokens = {"<|endoftext|>": self.eot_token}

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(text.encode())

    encode_ordinary = encode

    def decode(self, tokens: list[int]) -> str:
        return bytes(token % 256 for token in tokens).decode(errors="replace")


def get_encoding(name: str) -> Encoding:
    """The encoding of that name."""
    return Encoding(name)
