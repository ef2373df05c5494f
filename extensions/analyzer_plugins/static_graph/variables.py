"""A captured program as a framework with static graphs would hold it: every operator's result is a variable.

PyTorch's program has views, which share a storage. PaddlePaddle and TensorFlow have no strides in a static
graph: what PyTorch writes as a view is a kernel with a result of its own, or no operator at all. In the
rewritten graph a view that is a kernel has a new storage, behind the captured ones, which keep their indices.

1. A transposition or reshape that only matrix products read (also through further ones) is no operator: they
   take transposed operands and more than two dimensions as they are. Nor is a view only a copy reads that
   makes it contiguous (the copy is the kernel) or only the optimizer, a reshape of a product's result that
   splits its leading dimension, or a look with unchanged shape and strides (`detach`).
2. A view that is written through stays one: the framework writes into the whole variable.
3. A reshape (also adding or dropping a dimension of one) is an operator `Dialect.reshape_shares` describes.
   Any other view (transposition, slice, expansion) is a kernel that writes a variable of the view's size.
4. `bias_apart`: a linear layer or convolution adds its bias in a second operator, with a result of its own.
5. `fan_in_apart`: gradients that meet are summed into a new variable, where PyTorch adds to one of them.

Sources: `python/paddle/nn/functional/common.py` (linear), `conv.py` of PaddlePaddle 3.3; `reshape_op.h`,
`transpose_op.cc`, `matmul_op_impl.h` of TensorFlow 2.13. Which views are no operators is an
assumption about how the model would be written there.
Not modelled: other fusions, and layouts the framework would choose.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TypeAlias

from analyzer.graph import Birth, Category, Graph, Moment, Operator, Phase, Run, Storage, TensorMeta
from analyzer.graph.dtype import nbytes_of
from analyzer.graph.model import Argument

_RESHAPES = (
    "view.default _unsafe_view.default unsqueeze.default squeeze.default squeeze.dim squeeze.dims"
    " flatten.using_ints unflatten.int view.dtype"
)
RESHAPES = frozenset(f"aten::{name}" for name in _RESHAPES.split())
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear")
PRODUCTS = frozenset(f"aten::{name}.default" for name in _PRODUCTS)
TRANSPOSITIONS = frozenset({"aten::t.default", "aten::transpose.int", "aten::permute.default"})
_COPIES = frozenset({"aten::clone.default", "aten::contiguous.default"})
# Operators with a bias, and where it stands among their arguments.
_BIASED = {"aten::addmm.default": 0, "aten::convolution.default": 2, "Conv": 2, "Gemm": 2}
_FAN_IN = "aten::add_.Tensor"

# A look at a storage: (storage, offset, shape, strides, element type).
Look: TypeAlias = tuple[int, int, tuple[int, ...], tuple[int, ...], str]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a framework writes what PyTorch writes as views and in-place sums."""

    reshape_shares: bool
    bias_apart: bool
    fan_in_apart: bool


@dataclass(frozen=True, slots=True)
class Variables:
    """The rewritten graph; `origin`: for each of its operators, the index of the captured one it comes from;
    `captured_count`: how many of its storages are captured ones."""

    graph: Graph
    origin: tuple[int, ...]
    captured_count: int


def variables(graph: Graph, dialect: Dialect) -> Variables:
    """The graph with a storage for every variable, which takes the bytes of its elements; views PyTorch has
    are variables of their own where the framework runs a kernel for them. Sizes in bytes."""
    return _Rewriting(graph, dialect).run()


def _look(meta: TensorMeta) -> Look:
    return meta.storage, meta.offset, meta.shape, meta.stride, meta.dtype


