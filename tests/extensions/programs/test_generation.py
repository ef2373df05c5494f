"""Tokens that are extrapolated give what the same tokens give when every one of them is run; what cannot be extrapolated is run."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import analyzer
from analyzer.results.estimate import Estimate
from analyzer_programs.following import generating

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("transformers", "accelerate")),
    reason="the user's own packages are not here",
)
LLAMA = {
    "model_type": "llama", "vocab_size": 4096, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "torch_dtype": "bfloat16",
}  # fmt: skip
WINDOW = {**LLAMA, "model_type": "mistral", "sliding_window": 320}


WHISPER = {
    "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "vocab_size": 2000, "d_model": 64,
    "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128, "num_mel_bins": 80, "max_source_positions": 100, "torch_dtype": "bfloat16",
    "pad_token_id": 1, "bos_token_id": 1, "eos_token_id": 1, "decoder_start_token_id": 2,
}  # fmt: skip


def generated(folder: Path, document: dict[str, Any], **said: Any) -> Estimate:
    path = folder / "config.json"
    path.write_text(json.dumps(document))
    return analyzer.analyze(path, mode="generate", release={"torch": "2.11"}, **said)


def extrapolated(estimate: Estimate) -> bool:
    return any("were extrapolated from others" in note for note in estimate.notes)


@pytest.mark.parametrize(
    "said",
    [
        {"length": 300, "new_tokens": 44, "batch": 8},
        *(
            pytest.param(said, marks=pytest.mark.campaign)
            for said in (
                {"length": 60, "new_tokens": 50, "batch": 16, "cache": "static"},
                {"length": 60, "new_tokens": 60, "batch": 16, "cache": "offloaded_static"},
                {"length": 300, "new_tokens": 70, "batch": 9, "beams": 4},
                {"length": 130, "new_tokens": 55, "batch": 64, "sample": True},
                {"length": 300, "new_tokens": 60, "batch": 8, "prefill_chunk": 128},
                {"length": 300, "new_tokens": 60, "batch": 16, "cache": "offloaded"},
                {"length": 60, "new_tokens": 50, "batch": 3, "beams": 3, "cache": "static", "sample": True},
            )
        ),
    ],
    ids=lambda said: str(said.get("cache") or said.get("prefill_chunk") or said["batch"]),
)
def test_as_when_every_token_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    short = generated(tmp_path, LLAMA, **said)
    monkeypatch.setattr(generating, "WORTH_EXTRAPOLATING", 10**9)
    full = generated(tmp_path, LLAMA, **said)
    assert extrapolated(short) and not extrapolated(full)
    assert short.peak_allocated == full.peak_allocated
    assert short.peak_reserved == full.peak_reserved
    assert short.peak_requested == full.peak_requested
    assert short.device_used == full.device_used
    assert short.breakdown == full.breakdown
    assert sum(short.breakdown.values()) == short.peak_allocated
    # Equal ones come in the order in which threads loaded them.
    rows = [sorted((row.name, row.nbytes, row.shape) for row in one.top(5)) for one in (short, full)]
    assert rows[0] == rows[1]


T5 = {
    "model_type": "t5", "vocab_size": 2048, "d_model": 128, "d_ff": 256, "d_kv": 32, "num_layers": 1, "num_heads": 4,
    "decoder_start_token_id": 0, "architectures": ["T5ForConditionalGeneration"], "torch_dtype": "bfloat16",
}  # fmt: skip
BART = {
    "model_type": "bart", "vocab_size": 2048, "d_model": 128, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "encoder_layers": 2,
    "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 256,
    "architectures": ["BartForConditionalGeneration"], "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(
    ("document", "beams"),
    [(T5, 1), *(pytest.param(*case, marks=pytest.mark.campaign) for case in ((T5, 3), (BART, 1), (BART, 3)))],
    ids=lambda value: value if isinstance(value, int) else value["model_type"],
)
def test_an_encoder_and_a_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: dict[str, Any], beams: int
) -> None:
    said = {"length": 100, "new_tokens": 44, "batch": 8, "beams": beams}
    short = generated(tmp_path, document, **said)
    monkeypatch.setattr(generating, "WORTH_EXTRAPOLATING", 10**9)
    full = generated(tmp_path, document, **said)
    assert extrapolated(short) and not extrapolated(full)
    for figure in ("peak_allocated", "peak_reserved", "peak_requested", "device_used", "naive", "breakdown"):
        assert getattr(short, figure) == getattr(full, figure), figure


FILLING = {**LLAMA, "model_type": "mistral", "sliding_window": 96, "num_hidden_layers": 2}
SOME_WINDOWS = {
    **LLAMA, "model_type": "gemma3_text", "num_hidden_layers": 3, "sliding_window": 80, "head_dim": 32,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}  # fmt: skip


@pytest.mark.parametrize("cache", [None, pytest.param("static", marks=pytest.mark.campaign)])
@pytest.mark.parametrize(
    "document",
    [
        pytest.param(FILLING, marks=pytest.mark.campaign),
        pytest.param(SOME_WINDOWS, marks=pytest.mark.campaign),
    ],
    ids=lambda document: document["model_type"],
)
def test_a_window_that_fills_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: dict[str, Any], cache: str | None
) -> None:
    """Before it is full and after, tokens are extrapolated; those around are run."""
    said = {"length": 20, "new_tokens": 140, "batch": 8, "cache": cache}
    short = generated(tmp_path, document, **said)
    monkeypatch.setattr(generating, "WORTH_EXTRAPOLATING", 10**9)
    full = generated(tmp_path, document, **said)
    stretches = [note for note in short.notes if "were extrapolated from others" in note]
    assert len(stretches) == 2 and not extrapolated(full)
    for figure in ("peak_allocated", "peak_reserved", "peak_requested", "device_used", "naive", "breakdown"):
        assert getattr(short, figure) == getattr(full, figure), figure


@pytest.mark.campaign
def test_a_window_that_fills_soon_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the tokens before are many nor those after."""
    said = {"length": 300, "new_tokens": 60, "batch": 8}
    estimate = generated(tmp_path, WINDOW, **said)
    assert not extrapolated(estimate)
    monkeypatch.setattr(generating, "WORTH_EXTRAPOLATING", 10**9)
    assert estimate.peak_reserved == generated(tmp_path, WINDOW, **said).peak_reserved


