"""cuDNN's choices on one GPU: each convolution is looked up where its answer is recorded, else asked of the
library, else bounded.

1. A recorded answer (`recorded.py`) counts if the library within reach is of that release, or there is none;
   any other call is asked of cuDNN (`asker.py`) for the GPU the profile describes. On compute capability 9
   some engines take other bytes than a description says: `splits.py`, `besides.py`.
2. Engines built on cuBLAS (`on_cublas.py`) come first for most plain matrix products, and for some others.
   The log says where (`backend.py`); for a recorded call, and a release whose log does not, `first_plan.py`.
3. Engines compiled at run time take no workspace, and come first for most depthwise convolutions. Where they
   are not listed (`Asker.lists_compiled`) the answer for such a one may be nothing.
4. Where nobody can be asked, the workspace is unknown: between nothing and `most_bytes`. The figure is that
   of the same convolution at the recorded batches around it, in proportion beyond them, and then at most this
   or three copies of its tensors and 32 MiB: of 924,769 recorded answers 119 are more than the batch before
   says, 289 than the one behind. Else it is that of a matrix product, else a copy of input, weights and
   output in NCHW, which is what kernels on tensor cores take there, and nothing in NHWC. Between two recorded
   answers of nothing 3 % take something; of first layers (at most four channels, one group) 44 of 15,205, so
   that these take nothing for sure; beyond the recorded batches 10 % of them do.
5. **Settings** (`torch.backends.cudnn`) choose among the plans (`plans.py`).
6. **Benchmark mode** takes, the first time a convolution is seen, one workspace as large as the largest of
   all its plans (`trial`), then runs the fastest of the first ten. Which one that is only a GPU knows:
   recorded for the H200, elsewhere cuDNN's first (in half precision the first that is not on cuBLAS: those
   compute in float32 and win 39 of 95 times that they are first), between nothing and the largest of the ten.
   Of 752 convolutions run on an H100 the trials take the largest of the list in 743 to the block of 512
   bytes, and the winner is within the ten's in all (`tests/data/h100/tried_plans.json.gz`, 27 November 2026).
   Where the log does not say which engines on cuBLAS are listed, the largest of all may be such a one's: a
   handle lists it for 7 to 9 of 10 calls it can compute in float32, and for 1 (Winograd's) to 4 (products) of
   10 in half precision, where it is taken to be missing. Both are in the range. Where nobody can be asked
   the trials are taken to need as much as the largest such engine, and a copy of input, weights and output
   at least: the median of those 752, in each operation and type; 10 of them took more than the range's end.
   Between recorded batches they need what trials at these did.

Source: `aten/src/ATen/native/cudnn/Conv_v8.cpp` (`run_single_conv`, `get_plans_from_find`,
`generate_and_filter_plans`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from analyzer.devices import DeviceProfile
from analyzer.libraries.cudnn import besides, local_memory, on_cublas
from analyzer.libraries.cudnn import plans as reading
from analyzer.libraries.cudnn.asker import Asker
from analyzer.libraries.cudnn.convolution import ELEMENT_BYTES, HEURISTICS, Convolution, Plan, Question, up
from analyzer.libraries.cudnn.description import chosen_capability, clocks_of, description_of
from analyzer.libraries.cudnn.finding import Library, library_for
from analyzer.libraries.cudnn.first_plan import UNKNOWN_ENGINE, FirstPlans
from analyzer.libraries.cudnn.on_cublas import PRODUCT, is_on_cublas, is_single_product, product_bytes
from analyzer.libraries.cudnn.plans import DEFAULT, ConvolutionSettings
from analyzer.libraries.cudnn.recorded import AFTER, FIRST, RELEASE, TIMED, WINNER, Record, record
from analyzer.libraries.cudnn.splits import ENGINES, by_handle
from analyzer.libraries.cudnn.trees import SURE

MEASURED, ASKED, UNKNOWN = "measured", "asked", "unknown"
# An upper bound on every plan, in copies of input, weights and output (channels rounded up to 8) and MiB
# besides: it held for all but 0.1 % of 20,025 random convolutions of an H100 (`python -m benchmarks cudnn
# bounds`), by operation, dense and grouped.
_MOST_COPIES = {"forward": (2, 9), "data": (2, 7), "weight": (6, 76)}
_MOST_BESIDES = 32 << 20
_COPIES_BY_OTHERS = 3  # of the same, where other batches are recorded
_FEW_CHANNELS = 4
_ROUNDED = 512  # the allocator's
# The architectures whose answers others have too; "sm90" is recorded by an H200's handle.
_AS = {(7, 0): (7, 5), (7, 2): (7, 5), (8, 7): (8, 6), (12, 1): (12, 0)}
_TABLES = {"sm90": "h200"}
# Of compute capability 7.5 cuDNN chooses the same with 40 to 56 multiprocessors, otherwise with 68 and more:
# those have no table.
_LARGE_TURING_SMS = 60


@dataclass(frozen=True, slots=True)
class Workspace:
    """Bytes of workspace, the range they lie in, and how they are known: measured or asked of cuDNN (a range
    of one figure), or unknown."""

    nbytes: int
    low_bytes: int
    high_bytes: int
    source: str

    @staticmethod
    def known(nbytes: int, source: str) -> Workspace:
        """Return a workspace of exactly these bytes."""
        return Workspace(nbytes, nbytes, nbytes, source)


class Choices:
    """The convolutions of one GPU. asker: of the library, or without one; has_asked: whether the library
    answered any question so far."""

    def __init__(
        self,
        table: Record | None,
        asker: Asker,
        sm_count: int,
        capability: tuple[int, int],
        clocks: float,
    ) -> None:
        self.asker, self.has_asked = asker, False
        # Another release's answer is not this one's, but the nearest to it.
        self._table, self._record = table, table if asker.release == RELEASE else None
        # Of a recorded answer: by a handle on the GPU itself, or by a description.
        self._source = MEASURED if table is not None and table.name == "h200" else ASKED
        self._sm_count, self._capability, self._clocks = sm_count, capability, clocks
        self._first_plans = FirstPlans(_architecture(capability))
        self._known: dict[tuple[Convolution, ConvolutionSettings, bool], Workspace] = {}
        self._known_questions: dict[Question, Workspace] = {}

    def workspace(self, call: Convolution, settings: ConvolutionSettings = DEFAULT) -> Workspace:
        """Return the workspace of the plan that runs for one call."""
        return self.workspaces([call], settings)[0]

    def workspaces(
        self, calls: Sequence[Convolution], settings: ConvolutionSettings = DEFAULT, *, trial: bool = False
    ) -> list[Workspace]:
        """Return the workspaces of many calls. trial: of benchmark mode's timing runs."""
        unknown: list[Convolution] = []
        for call in dict.fromkeys(calls):
            if known := self._known.get((call, settings, trial)) or self._recorded(call, settings, trial):
                self._known[call, settings, trial] = known
            else:
                unknown.append(call)
        whole, first = settings.benchmark or trial, settings == DEFAULT
        for call, plans in zip(unknown, self.plans(unknown, whole=whole, first=first), strict=True):
            self._known[call, settings, trial] = self._of_plans(call, plans, settings, trial)
        return [self._known[call, settings, trial] for call in calls]

    def frontend(self, questions: Sequence[Question]) -> list[Workspace]:
        """Return ONNX Runtime's workspace for each question: that of its heuristics' first plan."""
        known, unknown = self._known_questions, []
        for question in dict.fromkeys(questions):
            if question in known:
                continue
            if recorded := self._recorded_question(question):
                known[question] = _level(question, recorded)
            else:
                unknown.append(question)
        for question, plans in zip(unknown, self._ask(unknown), strict=True):
            workspace = self._unknown(question.call, question.searcher)
            if plans:
                workspace = _first_workspace(question.call, self._with_unlisted(question.call, plans))
            known[question] = _level(question, workspace)
        return [known[question] for question in questions]

    def plans(
        self, calls: Sequence[Convolution], *, whole: bool = True, first: bool = False
    ) -> list[tuple[Plan, ...] | None]:
        """Return cuDNN's plans for each call, in PyTorch's order; None if no library can be asked. whole,
        first: as in `Question`."""
        answers = self._ask([Question.of(call, whole=whole, first=first and not whole) for call in calls])
        return [
            plans and self._with_unlisted(call, plans) for call, plans in zip(calls, answers, strict=True)
        ]

    def local_memory(self, call: Convolution, settings: ConvolutionSettings, nbytes: int) -> str | None:
        """Return the family of local memory that is kept once a call has run, None if none is. nbytes: the
        workspace of the plan that runs."""
        if local_memory.family(call) is None:
            return None
        (plans,) = self.plans([call], whole=settings.benchmark)
        tried = plans and reading.passing(plans, call.dtype, settings)
        if tried:
            tried = tried[: reading.TIMED_PLANS if settings.benchmark else 1]
        return local_memory.kept_by(call, tried, nbytes, settings.benchmark)

    def listed(self, call: Convolution) -> tuple[Plan, ...] | None:
        """Return one call's plans as its GPU lists them; a plan recorded on the GPU itself goes first,
        identified by its bytes, or beside the others where none of them takes as many: a handle's bytes are
        not always worked out from a description's. None if no library can be asked."""
        (plans,) = self.plans([call])
        recorded = self._recorded(call, DEFAULT, trial=False)
        if not plans or recorded is None or recorded.source != MEASURED:
            return plans
        place = next((n for n, plan in enumerate(plans) if plan.workspace_bytes == recorded.nbytes), None)
        if place is None:
            return self._measured_plan(call, recorded.nbytes), *plans
        others = (plan for plan in plans[:place] + plans[place + 1 :] if plan.share_first is None)
        return (plans[place]._replace(share_first=None, split=False), *others)

    def _measured_plan(self, call: Convolution, nbytes: int) -> Plan:
        """Return the first plan recorded on the GPU: it passes a setting's filter where the record says as
        many bytes with that setting."""

        def passes(settings: ConvolutionSettings) -> bool:
            recorded = self._recorded(call, settings, trial=False)
            return recorded is None or recorded.nbytes == nbytes

        return Plan(
            UNKNOWN_ENGINE,
            nbytes,
            deterministic=passes(ConvolutionSettings(deterministic=True)),
            tensor_core=not passes(ConvolutionSettings(allow_tf32=False)),
        )

    def _with_unlisted(self, call: Convolution, plans: Sequence[Plan]) -> tuple[Plan, ...]:
        """Return the plans with those that a description does not list, as a GPU's handle would list them."""
        if self.asker.ranks_unusable:
            first, *others = self._first_plans.with_splits(call, plans)
        else:
            first, *others = self._first_plans.with_unlisted(call, plans)  # looks at a description's bytes
        if call.w_shape[1] == 1 < call.groups and not self.asker.lists_compiled:
            others = [Plan(UNKNOWN_ENGINE, 0, share_first=0.5), *others]
        return tuple(self.by_handle(call, plan) for plan in (first, *others))

    def _ask(self, questions: Sequence[Question]) -> list[tuple[Plan, ...] | None]:
        answers = self.asker.ask(questions) if questions else []
        self.has_asked |= any(plans is not None for plans in answers)
        return answers

    def following(self, call: Convolution, settings: ConvolutionSettings, nbytes: int) -> tuple[int, ...]:
        """Workspaces that are asked for one after the other where one of `nbytes` finds no room: those of the
        plans behind the first that take less. None where nobody can be asked."""
        sizes: Sequence[int] = ()
        if self._record is not None and settings == DEFAULT:
            recorded = (self._record.answers(call, figure).get(call.x_shape[0]) for figure in AFTER)
            sizes = [size for size in recorded if size is not None]
        if not sizes:
            (plans,) = self.plans([call])
            sizes = reading.descending(plans or (), call.dtype, settings)
        return tuple(size for size in sizes if size < nbytes)

    def _recorded(self, call: Convolution, settings: ConvolutionSettings, trial: bool) -> Workspace | None:
        """Return the workspace recorded for a call, None if there is none. trial: of cuDNN's timing runs."""
        table, figure = self._record, settings.figure(call.dtype, trial=trial)
        if table is None or figure is None:
            return None
        # A plan on cuBLAS may come before the recorded one, and cuDNN can be asked where.
        if self._source != MEASURED and self.asker.has_library and self._first_plans.possible(call):
            return None

        def recorded(table: Record, figure: str) -> int | None:
            return table.answers(call, figure).get(call.x_shape[0])

        nbytes = recorded(table, figure)
        if settings.benchmark and not trial:
            if settings == ConvolutionSettings(benchmark=True):
                for each in filter(None, (table, record(f"{table.name}.winners"))):
                    if (winner := recorded(each, WINNER)) is not None:
                        return Workspace.known(winner, self._source)
            timed = recorded(table, TIMED)
            if nbytes is None or timed is None:
                return None
            return Workspace(min(nbytes, timed), 0, max(nbytes, timed), UNKNOWN)
        if nbytes is None:
            return None
        if self._source == MEASURED:
            return Workspace.known(nbytes, MEASURED)
        plans = self._first_plans.with_unlisted(call, [Plan(UNKNOWN_ENGINE, nbytes)])
        return self._of_plans(call, plans, settings, trial)

    def _recorded_question(self, question: Question) -> Workspace | None:
        """Return the workspace recorded for an ONNX Runtime question, None if there is none."""
        call = question.call
        if self._record is None or call.y_shape != question.y_shape:
            return None
        nbytes = self._answers(call, question.searcher).get(call.x_shape[0])
        return None if nbytes is None else Workspace.known(nbytes, self._source)

    def _answers(self, call: Convolution, figure: str) -> dict[int, int]:
        """Return the table's bytes of a call by batch; ONNX Runtime's searches have a separate table."""
        table = self._table
        if table is not None and figure in HEURISTICS:
            table = record(f"{table.name}.frontend")
        return {} if table is None else table.answers(call, figure)

    def _of_plans(
        self, call: Convolution, plans: tuple[Plan, ...] | None, settings: ConvolutionSettings, trial: bool
    ) -> Workspace:
        """Return the chosen plan's workspace. trial: the largest of all timed plans."""
        chosen = [] if plans is None else reading.passing(plans, call.dtype, settings)
        if not (trial or settings.benchmark):
            return _first_workspace(call, chosen) if chosen else self._unknown(call)
        # Of the plans on cuBLAS only a list that ranks them says which there are.
        ranked = bool(chosen) and self.asker.ranks_unusable
        unranked = [] if ranked else [*self._first_plans.possible(call).values()]
        possible = _most(reading.passing(unranked, call.dtype, settings))
        if not chosen:
            return self._unknown_in_benchmark(call, settings, possible, trial)
        own = [plan for plan in chosen if not is_on_cublas(call.operation, plan)]
        if trial:
            most = _most(chosen if ranked else own)
            if possible <= most:
                return Workspace.known(most, ASKED)
            return Workspace(possible if call.dtype == "float32" else most, most, possible, UNKNOWN)
        timed, likely = chosen[: reading.TIMED_PLANS], chosen[0]
        if ranked and call.dtype != "float32":
            likely = next((plan for plan in timed if plan in own), likely)
        return Workspace(likely.workspace_bytes, 0, max(_most(timed), possible), UNKNOWN)

    def _unknown(self, call: Convolution, figure: str = FIRST) -> Workspace:
        """Return a bounded workspace where no library can be asked."""
        most = most_bytes(call)
        if known := self._answers(call, figure):
            nbytes = min(_carried(known, call.x_shape[0]), most)
            most = min(most, _most_by_others(call, known))
            if figure == FIRST and not most:
                return Workspace.known(0, self._source)
        elif (product := product_bytes(call)) is not None:
            nbytes = product
        else:
            nbytes = 0 if call.channels_last else _copies(call)
        return Workspace(nbytes, 0, max(nbytes, most), UNKNOWN)

    def _unknown_in_benchmark(
        self, call: Convolution, settings: ConvolutionSettings, possible: int, trial: bool
    ) -> Workspace:
        """Return benchmark mode's bounded workspace where no library can be asked. possible: the largest of
        the plans on cuBLAS this GPU has; trial: as in `_of_plans`."""
        nbytes = self._unknown(call).nbytes
        if trial:
            figure = settings.figure(call.dtype, trial=True)
            known = self._answers(call, figure) if figure else {}
            own = _carried(known, call.x_shape[0]) if known else _copies(call)
            # A handle's list has the plans on cuBLAS.
            nbytes = own if known and self._source == MEASURED else max(own, possible)
        plans = on_cublas.plans_on_cublas(call).values()
        return Workspace(nbytes, 0, max(nbytes, most_bytes(call), possible, _most(plans)), UNKNOWN)

    def by_handle(self, call: Convolution, plan: Plan) -> Plan:
        """Return the plan with a GPU handle's bytes."""
        if self._capability[0] != 9:
            return plan
        if plan.engine == on_cublas.ENGINES[call.operation][PRODUCT] and not is_single_product(call):
            more, least, most = besides.extra_bytes(call)
            own = plan.workspace_bytes
            return plan._replace(workspace_bytes=own + more, between=(own + least, own + most))
        if plan.engine not in ENGINES[call.operation] or not plan.knobs:
            return plan
        nbytes, proven = by_handle(call, plan, self._sm_count, self._clocks)
        return plan._replace(workspace_bytes=nbytes, between=None if proven else (0, nbytes))


