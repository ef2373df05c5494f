"""Speech as its training scripts read it: recordings, features of them, and what a synthesizer learns from."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np


def _wave(file: Path, samples: np.ndarray[tuple[int], np.dtype[np.float64]], rate: int) -> None:
    """A recording of one channel, 16 bits."""
    with wave.open(str(file), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes((samples * 20_000).astype("<i2").tobytes())


def mixtures(folder: Path, count: int = 16, seconds: float = 4.5, rate: int = 8000) -> None:
    """mix.json, s1.json and s2.json, lists of recordings and their lengths: two speakers, and both at once."""
    rng = np.random.default_rng(0)
    listed: dict[str, list[tuple[str, int]]] = {"s1": [], "s2": [], "mix": []}
    length = int(seconds * rate)
    for n in range(count):
        voices = {name: rng.uniform(-0.4, 0.4, length) for name in ("s1", "s2")}
        voices["mix"] = voices["s1"] + voices["s2"]
        for name, samples in voices.items():
            file = folder / f"{name}_{n:03d}.wav"
            _wave(file, samples, rate)
            listed[name].append((str(file), length))
    for name, rows in listed.items():
        (folder / f"{name}.json").write_text(json.dumps(rows))


def kaldi(
    folder: Path, count: int = 48, frames: tuple[int, int] = (300, 700), width: int = 80, tokens: int = 4000
) -> None:
    """feats.ark, data.json of its utterances (features, token numbers) and units.txt, as ESPnet and its kin keep them."""
    rng = np.random.default_rng(0)
    utterances = {}
    with (folder / "feats.ark").open("wb") as ark:
        for n in range(count):
            name, long = f"utt{n:04d}", int(rng.integers(*frames))
            ark.write(f"{name} ".encode())
            place = ark.tell()
            ark.write(b"\0BFM \4" + np.int32(long).tobytes() + b"\4" + np.int32(width).tobytes())
            ark.write(rng.normal(size=(long, width)).astype("<f4").tobytes())
            said = rng.integers(4, tokens, long // 30)
            utterances[name] = {
                "input": [{"feat": f"{folder}/feats.ark:{place}", "shape": [long, width]}],
                "output": [{"shape": [len(said), tokens], "tokenid": " ".join(map(str, said))}],
            }
    (folder / "data.json").write_text(json.dumps({"utts": utterances}))
    units = ["<blank>", "<unk>", "<sos>", "<eos>", *(f"u{n}" for n in range(4, tokens))]
    (folder / "units.txt").write_text("".join(f"{unit} {n}\n" for n, unit in enumerate(units)))


def fastspeech2(folder: Path, count: int = 80, name: str = "LJSpeech") -> None:
    """preprocessed_data/NAME as FastSpeech2's preprocessing leaves it, and the vocoder's weights at random."""
    import sys

    import torch

    rng = np.random.default_rng(0)
    made = folder / "preprocessed_data" / name
    for kind in ("mel", "pitch", "energy", "duration"):
        (made / kind).mkdir(parents=True, exist_ok=True)
    lines = []
    for n in range(count):
        phones = rng.choice(["HH", "AH0", "L", "OW1", "W", "ER1", "D"], rng.integers(40, 110))
        durations = rng.integers(2, 12, len(phones))
        values = {
            "mel": rng.normal(size=(durations.sum(), 80)).astype(np.float32), "duration": durations,
            "pitch": rng.normal(size=len(phones)), "energy": rng.normal(size=len(phones)).astype(np.float32),
        }  # fmt: skip
        for kind, array in values.items():
            np.save(made / kind / f"{name}-{kind}-u{n:03d}.npy", array)
        lines.append(f"u{n:03d}|{name}|{{{' '.join(phones)}}}|said {n}\n")
    for part in ("train", "val"):
        (made / f"{part}.txt").write_text("".join(lines))
    (made / "speakers.json").write_text(json.dumps({name: 0}))
    (made / "stats.json").write_text(json.dumps({"pitch": [-3, 3, 0, 1], "energy": [-3, 3, 0, 1]}))
    sys.path.insert(0, str(folder))
    import hifigan  # type: ignore[import-not-found]

    sys.path.remove(str(folder))
    told = hifigan.AttrDict(json.loads((folder / "hifigan/config.json").read_text()))
    torch.save(
        {"generator": hifigan.Generator(told).state_dict()}, folder / f"hifigan/generator_{name}.pth.tar"
    )