@pytest.mark.campaign
def test_what_is_heard_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whisper's `generate` cuts its tokens at timestamps, which nobody knows: to its end, with the model called once a token."""
    said = {"new_tokens": 60, "batch": 16}
    short = generated(tmp_path, WHISPER, **said)
    monkeypatch.setattr(generating, "WORTH_EXTRAPOLATING", 10**9)
    full = generated(tmp_path, WHISPER, **said)
    assert extrapolated(short) and not extrapolated(full) and full.incomplete is None
    assert any("no timestamps are assumed" in note for note in full.notes)
    for figure in ("peak_allocated", "peak_reserved", "peak_requested"):
        assert getattr(short, figure) == getattr(full, figure), figure


@pytest.mark.campaign
def test_what_does_not_fit_ends_where_it_ends(tmp_path: Path) -> None:
    """With a device too small for the last tokens every token is run: the request that fails is named."""
    said = {"length": 300, "new_tokens": 60, "batch": 512}
    room = generated(tmp_path, LLAMA, **said)
    tight = generated(tmp_path, LLAMA, device=room.device_used - 200 * 2**20, **said)
    assert extrapolated(room) and tight.out_of_memory is not None and not tight.fits()


def test_the_graph_that_is_put_together_is_one(tmp_path: Path) -> None:
    from analyzer.options import Options
    from analyzer_programs.configuration import followed

    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    found = followed(str(path), Options(mode="generate", new_tokens=44, length=20))
    found.graph.check()
    assert len(found.graph.operators) == found.graph.operators[-1].index + 1


SCRIPT = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel

model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=64, n_head=4, vocab_size=800)).cuda().eval()
for length, mask in ((40, None), (130, torch.ones(4, 130, dtype=torch.long).cuda())):
    ids = torch.randint(0, 800, (4, length)).cuda()
    made = model.generate(ids, attention_mask=mask, min_new_tokens=44, max_new_tokens=44, pad_token_id=0, num_beams=BEAMS)
    assert made.shape == (4, length + 44)
kept = torch.nn.functional.one_hot(made, 800).float()
print("after", round(kept.sum().item()), torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated())
"""


@pytest.mark.parametrize("beams", [1, pytest.param(3, marks=pytest.mark.campaign)])
def test_a_program_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], beams: int
) -> None:
    """Both calls are extrapolated, each for itself; what the program asks its GPU afterwards is what every token leaves behind."""
    script = tmp_path / "talk.py"
    script.write_text(SCRIPT.replace("BEAMS", str(beams)))
    short, said = analyzer.run(script), capsys.readouterr().out
    monkeypatch.setattr(generating, "WORTH_EXTRAPOLATING", 10**9)
    full = analyzer.run(script)
    assert said == capsys.readouterr().out
    assert (
        extrapolated(short)
        and not extrapolated(full)
        and short.incomplete is None
        and full.incomplete is None
    )
    for figure in ("peak_allocated", "peak_reserved", "peak_requested", "device_used", "naive", "breakdown"):
        assert getattr(short, figure) == getattr(full, figure), figure


@pytest.mark.parametrize(
    "more",
    [
        "output_scores=True, return_dict_in_generate=True",
        "streamer=Quiet()",
        "past_key_values=DynamicCache()",
    ],
)
def test_what_sees_every_token_gets_every_token(tmp_path: Path, more: str) -> None:
    script = tmp_path / "talk.py"
    script.write_text(
        f"""