class _Rewriting:
    def __init__(self, graph: Graph, dialect: Dialect) -> None:
        self._graph, self._dialect = graph, dialect
        self._storages = list(graph.storages)
        self._variables: dict[Look, int] = {}
        self._moved: dict[int, int] = {}
        self._own: dict[int, tuple[Look, str]] = {}
        self._readers: dict[Look, list[Operator]] = defaultdict(list)
        self._written: set[Look] = set()
        self._absorbed: dict[tuple[str, Look], bool] = {}
        for operator in graph.operators:
            for meta in operator.inputs:
                self._readers[_look(meta)].append(operator)
                if meta.storage in operator.writes:
                    self._written.add(_look(meta))

    def run(self) -> Variables:
        program: list[Moment] = []
        operators: list[Operator] = []
        origin: list[int] = []
        born: set[int] = set()
        for moment in self._graph.program:
            if isinstance(moment, Run):
                for operator in self._operators(self._graph.operators[moment.operator], born):
                    program.append(Run(len(operators)))
                    operators.append(replace(operator, index=len(operators)))
                    origin.append(moment.operator)
                continue
            program.append(moment)
            if isinstance(moment, Birth):
                born.add(moment.storage)
        graph = replace(
            self._graph, storages=tuple(self._storages), operators=tuple(operators), program=tuple(program)
        )
        return Variables(graph.check(), tuple(origin), len(self._graph.storages))

    def _operators(self, operator: Operator, born: set[int]) -> list[Operator]:
        """The operator on variables; two of them where a bias is added apart."""
        read = tuple(self._mapped(argument) for argument in operator.arguments)
        keywords = {name: self._mapped(argument) for name, argument in operator.keywords.items()}
        outputs: list[TensorMeta | None] = []
        writes = list(operator.writes)
        for output in operator.outputs:
            if output is None:
                outputs.append(None)
            elif output.storage not in born:
                born.add(output.storage)
                self._own[output.storage] = (_look(output), operator.name)
                outputs.append(output)
            elif output.storage in operator.writes:
                if self._is_fan_in(operator, output):
                    self._moved[output.storage] = self._variable(output, operator.name)
                    writes.remove(output.storage)
                outputs.append(self._meta(output))
            else:
                outputs.append(self._view(operator, output))
        whole = replace(
            operator,
            arguments=read,
            keywords=keywords,
            outputs=tuple(outputs),
            writes=tuple(self._moved.get(storage, storage) for storage in writes),
        )
        place = _BIASED.get(operator.name)
        bias = read[place] if place is not None and place < len(read) else None
        made = outputs[0] if outputs else None
        if not self._dialect.bias_apart or not isinstance(bias, TensorMeta) or made is None:
            return [whole]
        product = replace(made, storage=self._variable(made, operator.name), offset=0)
        without = tuple(None if at == place else argument for at, argument in enumerate(read))
        added = replace(whole, name=f"{operator.name} bias", arguments=(product, bias), keywords={})
        return [replace(whole, arguments=without, outputs=(product,)), added]

    def _is_fan_in(self, operator: Operator, written: TensorMeta) -> bool:
        """An addition in place to a whole gradient in the backward pass: gradients meet."""
        whole = nbytes_of(written.element_count, written.dtype) == self._storages[written.storage].nbytes
        named = operator.name == _FAN_IN and operator.phase is Phase.BACKWARD
        return self._dialect.fan_in_apart and named and whole

    def _view(self, operator: Operator, output: TensorMeta) -> TensorMeta:
        """Return the result of a view: a new variable where it is a kernel, else its operand's."""
        source = next((meta for meta in operator.inputs if meta.storage == output.storage), None)
        if source is None or not self._is_kernel(operator, source, output):
            if source is not None:
                variable = self._meta(source)
                if variable.storage != output.storage:
                    self._variables[_look(output)] = variable.storage
            return self._meta(output)
        self._variables[_look(output)] = self._variable(output, operator.name)
        return self._meta(output)

    def _is_kernel(self, operator: Operator, source: TensorMeta, output: TensorMeta) -> bool:
        """Return whether a view is a kernel: not if all readers take it, if it is written through, or if a
        reshape shares or splits a product's leading dimension."""
        look = _look(output)
        if _look(source) == look or look in self._written or self._absorbed_by_all(operator.name, look):
            return False
        if operator.name in RESHAPES:
            return not self._dialect.reshape_shares and not self._splits_a_product(source, output)
        return True

    def _splits_a_product(self, source: TensorMeta, output: TensorMeta) -> bool:
        """The result of a product of more than two dimensions, as PyTorch restores them."""
        own, maker = self._own.get(output.storage, (None, ""))
        rest = source.shape[1:]
        return (
            maker in PRODUCTS
            and _look(source) == own
            and len(output.shape) > len(source.shape)
            and output.shape[len(output.shape) - len(rest) :] == rest
        )

    def _absorbed_by_all(self, kind: str, look: Look) -> bool:
        """Return whether all readers take the view's look as it is."""
        known = self._absorbed.get((kind, look))
        if known is None:
            self._absorbed[kind, look] = True  # for views of views that lead back here
            known = all(self._accepts_view(reader, kind, look) for reader in self._readers[look])
            self._absorbed[kind, look] = known
        return known

    def _accepts_view(self, reader: Operator, kind: str, look: Look) -> bool:
        """Return whether a reader takes this view as it is, without a kernel for it."""
        if reader.name in _COPIES or reader.phase is Phase.OPTIMIZER:
            return True
        flags = RESHAPES | TRANSPOSITIONS
        if reader.name in PRODUCTS:
            return kind in flags
        views = [o for o in reader.outputs if o is not None and o.storage == look[0]]
        if not views or reader.writes:
            return False
        kind = kind if kind not in flags or _look(views[0]) == look else reader.name
        return all(_look(view) == look or self._absorbed_by_all(kind, _look(view)) for view in views)

    def _variable(self, meta: TensorMeta, name: str) -> int:
        base = self._storages[meta.storage]
        category = Category.GRADIENT if base.category is Category.GRADIENT else Category.ACTIVATION
        nbytes = nbytes_of(meta.element_count, meta.dtype)
        self._storages.append(Storage(len(self._storages), nbytes, category, name, on_device=base.on_device))
        return len(self._storages) - 1

    def _meta(self, meta: TensorMeta) -> TensorMeta:
        """The look as a look at a variable."""
        variable = self._variables.get(_look(meta), self._moved.get(meta.storage))
        return meta if variable is None else replace(meta, storage=variable, offset=0)

    def _mapped(self, argument: Argument) -> Argument:
        if isinstance(argument, TensorMeta):
            return self._meta(argument)
        if isinstance(argument, tuple):
            return tuple(self._mapped(part) for part in argument)
        return argument
