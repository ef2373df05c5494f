"""Edits of a runtime graph that keep "who makes it", "who reads it" and the order of execution up to date."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph, Symbols, Value
from analyzer.runtimes.onnxruntime.plan.order import topological

_WIDE = 16  # inputs from which on they are looked up, not looked through
_Places = dict[str, dict[int, None]]  # the places at which a value is read, in order


class Editor:
    """`changes` counts edits, so that a driver knows when a round did nothing.

    partitioned: whether nodes have been given to providers; those no provider runs are then left alone.
    """

    def __init__(self, graph: RuntimeGraph, *, partitioned: bool = False) -> None:
        self.graph = graph
        self.partitioned = partitioned
        self.changes = 0
        self.maker = graph.producers()
        self.readers: dict[str, dict[int, int]] = {}
        self.final = set(graph.outputs)
        # Where nodes read each value, of those asked about: a Concat may have 50,000 inputs.
        self._places: dict[int, tuple[_Places, _Places]] = {}
        self._inside: dict[int, dict[str, str]] = {}  # names that subgraphs still have to follow
        self._only: dict[str, tuple[str, bool]] = {}  # what `only_read_by` found
        # Each with the edits so far, when it was found.
        self._order: tuple[int, list[Node]] | None = None
        self._operators: tuple[int, frozenset[str]] | None = None
        for node in graph.nodes.values():
            for name in (*node.inputs, *node.implicit):
                self._count(name, node.index, 1)

    def _count(self, name: str, index: int, by: int) -> None:
        if name:
            # Fewer readers of one operator are still of one.
            if name in self._only and (by > 0 or not self._only[name][1]):
                del self._only[name]
            users = self.readers.setdefault(name, {})
            users[index] = users.get(index, 0) + by
            if not users[index]:
                del users[index]

    def order(self) -> list[Node]:
        """Return the nodes in topological order, computed again only after an edit."""
        if self._order is None or self._order[0] != self.changes:
            self._order = self.changes, topological(self.graph)
        return list(self._order[1])

    def ordered(self, *operators: str) -> list[Node]:
        """Return the nodes of these operators in topological order."""
        if self._operators is None or self._operators[0] != self.changes:
            self._operators = self.changes, frozenset([node.operator for node in self.graph.nodes.values()])
        if self._operators[1].isdisjoint(operators):
            return []
        return [node for node in self.order() if node.operator in operators]

    def users(self, name: str) -> list[Node]:
        """Nodes that read the value, in index order."""
        return [self.graph.nodes[index] for index in sorted(self.readers.get(name, ()))]

    def edge_count(self, name: str) -> int:
        """Number of input slots that read the value."""
        return sum(self.readers.get(name, {}).values())

    def has_one_use(self, name: str) -> bool:
        """Return whether one input slot reads the value."""
        users = self.readers.get(name, {})
        return len(users) == 1 and 1 in users.values()

    def only_read_by(self, name: str, operator: str) -> bool:
        """Return whether every use of the value is the one of a node of this operator. Each of thousands of
        readers may ask."""
        if name not in self._only or self._only[name][0] != operator:
            users = self.readers.get(name, {})
            of_kind = all(self.graph.nodes[index].operator == operator for index in users)
            self._only[name] = operator, of_kind and all(count == 1 for count in users.values())
        return self._only[name][1]

    def only_user(self, node: Node) -> Node | None:
        """Return the one node that reads the only output, once, if the output is no graph output."""
        if len([name for name in node.outputs if name]) != 1 or node.outputs[0] in self.final:
            return None
        if not self.has_one_use(node.outputs[0]):
            return None
        return self.graph.nodes[next(iter(self.readers[node.outputs[0]]))]

    def value(self, name: str) -> Value:
        """Return the value of that name."""
        return self.graph.values[name]

    def is_constant(self, name: str) -> bool:
        """Return whether the value is an initializer that cannot be overridden."""
        return self.graph.is_constant(name)

    def set_input(self, node: Node, place: int, name: str) -> None:
        """Let the node read another value."""
        self.changes += 1
        while len(node.inputs) <= place:
            node.inputs.append("")
        self._count(node.inputs[place], node.index, -1)
        if node.index in self._places:
            explicit = self._places[node.index][0]
            explicit.get(node.inputs[place], {}).pop(place, None)
            explicit.setdefault(name, {})[place] = None
        node.inputs[place] = name
        self._count(name, node.index, 1)

    def set_implicit(self, node: Node, names: list[str]) -> None:
        """Let the node's subgraphs read these values from around them."""
        self.changes += 1
        self._places.pop(node.index, None)
        for name in node.implicit:
            self._count(name, node.index, -1)
        node.implicit = names
        for name in names:
            self._count(name, node.index, 1)

    def replace_uses(self, old: str, new: str) -> None:
        """Let all readers of `old` read `new`."""
        self.replace_outside(old, new)
        self.rename_inside()

    def replace_outside(self, old: str, new: str) -> None:
        """Let all readers of `old` read `new`, subgraphs at the next `rename_inside`."""
        for node in self.users(old):
            for place in self.places(node, old):
                self.set_input(node, place, new)
            if not node.implicit:
                continue
            implicit = self._places_of(node)[1]
            if old in implicit:
                self.changes += 1
                moved = implicit.pop(old)
                for place in moved:
                    node.implicit[place] = new
                    self._count(old, node.index, -1)
                    self._count(new, node.index, 1)
                implicit.setdefault(new, {}).update(moved)
                self._inside.setdefault(node.index, {})[old] = new

    def places(self, node: Node, name: str) -> list[int]:
        """Return at which of its inputs the node reads the value."""
        if len(node.inputs) > _WIDE:
            return list(self._places_of(node)[0].get(name, ()))
        return [place for place, item in enumerate(node.inputs) if item == name]

    def _places_of(self, node: Node) -> tuple[_Places, _Places]:
        """Return where the node reads each value: among its inputs, and among what its subgraphs read."""
        if node.index not in self._places:
            explicit: _Places = {}
            implicit: _Places = {}
            for names, places in ((node.inputs, explicit), (node.implicit, implicit)):
                for place, name in enumerate(names):
                    places.setdefault(name, {})[place] = None
            self._places[node.index] = explicit, implicit
        return self._places[node.index]

    def rename_inside(self) -> None:
        """Let subgraphs read what `replace_outside` put in the place of outer values, all at once."""
        for index, names in self._inside.items():
            for old in reversed(list(names)):  # what came in its place may be replaced later, too
                names[old] = names.get(names[old], names[old])
            node = self.graph.nodes.get(index)
            for body in node.bodies.values() if node is not None else ():
                rename_outer(body, names)
        self._inside.clear()

    def add(
        self,
        name: str,
        op: str,
        inputs: list[str],
        outputs: list[str],
        attributes: dict[str, Any] | None = None,
        domain: str = "",
        provider: str = "",
    ) -> Node:
        """Add a node with the next index. Outputs already made by another node change hands."""
        self.changes += 1
        node = self.graph.add(name, op, inputs, outputs, attributes, domain)
        node.provider = provider
        for item in inputs:
            self._count(item, node.index, 1)
        for item in outputs:
            if item:
                self.maker[item] = node
        return node

    def remove(self, node: Node) -> None:
        """Remove a node; its outputs lose their maker unless another took over."""
        self.changes += 1
        for name in (*node.inputs, *node.implicit):
            self._count(name, node.index, -1)
        for name in node.outputs:
            if name and self.maker.get(name) is node:
                del self.maker[name]
        self._places.pop(node.index, None)
        del self.graph.nodes[node.index]

    def new_value(
        self, like: str, shape: tuple[int, ...] | None, symbols: Symbols | None, stem: str = ""
    ) -> str:
        """Return a value of another shape and the same type."""
        source = self.value(like)
        name = self.graph.fresh(stem or like)
        self.graph.values[name] = Value(name, source.dtype, shape, symbols, bounded=source.bounded)
        return name

    def move_output(self, node: Node, place: int, to: Node, at: int) -> str:
        """`to` makes the output from now on; the node gets a new one. Returns the new one's name."""
        self.changes += 1
        old = node.outputs[place]
        value = self.value(old)
        name = self.new_value(old, value.shape, value.symbols)
        node.outputs[place] = name
        self.maker[name] = node
        to.outputs[at] = old
        self.maker[old] = to
        return name

    def take_output(self, node: Node, place: int, name: str) -> None:
        """Let the node make another value in place of one that is no longer read."""
        self.changes += 1
        self.maker.pop(node.outputs[place], None)
        node.outputs[place] = name
        self.maker[name] = node

    def drop_unread(self) -> None:
        """Remove constants nobody reads."""
        for name in [n for n in self.graph.initializers if not self.readers.get(n) and n not in self.final]:
            del self.graph.initializers[name]


def rename_outer(body: RuntimeGraph, names: Mapping[str, str]) -> None:
    """Inside a subgraph, outer values go by other names, all at once."""
    touched = body.outer & names.keys()
    if not touched:
        return
    body.outer = (body.outer - touched) | {names[name] for name in touched}
    for old in sorted(touched):
        if old in body.values:
            body.values.setdefault(names[old], body.values[old])
    names = {old: names[old] for old in touched}
    for node in body.nodes.values():
        node.inputs = [names.get(name, name) for name in node.inputs]
        if not touched.isdisjoint(node.implicit):
            node.implicit = [names.get(name, name) for name in node.implicit]
            for inner in node.bodies.values():
                rename_outer(inner, names)