def _most(plans: Iterable[Plan]) -> int:
    """Return the largest workspace of the plans."""
    return max((plan.workspace_bytes for plan in plans), default=0)


@dataclass(frozen=True)
class NextPlans(Sequence[int]):
    """The workspaces that follow a refused one, asked for when they are needed: as good as never. Where a
    first plan is taken to need nothing, and another is first, the former is behind it: each of the 12,716
    lists that are recorded with all their plans ends with one that needs nothing (`AFTER`)."""

    choices: Choices
    call: Convolution
    settings: ConvolutionSettings
    nbytes: int

    @cached_property
    def _answered(self) -> tuple[int, ...]:
        return self.choices.following(self.call, self.settings, self.nbytes)

    @property
    def _sizes(self) -> tuple[int, ...]:
        """Workspaces of the next plans, as answered; else repeated halves, so that one fits."""
        if not self.nbytes:
            return (0,)
        halves = range(1, self.nbytes.bit_length() + 1)
        return self._answered or tuple(self.nbytes >> times for times in halves)

    @property
    def known(self) -> bool:
        """Whether cuDNN itself answered them, or they end at once."""
        return not self.nbytes or bool(self._answered)

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, place: int) -> int:  # type: ignore[override]
        return self._sizes[place]


def _first_workspace(call: Convolution, plans: Sequence[Plan]) -> Workspace:
    """Return the workspace of the first plan. Where plans on cuBLAS may come first or not, those that may be
    first count. A sum in parts is an estimate."""
    first, rivals = plans[0], [plan for plan in plans[1:] if plan.share_first is not None]
    if first.share_first is not None:
        listed = next((plan for plan in plans if plan.share_first is None), first)
        rivals = [] if first.share_first > 1 - SURE else [*rivals, listed]
    possible = [first, *rivals]
    low, high = (pick(plan.workspace_bytes for plan in possible) for pick in (min, max))
    if any(plan.split for plan in possible):
        return Workspace(first.workspace_bytes, 0, max(high, most_bytes(call)), UNKNOWN)
    known = high - low < _ROUNDED
    ends = [plan.between or (plan.workspace_bytes, plan.workspace_bytes) for plan in possible]
    low, high = min(least for least, _ in ends), max(most for _, most in ends)
    if known:
        return Workspace(first.workspace_bytes, low, high, ASKED)
    return Workspace(first.workspace_bytes, low, high, UNKNOWN)


