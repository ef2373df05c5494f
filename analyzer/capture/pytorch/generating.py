"""transformers' `generate` in a program that is followed: a few tokens are run, the others told from them.

A token costs transformers' own Python 0.1 s, so a thousand of them are not run one by one:

1. While transformers is about to make tokens (`GenerationMixin._sample`), the same is begun apart with longer prompts: its
   calls of the model are then those the program would get to later, because they follow from how long the sequence is. What
   happens there is written down apart, and forgotten.
2. The program's own first tokens follow. From these and the ones apart the memory tells every token in between
   (`cuda/memory.py`, `Memory.ahead`), or says that it cannot: then all are run, as if nothing had been tried.
3. The last tokens are run with a long prompt again. What lives there takes the place of what lived after the first ones, and
   the program goes on from there.

Every token is run where they are few; where a streamer, scores or a cache of the caller's are to see each of them; where what
the model is called with does not grow with the prompt in a way known here (embeddings, masks of four dimensions); and where a
rule of when to stop is not transformers' own.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from analyzer.capture.pytorch.importing import once_imported
from analyzer.errors import CaptureError, NotTold
from analyzer.graph import Birth, Death

if TYPE_CHECKING:
    from analyzer.capture.pytorch.cuda.memory import Memory
    from analyzer.capture.pytorch.recorder import Position, Recorder
    from analyzer.capture.pytorch.script import Phases

_MODULE = "transformers.generation.utils"
# Rounds (a call of the model, and what comes before the next) that find the loop on its way, that tell it, and that end it.
_SETTLING, _TELLING, _LAST = 2, 2, 2
_BEGINNING = _SETTLING + _TELLING
# The beginning is run four times: fewer tokens than this are run one by one.
WORTH_TELLING = 40
# Rules of when to stop that ask only how long the sequence is, or for one token.
_STOPS = ("MaxLengthCriteria", "EosTokenCriteria")
_SEEN = (
    "output_scores",
    "output_logits",
    "output_attentions",
    "output_hidden_states",
    "return_dict_in_generate",
)


class _Ended(BaseException):
    """As many tokens as were wanted have been run."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of `_sample`. arguments: by name; prompt: names of those that grow with the prompt."""

    sample: Callable[..., Any]
    model: torch.nn.Module
    arguments: Mapping[str, Any]
    prompt: tuple[str, ...]

    @property
    def new_tokens(self) -> int:
        """How many tokens are to be made."""
        return int(self.arguments["generation_config"].max_length - self.arguments["input_ids"].shape[1])

    def longer(self, count: int) -> tuple[_Call, list[torch.Tensor]]:
        """The same with a prompt of so many more tokens, and a cache of its own; and the tensors made for it."""
        made = {name: _grown(name, self.arguments[name], count) for name in self.prompt if count}
        cache = copy.deepcopy(self.arguments.get("past_key_values"))
        return replace(self, arguments={**self.arguments, **made, "past_key_values": cache}), list(
            made.values()
        )

    def __call__(self) -> Any:
        return self.sample(self.model, **self.arguments)


