"""Small programs for the liveness tests: a builder for those written by hand, and a strategy for random ones."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from analyzer.graph import (
    Birth,
    Category,
    Death,
    Graph,
    Mark,
    Moment,
    Operator,
    Phase,
    Run,
    Storage,
    TensorMeta,
)


class Builder:
    """Writes a program down moment by moment; storages go by name."""

    def __init__(self) -> None:
        self.storages: list[Storage] = []
        self.operators: list[Operator] = []
        self.program: list[Moment] = []
        self.index: dict[str, int] = {}
        self.phase = Phase.FORWARD
        self.step = 0

    def storage(
        self,
        name: str,
        nbytes: int,
        category: Category = Category.ACTIVATION,
        *,
        saved: bool = False,
        on_device: bool = True,
    ) -> None:
        self.index[name] = len(self.storages)
        self.storages.append(Storage(len(self.storages), nbytes, category, name, saved, on_device))

    def birth(self, name: str, nbytes: int, category: Category, **options: bool) -> None:
        """A storage appears from outside."""
        self.storage(name, nbytes, category, **options)
        self.program.append(Birth(self.index[name]))

    def run(self, name: str, reads: str, results: str, writes: str = "", gradients: bool = False) -> None:
        """An operator runs; names are separated by spaces. gradients: it is computed with them."""
        self.operators.append(
            Operator(
                len(self.operators),
                name,
                tuple(replace(self.meta(part), requires_grad=gradients) for part in reads.split()),
                tuple(self.meta(part) for part in results.split()),
                writes=tuple(self.index[part] for part in writes.split()),
                phase=self.phase,
                step=self.step,
            )
        )
        self.program.append(Run(len(self.operators) - 1))

    def death(self, names: str) -> None:
        self.program.extend(Death(self.index[name]) for name in names.split())

    def mark(self, name: str) -> None:
        self.program.append(Mark(name))

    def meta(self, name: str) -> TensorMeta:
        count = self.storages[self.index[name]].nbytes // 4
        return TensorMeta(self.index[name], (count,), (1,), "float32")

    def graph(self) -> Graph:
        return Graph("pytorch", tuple(self.storages), tuple(self.operators), tuple(self.program)).check()

    def names(self, indices: tuple[int, ...]) -> list[str]:
        return [self.storages[index].name for index in indices]


OUTSIDE = [Category.PARAMETER, Category.BUFFER, Category.INPUT, Category.OPTIMIZER_STATE]
INSIDE = [
    Category.ACTIVATION,
    Category.SAVED,
    Category.GRADIENT,
    Category.SCRATCH,
    Category.OPTIMIZER_STATE,
    Category.INPUT,
]
PHASES = [Phase.FORWARD, Phase.LOSS, Phase.BACKWARD, Phase.OPTIMIZER]


@st.composite
def programs(draw: st.DrawFn) -> Graph:
    """Programs that keep every invariant of `Graph.check`, with several steps, in-place writes, views and host storages."""
    builder = Builder()
    alive: list[str] = []
    moment_count = draw(st.integers(0, 25))
    for number in range(moment_count):
        kind = draw(st.sampled_from(["birth", "run", "run", "run", "death", "mark", "phase"]))
        nbytes = 4 * draw(st.integers(0, 50))
        on_device = draw(st.integers(0, 4)) > 0
        name = f"s{number}"
        if kind == "birth":
            builder.birth(name, nbytes, draw(st.sampled_from(OUTSIDE)), on_device=on_device)
            alive.append(name)
        elif kind == "run":
            reads = draw(st.lists(st.sampled_from(alive), max_size=3)) if alive else []
            writes = draw(st.lists(st.sampled_from(alive), max_size=1)) if alive else []
            results = [*writes]
            if draw(st.booleans()):
                category = draw(st.sampled_from(INSIDE))
                builder.storage(name, nbytes, category, saved=draw(st.booleans()), on_device=on_device)
                results.append(name)
            builder.run("op", " ".join([*reads, *writes]), " ".join(results), " ".join(writes))
            alive.extend(result for result in results if result not in alive)
        elif kind == "death" and alive:
            alive.remove(dying := draw(st.sampled_from(alive)))
            builder.death(dying)
        elif kind == "mark":
            builder.mark(name)
        elif kind == "phase":
            builder.phase = draw(st.sampled_from(PHASES))
            if builder.phase is Phase.FORWARD:
                builder.step += draw(st.integers(0, 1))
    return builder.graph()
