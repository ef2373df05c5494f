"""transformers' `generate` in a program that is followed: a few tokens are run, the others extrapolated from
them.

A token costs transformers' own Python 0.1 s, so a thousand of them are not run one by one:

1. While transformers is about to make tokens (`GenerationMixin._sample`), the same is begun apart with longer
   prompts: its calls of the model are then those the program would get to later, because they follow from how
   long the sequence is. These runs are recorded apart, and forgotten: each has copies of the caches, and
   modules and rules that choose a token get their attributes back. Where something else keeps a part of one,
   it counts as run, a caveat says so, and every token is run.
2. The program's own first tokens follow. From these and the ones apart the memory extrapolates every token in
   between (`recording/memory.py`, `SpeculativeMemory.extrapolate`), or says that it cannot: then all are run,
   as if nothing had been tried.
3. The last tokens are run with a long prompt again. Their storages take the place of those after the first
   ones, and the program goes on from there.
4. Where a window of the cache fills on the way, tokens before that are one stretch, and those after it
   another: each is extrapolated for itself, and the tokens in between are run. A prompt read in chunks counts
   as read with its last chunk.
5. Beams (`_beam_search`) are kept in tensors as wide as the tokens that are left: a longer prompt is said to
   count as made (`_Length`).

Every token is run where they are few; where a streamer, scores or a cache of the caller's are to see each of
them; where what the model is called with does not grow with the prompt in a way known here (embeddings, masks
of four dimensions); and where a rule of when to stop is not transformers' own.
Not extrapolated: assisted decoding, where values decide how many tokens a call gets.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from analyzer.capture.pytorch.importing import once_imported
from analyzer.errors import CaptureError, NotExtrapolated
from analyzer.graph import Birth, Death

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.memory import Memory
    from analyzer.capture.pytorch.recording.recorder import Recorder, RecordingCursor
    from analyzer_programs.following.script import Phases

_MODULE = "transformers.generation.utils"
_MAKERS = ("_sample", "_beam_search")
# Rounds (a call of the model, and what comes before the next) that find the loop on its way, that it is
# worked out from, and that end it.
_SETTLING, _SAMPLED, _LAST = 2, 2, 2
_BEGINNING = _SETTLING + _SAMPLED
# Calls before and after the one that fills a window which are not taken to be like others.
_AROUND = 2
# The beginning is run four times: fewer tokens than this are run one by one.
WORTH_EXTRAPOLATING = 40
# Rules of when to stop that ask only how long the sequence is, or for one token.
_STOPS = ("MaxLengthCriteria", "EosTokenCriteria")
_KEPT = (
    "{line}: a longer prompt was tried to extrapolate tokens, and something kept a part of it: the figures"
    " count that prompt too"
)
_SHAPE = torch.Tensor.shape.__get__  # type: ignore[attr-defined]
_SEEN = (
    "output_scores",
    "output_logits",
    "output_attentions",
    "output_hidden_states",
    "return_dict_in_generate",
)


# Live storages, by a name they have in every run: number in this one, and bytes on the device.
_Lives: TypeAlias = "dict[tuple[str, int], tuple[int, int]]"


class _Ended(BaseException):
    """Raised when the wanted number of tokens has been run."""


class _KeptError(NotExtrapolated):
    """Raised when something keeps what was made for a longer prompt."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of what makes tokens. arguments: by name; prompt: names of those that grow with the prompt;
    more: tokens of the prompt that count as made."""

    sample: Callable[..., Any]
    model: torch.nn.Module
    arguments: Mapping[str, Any]
    prompt: tuple[str, ...]
    more: int = 0

    @property
    def new_tokens(self) -> int:
        """Number of tokens to generate."""
        return int(self.arguments["generation_config"].max_length - self.arguments["input_ids"].shape[1])

    @property
    def in_pieces(self) -> int:
        """Number of model calls for the prompt besides one (`_prefill`)."""
        chunk = getattr(self.arguments["generation_config"], "prefill_chunk_size", None)
        return (self.arguments["input_ids"].shape[1] - 1) // chunk if chunk else 0

    def longer(self, count: int) -> tuple[_Call, list[torch.Tensor]]:
        """Return the call with a prompt longer by this many tokens, and the tensors made for it."""
        grown = {name: _grown(name, self.arguments[name], count) for name in self.prompt if count}
        caches = copy.deepcopy(_caches(self.arguments))
        longer = replace(self, arguments={**self.arguments, **grown, **caches}, more=self.more + count)
        return longer, list(grown.values())

    def remembered(self) -> Callable[[], None]:
        """Return a function that gives the model's modules, and the rules that choose a token, the attributes
        they have now: a model keeps positions, or a table as long as the prompt, in its own."""
        parts = [*self.model.modules(), *(self.arguments.get("logits_processor") or ())]
        tables = [table for part in parts for table in _tables(part)]
        before = [dict(table) for table in tables]

        def again() -> None:
            for table, values in zip(tables, before, strict=True):
                table.clear()
                table.update(values)

        return again

    def __call__(self) -> Any:
        with _Counted(self.arguments["input_ids"], self.more):
            return self.sample(self.model, **self.arguments)


class _Length(int):
    """A prompt's length of which `more` tokens count as made: subtraction leaves them out.

    So what `_beam_search` keeps has the width it has in the program (`max_length - cur_len`, before any token
    is made), and what it writes there goes where it would (`cur_len - decoder_prompt_len`).
    """

    more: int

    def __rsub__(self, other: int) -> int:
        return int(other) - (int(self) - self.more)

    def __sub__(self, other: int) -> int:
        return other.__rsub__(self) if isinstance(other, _Length) else int(self) - other


class _Counted(TorchFunctionMode):
    """While open, the second dimension of these tokens is a `_Length`."""

    def __init__(self, tokens: torch.Tensor, more: int) -> None:
        super().__init__()
        self._tokens, self._more = tokens, more

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self._more and func == _SHAPE and args[0] is self._tokens:
            length = _Length(result[1])
            length.more = self._more
            return (result[0], length)
        return result


class Tokens:
    """Tells tokens of one program."""

    def __init__(self, recorder: Recorder, memory: Memory, phases: Phases) -> None:
        self._recorder, self._memory, self._phases = recorder, memory, phases

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """While open, transformers' `_sample` tells, from when it is imported on."""
        with contextlib.ExitStack() as stack:

            def imported(module: ModuleType) -> None:
                mixin = module.GenerationMixin
                for name in _MAKERS:
                    original = getattr(mixin, name)
                    setattr(mixin, name, self._sampling(original))
                    stack.callback(setattr, mixin, name, original)

            with once_imported(_MODULE, imported):
                yield

    def _sampling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the replacement of `GenerationMixin._sample`, which extrapolates long generations."""

        @functools.wraps(original)
        def _sample(model: torch.nn.Module, input_ids: torch.Tensor, *arguments: Any, **named: Any) -> Any:
            made = tokens(model, input_ids, *arguments, **named)
            sequences = getattr(made, "sequences", made)
            if isinstance(sequences, torch.Tensor):
                self._recorder.values.generated(sequences, input_ids.shape[-1])
            return made

        def tokens(model: torch.nn.Module, input_ids: torch.Tensor, *arguments: Any, **named: Any) -> Any:
            prompt = _prompt(model, input_ids, named) if self._phases.looking and not arguments else None
            call = _Call(original, model, {"input_ids": input_ids, **named}, prompt or ())
            if prompt is None or call.new_tokens < WORTH_EXTRAPOLATING:
                return original(model, input_ids, *arguments, **named)
            self._phases.looking = False
            try:
                return self._generate(call)
            finally:
                self._phases.looking = True

        return _sample

    def _generate(self, call: _Call) -> Any:
        """Generate the call's tokens, extrapolated over its stretches; run all of them where that fails."""
        stretches = [*self._stretches(call)]
        if not stretches:
            return call()
        program = _Program(self._recorder.position())
        again, restore = self._phases.remembered(), call.remembered()
        begun: _Begun | None = None
        while True:
            try:
                return self._through(call, program, stretches, begun)
            except _Ended:
                begun = program.begun
            assert begun is not None
            again(True)
            restore()
            if self._left(program.entry):
                raise CaptureError("tokens of generate could not be extrapolated", "please report it")
            self._recorder.cut(begun.here, {})
            between = begun.stretch.between
            self._recorder.note(
                f"{self._recorder.places.line() or 'generate'}: of {call.new_tokens:,} tokens"
                f" {len(between):,} were extrapolated from others that were run, some behind longer prompts:"
                f" tokens {between[0] + 1:,} to {between[-1] + 1:,}"
            )

    def _stretches(self, call: _Call) -> Iterator[_Stretch]:
        """Yield stretches of tokens to extrapolate, with the separate runs they follow from."""
        for first, longest in _between(call):
            try:
                middle, _ = self._speculate(call, (first + longest) // 2)
                end, lives = self._speculate(call, longest)
            except _KeptError:
                return
            except NotExtrapolated:
                continue
            yield _Stretch(first, longest, [*middle, *end], lives)

    def _through(
        self, call: _Call, program: _Program, stretches: list[_Stretch], begun: _Begun | None
    ) -> Any:
        """Run it to its end, or to where the next stretch has begun: raises _Ended there. begun: the one
        before, at whose end it starts, with a prompt so much longer, and apart until what lives here is what
        lived there."""
        recorder, memory = self._recorder, self._memory
        longer = 0 if begun is None else begun.stretch.longest
        long, grown = call.longer(longer)
        cursor, joined = recorder.position(), begun is None

        def called(places: list[RecordingCursor]) -> None:
            nonlocal joined
            number = longer + len(places)
            if begun is None and len(places) == 2:
                program.loop = places[1].storages - cursor.storages
            if begun is not None and len(places) == _BEGINNING + 2:
                _release(grown)
                self._join(begun, program, cursor, places[1].storages - cursor.storages)
                joined = True
            elif joined and stretches and number == stretches[0].first + _BEGINNING + 2:
                program.begun = self._begun(stretches.pop(0), places[-_BEGINNING - 1 :], program)
                if program.begun is not None:
                    memory.begin_speculation()
                    raise _Ended

        return _run(long, recorder, called)

    def _begun(self, stretch: _Stretch, places: list[RecordingCursor], program: _Program) -> _Begun | None:
        """Return the stretch's tokens extrapolated, its first having been run; None where they cannot be."""
        rounds, requests = self._memory.iterations([place.events for place in places], stretch.first + 1)
        entry = program.entry.storages
        live = self._lives(entry, entry, program.loop)
        samples = [*rounds[_SETTLING:], *stretch.samples]
        try:
            _check_alike(live, stretch.lives, requests)
            iterations = self._memory.extrapolate(samples, requests, stretch.between)
        except NotExtrapolated:
            return None
        return _Begun(stretch, places[-1], live, iterations)

    def _speculate(self, call: _Call, longer: int) -> tuple[list[Any], _Lives]:
        """Run with a prompt longer by `longer` and drop its record; return its rounds and live storages.
        Raises NotExtrapolated."""
        before = self._recorder.position()
        stretches: list[tuple[list[Any], _Lives]] = []

        def begin() -> None:
            long, grown = call.longer(longer)
            cursor = self._recorder.position()

            def enough(places: list[RecordingCursor]) -> None:
                if len(places) < _BEGINNING + 2:
                    return
                _release(grown)
                rounds, _ = self._memory.iterations([place.events for place in places[1:]], longer + 1)
                lives = self._lives(before.storages, cursor.storages, places[1].storages - cursor.storages)
                stretches.append((rounds[_SETTLING:], lives))
                raise _Ended

            _run(long, self._recorder, enough)

        again, restore = self._phases.remembered(), call.remembered()
        self._memory.begin_speculation()
        why = "the tokens end early"
        try:
            begin()
        except _Ended:
            pass
        except Exception as error:
            why = str(error)
        again(False)
        restore()
        if self._left(before):
            self._recorder.caveat(_KEPT.format(line=self._recorder.places.line() or "generate"))
            self._recorder.storages.simulated(self._memory.commit_speculation)
            raise _KeptError
        self._memory.discard_speculation()
        self._recorder.cut(before, {})
        if not stretches:
            raise NotExtrapolated(why)
        return stretches[0]

    def _lives(self, before: int, since: int, loop: int) -> _Lives:
        """Return the live storages by a key that is the same for any prompt length: of those older than
        `before` the distance to it; of the first `loop` since `since` their order; of later ones the number
        made after them."""
        storages, lives, rank = self._recorder.storages.all, {}, count()
        for storage in sorted(self._recorder.storages.alive()):
            if storage < before:
                key = "older", storage - before
            elif storage < since + loop:
                key = "prompt", next(rank)
            else:
                key = "rounds", storage - len(storages)
            lives[key] = storage, storages[storage].nbytes if storages[storage].on_device else 0
        return lives

    def _left(self, place: RecordingCursor) -> bool:
        """Return whether something made since then is still alive."""
        gc.collect()
        return any(storage >= place.storages for storage in self._recorder.storages.alive())

    def _join(self, begun: _Begun, program: _Program, cursor: RecordingCursor, loop: int) -> None:
        """Replace storages alive after the first tokens by those alive now; the program goes on."""
        recorder, entry, at = self._recorder, program.entry, begun.here
        now = recorder.position()
        lives = self._lives(entry.storages, cursor.storages, loop)
        _check_alike(begun.live, lives, begun.iterations.extrapolated)
        partners = {storage: begun.live[key][0] for key, (storage, _) in lives.items() if key[0] != "older"}
        every = recorder.storages.all
        # Storages in host memory were not requested, and may have grown.
        extrapolated = [
            storage
            for storage, partner in partners.items()
            if partner in begun.iterations.extrapolated
            or (not every[storage].on_device and every[storage].nbytes != every[partner].nbytes)
        ]
        names = {**partners, **{storage: at.storages + count for count, storage in enumerate(extrapolated)}}
        growing = [every[storage] for storage in extrapolated]
        pairs = [(partners[storage], storage) for storage in extrapolated]
        self._memory.resume_after(begun.iterations, pairs, names, now.operators - at.operators)
        recorder.cut(at, names)
        recorder.storages.all.extend(growing)
        recorder.storages.program.extend(Death(partners[storage]) for storage in extrapolated)
        recorder.storages.program.extend(Birth(names[storage]) for storage in extrapolated)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Tokens that may be extrapolated: from `first` to `longest` more than at the beginning.

    samples: rounds in its middle and at its end; lives: what lived after these, as `Tokens._lives`.
    """

    first: int
    longest: int
    samples: list[Any]
    lives: _Lives

    @property
    def between(self) -> range:
        """Numbers of the rounds that are extrapolated."""
        return range(self.first + _BEGINNING + 1, self.longest + _BEGINNING + 1)


@dataclass(slots=True)
class _Program:
    """State of a program at its first token. loop: storages made before its second call of the model; begun:
    the stretch that ended it."""

    entry: RecordingCursor
    loop: int = 0
    begun: _Begun | None = None


@dataclass(frozen=True, slots=True)
class _Begun:
    """A stretch after its first tokens, with the extrapolated ones. live: as from `_lives`."""

    stretch: _Stretch
    here: RecordingCursor
    live: _Lives
    iterations: Any


def _between(call: _Call) -> Iterator[tuple[int, int]]:
    """Yield stretches of similar calls, as counts of calls before the first and before the last ones: a
    window of the cache that fills ends a stretch."""
    prompt = call.arguments["input_ids"].shape[1]
    # The prompt's own call makes the first token, each round another.
    last = call.new_tokens - 1 - _BEGINNING - _LAST
    fewest = WORTH_EXTRAPOLATING - 1 - _BEGINNING - _LAST
    first = 0
    for window in sorted(_windows(call.arguments)):
        filled = window - prompt + 1  # the call that is given as many tokens as the window has
        if filled + _AROUND <= 0:
            continue
        if min(filled - _AROUND - _BEGINNING - _LAST, last) - first >= fewest:
            yield first, min(filled - _AROUND - _BEGINNING - _LAST, last)
        first = filled + _AROUND
    if last - first >= fewest:
        yield first, last


def _caches(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the caches among the arguments, by name: `cache` in transformers 5.24, before that
    `past_key_values`, or a model's own (`ALL_CACHE_NAMES`), which need not be a `Cache`."""
    names = getattr(sys.modules[_MODULE], "ALL_CACHE_NAMES", ("past_key_values",))
    return {
        name: value
        for name, value in arguments.items()
        if value is not None
        and (name in names or any(kind.__name__ == "Cache" for kind in type(value).__mro__))
    }


def _tables(part: Any) -> Iterator[dict[Any, Any]]:
    """Yield an object's attributes, and those of them that are tables themselves."""
    attributes = getattr(part, "__dict__", None)
    if attributes is not None:
        yield attributes
        yield from (value for value in attributes.values() if isinstance(value, dict))


def _layers(arguments: Mapping[str, Any]) -> list[Any]:
    """Return the layers of the caches among the arguments."""
    return [layer for cache in _caches(arguments).values() for layer in getattr(cache, "layers", ())]


def _windows(arguments: Mapping[str, Any]) -> set[int]:
    """Return the window lengths, in tokens, of the sliding layers of caches."""
    layers = [layer for layer in _layers(arguments) if getattr(layer, "is_sliding", False)]
    windows = (
        getattr(layer, "sliding_window", None) or getattr(layer, "max_cache_len", None) for layer in layers
    )
    return {window for window in windows if isinstance(window, int)}


def _check_alike(ours: _Lives, others: _Lives, extrapolated: Container[int]) -> None:
    """Raise NotExtrapolated if runs with different prompts hold different tensors; extrapolated ones may
    differ in size."""
    if ours.keys() != others.keys() or any(
        nbytes != others[key][1] for key, (storage, nbytes) in ours.items() if storage not in extrapolated
    ):
        raise NotExtrapolated("other tensors live after a longer prompt")


def _run(call: _Call, recorder: Recorder, called: Callable[[list[RecordingCursor]], None]) -> Any:
    """Call it. called: given, at each of its calls of the model, where each was so far, from the last one for
    the prompt on; it may raise."""
    places: list[RecordingCursor] = []
    before_those = call.in_pieces

    def before(*_: Any) -> None:
        nonlocal before_those
        if before_those:
            before_those -= 1
            return
        places.append(recorder.position())
        called(places)

    hook = call.model.register_forward_pre_hook(before, prepend=True)
    try:
        return call()
    finally:
        hook.remove()


def _prompt(
    model: torch.nn.Module, input_ids: torch.Tensor, arguments: Mapping[str, Any]
) -> tuple[str, ...] | None:
    """Names of the arguments that grow with the prompt; None where every token has to be run."""
    config = arguments.get("generation_config")
    if (
        config is None
        or not (isinstance(input_ids, torch.Tensor) and input_ids.is_cuda and input_ids.dim() == 2)
        or torch.is_grad_enabled()
        or any(getattr(config, name, None) for name in (*_SEEN, "is_assistant"))
        or arguments.get("streamer") is not None
        or arguments.get("synced_gpus")
        or arguments.get("inputs_embeds") is not None
        or any(type(rule).__name__ not in _STOPS for rule in arguments.get("stopping_criteria") or ())
        or any(getattr(cache, "_is_user_defined", False) for cache in _caches(arguments).values())
        or any(getattr(layer, "is_initialized", False) for layer in _layers(arguments))
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
    """Append `count` columns: positions count on, other values repeat the last column."""
    more = value[:, -1:].expand(-1, count)
    if "position" in name:
        more = more + torch.arange(1, count + 1, dtype=value.dtype, device=value.device)
    return torch.cat([value, more], dim=-1)


def _release(tensors: Sequence[torch.Tensor]) -> None:
    """Free the tensors' memory, although callers still hold the tensor objects as arguments."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        for tensor in tensors:
            tensor.data = torch.empty(0, dtype=tensor.dtype, device="meta")