class Tokens:
    """Tells tokens of one program."""

    def __init__(self, recorder: Recorder, memory: Memory, phases: Phases) -> None:
        self._recorder, self._memory, self._phases = recorder, memory, phases

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """While open, transformers' `_sample` tells, from when it is imported on."""
        with contextlib.ExitStack() as stack:

            def imported(module: ModuleType) -> None:
                mixin, original = module.GenerationMixin, module.GenerationMixin._sample
                mixin._sample = self._sampling(original)
                stack.callback(setattr, mixin, "_sample", original)

            with once_imported(_MODULE, imported):
                yield

    def _sampling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def _sample(model: torch.nn.Module, input_ids: torch.Tensor, *given: Any, **named: Any) -> Any:
            prompt = _prompt(model, input_ids, named) if self._phases.looking and not given else None
            call = _Call(original, model, {"input_ids": input_ids, **named}, prompt or ())
            if prompt is None or call.new_tokens < WORTH_TELLING:
                return original(model, input_ids, *given, **named)
            self._phases.looking = False
            try:
                return self._told(call)
            finally:
                self._phases.looking = True

        return _sample

    def _told(self, call: _Call) -> Any:
        # The prompt's own call makes the first token, each round another.
        longest = call.new_tokens - 1 - _BEGINNING - _LAST
        try:
            middle, _ = self._apart(call, longest // 2)
            end, lives = self._apart(call, longest)
        except NotTold:
            return call()
        recorder, memory, entry = self._recorder, self._memory, self._recorder.position()
        between = range(_BEGINNING + 1, _BEGINNING + longest + 1)
        begun: _Begun | None = None

        def first(places: list[Position]) -> None:
            nonlocal begun
            rounds, asked = memory.rounds([place.events for place in places[1:]], 1)
            live = self._lives(entry.storages, entry.storages)
            try:
                _check_alike(live, lives, {storage - entry.storages for storage in asked})
                ahead = memory.ahead([*rounds[_SETTLING:], *middle, *end], asked, between)
            except NotTold:
                return
            begun = _Begun(entry, places[-1], live, ahead)
            memory.aside()
            raise _Ended

        again = self._phases.remembered()
        with contextlib.suppress(_Ended):
            return _run(call.longer(0)[0], recorder, first)
        assert begun is not None
        again(True)
        if self._left(entry):
            raise CaptureError("tokens of generate could not be told", "please report it")
        recorder.cut(begun.here, {})
        recorder.note(
            f"{recorder.where() or 'generate'}: of {call.new_tokens:,} tokens {call.new_tokens - len(between):,} were run and "
            f"{len(between):,} told from them: tokens {between[0] + 1:,} to {between[-1] + 1:,}"
        )
        long, made = call.longer(longest)
        there = recorder.position()

        def last(_: list[Position]) -> None:
            _release(made)
            self._join(begun, there)

        return _run(long, recorder, last)

    def _apart(self, call: _Call, longer: int) -> tuple[list[Any], dict[int, int]]:
        """The rounds that tell of a run with a prompt so much longer, which is forgotten; and what lived after them, as
        `_lives`. Raises NotTold."""
        before = self._recorder.position()
        found: list[tuple[list[Any], dict[int, int]]] = []

        def begin() -> None:
            long, made = call.longer(longer)
            there = self._recorder.position()

            def enough(places: list[Position]) -> None:
                _release(made)
                rounds, _ = self._memory.rounds([place.events for place in places[1:]], longer + 1)
                found.append((rounds[_SETTLING:], self._lives(before.storages, there.storages)))
                raise _Ended

            _run(long, self._recorder, enough)

        again = self._phases.remembered()
        self._memory.aside()
        why = "the tokens end early"
        try:
            begin()
        except _Ended:
            pass
        except Exception as error:
            why = str(error)
        again(False)
        left = self._left(before)
        self._memory.back(happened=left)
        if not left:
            self._recorder.cut(before, {})
        if left or not found:
            raise NotTold("the model keeps what a prompt made" if left else why)
        return found[0]

    def _lives(self, before: int, since: int) -> dict[int, int]:
        """What lives now, with its bytes: storages numbered from `since` on from 0, those older than `before` below it."""
        storages = self._recorder.storages
        return {
            storage - since if storage >= since else storage - before: storages[storage].nbytes
            for storage in sorted(self._recorder.alive())
        }

    def _left(self, place: Position) -> bool:
        """Whether something of what was made since then lives on, although nobody should hold it."""
        gc.collect()
        return any(storage >= place.storages for storage in self._recorder.alive())

    def _join(self, begun: _Begun, there: Position) -> None:
        """What lives now takes the place of what lived after the first tokens: the program goes on from there."""
        recorder, entry, here = self._recorder, begun.entry, begun.here
        lives = self._lives(entry.storages, there.storages)
        _check_alike(begun.live, lives, {storage - entry.storages for storage in begun.ahead.told})
        partners = {number + there.storages: number + entry.storages for number in lives if number >= 0}
        told = [storage for storage, partner in partners.items() if partner in begun.ahead.told]
        names = {**partners, **{storage: here.storages + count for count, storage in enumerate(told)}}
        growing = [recorder.storages[storage] for storage in told]
        pairs = [(partners[storage], storage) for storage in told]
        self._memory.join(begun.ahead, pairs, names, there.operators - entry.operators)
        recorder.cut(here, names)
        recorder.storages.extend(growing)
        recorder.program.extend(Death(partners[storage]) for storage in told)
        recorder.program.extend(Birth(names[storage]) for storage in told)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A program whose first tokens were run, and those told of which the memory knows. live: as `_lives`, after the first."""

    entry: Position
    here: Position
    live: Mapping[int, int]
    ahead: Any


def _check_alike(ours: Mapping[int, int], others: Mapping[int, int], told: set[int]) -> None:
    """Raises NotTold where runs with different prompts hold other tensors; those that are told may have other sizes."""
    if ours.keys() != others.keys() or any(
        nbytes != others[number] for number, nbytes in ours.items() if number not in told
    ):
        raise NotTold("other tensors live after a longer prompt")


def _run(call: _Call, recorder: Recorder, begun: Callable[[list[Position]], None]) -> Any:
    """Call it. begun: told where the model was called, once the rounds of the beginning are over; it may raise."""
    places: list[Position] = []

    def called(*_: Any) -> None:
        places.append(recorder.position())
        if len(places) == _BEGINNING + 2:
            begun(places)

    hook = call.model.register_forward_pre_hook(called, prepend=True)
    try:
        return call()
    finally:
        hook.remove()


def _prompt(
    model: torch.nn.Module, input_ids: torch.Tensor, arguments: Mapping[str, Any]
) -> tuple[str, ...] | None:
    """Names of the arguments that grow with the prompt; None where every token has to be run."""
    config, cache = arguments.get("generation_config"), arguments.get("past_key_values")
    if (
        config is None
        or not (isinstance(input_ids, torch.Tensor) and input_ids.is_cuda and input_ids.dim() == 2)
        or torch.is_grad_enabled()
        or any(getattr(config, name, None) for name in (*_SEEN, "prefill_chunk_size", "is_assistant"))
        or arguments.get("streamer") is not None
        or arguments.get("synced_gpus")
        or arguments.get("inputs_embeds") is not None
        or any(type(rule).__name__ not in _STOPS for rule in arguments.get("stopping_criteria") or ())
        or getattr(cache, "_is_user_defined", False)
        or any(getattr(layer, "is_initialized", False) for layer in getattr(cache, "layers", ()))
        or not isinstance(model, torch.nn.Module)
    ):
        return None
    length = input_ids.shape[1]
    names = ["input_ids"]
    for name, value in arguments.items():
        if name == "encoder_outputs" or not isinstance(value, torch.Tensor) or length not in value.shape[1:]:
            continue
        # The encoder's mask of a sequence that happens to be as long as the decoder's prompt.
        if name == "attention_mask" and getattr(model.config, "is_encoder_decoder", False):
            continue
        if value.dim() != 2 or value.is_floating_point():
            return None
        names.append(name)
    return tuple(names)


def _grown(name: str, value: torch.Tensor, count: int) -> torch.Tensor:
    """So many columns more: positions count on, everything else stays what it is at the end."""
    more = value[:, -1:].expand(-1, count)
    if "position" in name:
        more = more + torch.arange(1, count + 1, dtype=value.dtype, device=value.device)
    return torch.cat([value, more], dim=-1)


def _release(tensors: Sequence[torch.Tensor]) -> None:
    """Their memory is gone, whoever still has the tensors among the arguments of a function that runs."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        for tensor in tensors:
            tensor.data = torch.empty(0, dtype=tensor.dtype, device="meta")