import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel
from transformers.generation.streamers import BaseStreamer

class Quiet(BaseStreamer):
    count = 0

    def put(self, value):
        Quiet.count += 1

    def end(self):
        assert Quiet.count == 46

model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=64, n_head=4, vocab_size=800)).cuda().eval()
ids = torch.randint(0, 800, (1, 10)).cuda()
model.generate(ids, min_new_tokens=45, max_new_tokens=45, pad_token_id=0, {more})
"""
    )
    estimate = analyzer.run(script)
    assert estimate.incomplete is None and not extrapolated(estimate)


CACHES = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, MambaConfig, MambaForCausalLM


class Renamed(GPT2LMHeadModel):
    # The name that transformers 5.24 gives the cache, in any version.
    def _prepare_cache_for_generation(self, config, arguments, *more):
        super()._prepare_cache_for_generation(config, arguments, *more)
        arguments["cache"] = arguments.pop("past_key_values", None) or arguments["cache"]

    def prepare_inputs_for_generation(self, ids, cache=None, attention_mask=None, **more):
        more |= {"attention_mask": attention_mask, "past_key_values": cache}
        return {**super().prepare_inputs_for_generation(ids, **more), "past_key_values": cache}

    def _update_model_kwargs_for_generation(self, outputs, arguments, *more, **named):
        named = super()._update_model_kwargs_for_generation(outputs, arguments, *more, **named)
        return {name: value for name, value in named.items() if name != "past_key_values"}


def before(model, given, named):
    cache = named.get("past_key_values") or named.get("cache_params") or named.get("cache")
    print(*named["input_ids"].shape, cache.has_previous_state() if MODEL == "mamba" else cache.get_seq_length())


with torch.device(DEVICE):
    if MODEL == "mamba":
        model = MambaForCausalLM(MambaConfig(vocab_size=800, hidden_size=64, num_hidden_layers=1, state_size=8)).eval()
    else:
        kind = Renamed if MODEL == "renamed" else GPT2LMHeadModel
        model = kind(GPT2Config(n_layer=1, n_embd=64, n_head=4, vocab_size=800)).eval()
model.register_forward_pre_hook(before, with_kwargs=True)
ids = torch.ones(8, 64, dtype=torch.long, device=DEVICE)
model.generate(ids, attention_mask=torch.ones_like(ids), min_new_tokens=44, max_new_tokens=44, pad_token_id=0)
"""


@pytest.mark.parametrize("model", ["usual", "renamed", "mamba"])
def test_a_cache_by_any_name_is_the_programs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    """The model's calls are those of plain Python (transformers 5.24 on a CPU: the prompt, then a token a time), and no prompt that
    is tried finds something in the cache."""
    script = tmp_path / "talk.py"
    script.write_text(f"MODEL, DEVICE = '{model}', 'cuda'\n{CACHES}")
    states = ["False", *["True"] * 43] if model == "mamba" else ["0", *map(str, range(64, 64 + 43))]
    plain = [f"8 {64 if call == 0 else 1} {state}" for call, state in enumerate(states)]
    short, calls = analyzer.run(script), capsys.readouterr().out
    monkeypatch.setattr(generating, "WORTH_EXTRAPOLATING", 10**9)
    full = analyzer.run(script)
    assert capsys.readouterr().out.splitlines() == plain
    prompts = [line.split() for line in calls.splitlines() if line.split()[1] != "1"]
    assert [state for *_, state in prompts] == states[:1] * 4 and ["8", "64", states[0]] in prompts
    assert extrapolated(short) and not extrapolated(full)
    for figure in ("peak_allocated", "peak_reserved", "peak_requested", "device_used", "naive", "breakdown"):
        assert getattr(short, figure) == getattr(full, figure), figure


KEEPING = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel

KEPT = []