def _level(question: Question, workspace: Workspace) -> Workspace:
    """Return the workspace, uncertain where mode B ranks two engines nearly equal: for a grouped NHWC
    convolution engine 67, with copies, and 0, without. An efficientnet_b0 on an H200 took nothing where a
    description says 193 MB."""
    call = question.call
    if question.searcher != "EXHAUSTIVE" or not call.channels_last or call.groups == 1:
        return workspace
    if not workspace.high_bytes:
        return workspace
    return Workspace(workspace.nbytes, 0, workspace.high_bytes, UNKNOWN)


def most_bytes(call: Convolution) -> int:
    """Return an upper bound on the workspace of any plan of the call."""
    copies = _MOST_COPIES[call.operation][call.groups > 1]
    return copies * _copies(call, multiple=8) + _MOST_BESIDES


def _most_by_others(call: Convolution, known: dict[int, int]) -> int:
    """Return an upper bound on the first plan's workspace by what is recorded at other batches. known: bytes
    by batch."""
    batch = call.x_shape[0]
    around = [
        known[end]
        for end in (
            max((other for other in known if other <= batch), default=None),
            min((other for other in known if other >= batch), default=None),
        )
        if end is not None
    ]
    if len(around) == 2 and not any(around) and call.groups == 1 and call.x_shape[1] <= _FEW_CHANNELS:
        return 0
    return max(*around, _carried(known, batch), _COPIES_BY_OTHERS * _copies(call, multiple=8) + _MOST_BESIDES)


def _copies(call: Convolution, multiple: int = 1) -> int:
    """Return the bytes of input, weights and output, channels of a group rounded up to a multiple."""
    groups = call.groups
    inputs, outputs = up(call.w_shape[1], multiple), up(call.w_shape[0] // groups, multiple)
    positions = inputs * math.prod(call.x_shape[2:]) + outputs * math.prod(call.y_shape[2:])
    weights = inputs * outputs * math.prod(call.w_shape[2:])
    return ELEMENT_BYTES[call.dtype] * groups * (call.x_shape[0] * positions + weights)


def _carried(known: dict[int, int], batch: int) -> int:
    """Return bytes at a batch, interpolated between recorded ones, beyond them in proportion."""
    below = max((other for other in known if other <= batch), default=None)
    above = min((other for other in known if other >= batch), default=None)
    if below is None or above is None:
        nearest = max(known) if above is None else min(known)
        return known[nearest] * batch // nearest
    return known[below] + (known[above] - known[below]) * (batch - below) // max(above - below, 1)


def choices_of(profile: DeviceProfile, python: str = "") -> Choices:
    """Return cuDNN's choices on a profile's GPU, for the torch release of its figures. python: as in
    `library_for`."""
    capability = chosen_capability(profile)
    architecture = _architecture(capability)
    table = _TABLES.get(architecture, architecture)
    if capability == (7, 5) and profile.sm_count > _LARGE_TURING_SMS:
        table = ""
    library = library_for(profile.releases["torch"], python)
    description, clocks = description_of(profile), clocks_of(profile)
    return _choices(table, description, library, profile.sm_count, capability, clocks)


def _architecture(capability: tuple[int, int]) -> str:
    """Return the architecture whose answers hold for a compute capability, such as "sm90"."""
    return "sm{}{}".format(*_AS.get(capability, capability))


@lru_cache(maxsize=16)
def _choices(
    table: str,
    description: str,
    library: Library | None,
    sm_count: int,
    capability: tuple[int, int],
    clocks: float,
) -> Choices:
    asker = Asker(library if description else None, description)
    return Choices(record(table) if table else None, asker, sm_count, capability, clocks)