class Keeping(GPT2LMHeadModel):
    def forward(self, input_ids, **more):
        if input_ids.shape[1] > 1:
            table = torch.zeros(*input_ids.shape, 512, device="cuda")
            WHERE
        return super().forward(input_ids=input_ids, **more)

model = Keeping(GPT2Config(n_layer=1, n_embd=64, n_head=4, vocab_size=800)).cuda().eval()
ids = torch.ones(BATCH, 64, dtype=torch.long, device="cuda")
model.generate(ids, attention_mask=torch.ones_like(ids), min_new_tokens=44, max_new_tokens=44, pad_token_id=0)
print(torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved())
"""


def test_an_attribute_that_a_longer_prompt_made_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "talk.py"
    script.write_text(KEEPING.replace("WHERE", "self.table = table").replace("BATCH", "8"))
    short, said = analyzer.run(script), capsys.readouterr().out
    monkeypatch.setattr(generating, "WORTH_EXTRAPOLATING", 10**9)
    full = analyzer.run(script)
    assert said == capsys.readouterr().out and not short.caveats
    for figure in ("peak_allocated", "peak_reserved", "peak_requested", "device_used", "naive", "breakdown"):
        assert getattr(short, figure) == getattr(full, figure), figure


@pytest.mark.parametrize("batch", [8, 200_000])
def test_what_is_kept_elsewhere_is_said(tmp_path: Path, batch: int) -> None:
    """Both prompts count; where that finds no memory the program is out of memory, by PyTorch's own error."""
    script = tmp_path / "talk.py"
    script.write_text(KEEPING.replace("WHERE", "KEPT.append(table)").replace("BATCH", str(batch)))
    estimate = analyzer.run(script, device="rtx4090")
    assert any(": a longer prompt was tried" in caveat for caveat in estimate.caveats)
    assert estimate.incomplete is None and estimate.fits() is (batch == 8)


@pytest.mark.parametrize("sample", [False, True])
def test_drafted_tokens_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sample: bool
) -> None:
    """The model is called once a token, with what it has cached, the last token and as many candidates as there is room for."""
    script = tmp_path / "talk.py"
    script.write_text(
        f"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

model, draft = (GPT2LMHeadModel(GPT2Config(n_layer=n, n_embd=64, n_head=4, vocab_size=800)).cuda().eval() for n in (2, 1))
draft.generation_config.num_assistant_tokens = 4
calls = []
model.register_forward_hook(lambda _, given, out: calls.append((out.logits.shape[1], out.past_key_values.get_seq_length())))
ids = torch.randint(0, 800, (1, 30)).cuda()
made = model.generate(ids, max_new_tokens=9, min_new_tokens=9, pad_token_id=0, do_sample={sample}, assistant_model=draft)
print(made.shape[1], calls)
"""
    )
    estimate = analyzer.run(script)
    room = [min(4, 39 - length - 1) for length in range(30, 39)]
    calls = [(many + 1, length + many) for length, many in zip(range(30, 39), room, strict=True)]
    assert capsys.readouterr().out.strip() == f"39 {calls}" and estimate.incomplete is None
    assert any("none of the drafted tokens are assumed to be accepted" in note for note in estimate.notes)


ENDS = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM

sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
model = LlamaForCausalLM(LlamaConfig(vocab_size=100, pad_token_id=1, eos_token_id=2, bos_token_id=2, **sizes)).cuda()
prompts = torch.randint(3, 100, (4, 7)).cuda()
made = model.generate(prompts, max_new_tokens={new}, do_sample=True)
ends = torch.isin(made[:, 7:], torch.tensor([2], device="cuda"))
where = torch.full((4,), {new}, device="cuda")
where[ends.any(dim=1)] = ends.int().argmax(dim=1)[ends.any(dim=1)]
places = torch.arange({new}, device="cuda")
kept = [tokens[mask] for tokens, mask in zip(made[:, 7:].cpu(), (places <= where[:, None]).cpu())]
assert [len(tokens) for tokens in kept] == [{new}] * 4, kept
assert bool((made[:, 7:].clone() != 1).all())
"""


@pytest.mark.parametrize("new", [8, pytest.param(48, marks=pytest.mark.campaign)])
def test_no_end_is_among_the_tokens_of_a_generation(tmp_path: Path, new: int) -> None:
    """What comes after a generation cuts its tokens at the first end: there is none, as it goes on to its longest."""
    script = tmp_path / "program.py"
    script.write_text(ENDS.format(new=new))
    estimate = analyzer.run(script, device="h200")
    assert estimate.incomplete is None
    assert any("no end of a sequence is assumed" in note for note in estimate.notes)
