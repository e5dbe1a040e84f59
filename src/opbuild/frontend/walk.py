"""Binding one segment of a network: nodes are taken in order, up to the end or to one whose type cannot be told yet.

What came before that node is the segment's graph. The graph break says what must be known before the remainder is
bound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, count
from typing import Any, cast

import numpy as np

from opbuild.errors import InvalidModelError, ModelError, RunError, UnsupportedOperatorError
from opbuild.frontend.binding import FunctionCall, NodeBinder
from opbuild.frontend.block import Frame, KnownValue, Remainder, UntypedGraph, blocks, captures, reads
from opbuild.frontend.open_values import is_open_value
from opbuild.graph.breaks import HOST_VALUE, Body, Dimension, GraphBreak, Kind, is_tensor
from opbuild.graph.expressions import DerivedValue, derived
from opbuild.graph.extents import SymbolicExtent
from opbuild.graph.passes.infer import node_error_context
from opbuild.graph.shape_rules import NoTensorError, UnknownTypeError, UnknownValueError
from opbuild.graph.types import Array, Graph, Node
from opbuild.platform.records import NamedTuple, dataclass, replace

MOST_DECIDING = 1024
"""Elements of a value that becomes a constant once it is known; a node that waits for more is evaluated on the host."""

MOST_BESIDE = 64
"""Elements of the integers beside a value that decides, which are taken to decide too: axes beside starts and ends."""

MOST_EMBEDDED = 4096
"""Bytes of a constant that a break holds; larger ones are results of the segment before it."""

REPEATED = ("Loop", "Scan", "SequenceMap")

BY_DATA = frozenset(("BifurcationDetector", "Compress", "DynamicTimeWarping", "NonMaxSuppression", "NonZero", "Unique"))
"""Operators whose results have shapes that their data decide, not a list of sizes."""

MOVING = frozenset(
    ("ArrayFeatureExtractor", "Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose",
     "Unsqueeze")
)  # fmt: skip
"""Operators that make text of text."""


@dataclass(frozen=True, eq=False)
class Walked:
    """One segment of a network, bound.

    Attributes:
        graph: The segment.
        follows: What comes after it; None: the segment is a whole network.
        remainder: What is to be bound behind the break, as far as it is known; None at the end.
        body: The body of the break's Loop, Scan or SequenceMap, whose own inputs have no types yet.
    """

    graph: Graph
    follows: GraphBreak | None = None
    remainder: Remainder | None = None
    body: Remainder | None = None

    def without_graph(self) -> Walked:
        """Return the walk without its graph, once that was built: the graph holds constants."""
        return replace(self, graph=Graph(self.graph.name, (), (), (), {}, {}))


class _Stop(NamedTuple):
    """The reason that a walk ends before a node.

    Attributes:
        kind: As a break's.
        reads: What is awaited, or what ``nodes`` read.
        nodes: What is to be evaluated.
        why: Why the node cannot be typed.
        body: Of a Loop, Scan or SequenceMap.
        outer: What the body reads from outside.
        least: As a break's, by the segment's names.
        is_of_host: Whether the node reads or makes what is no tensor: its own results are all that waits for it.
    """

    kind: Kind
    reads: tuple[str, ...]
    nodes: tuple[Node, ...]
    why: str
    body: Remainder | None = None
    outer: tuple[tuple[str, str], ...] = ()
    least: Dimension | None = None
    is_of_host: bool = False


def walk(remainder: Remainder, binder: NodeBinder, name: str, *, whole: bool) -> Walked:
    """Bind the first segment of a remainder, whose nodes a new binder takes.

    A ``whole`` segment that needs no break is a network like any other, without one at its end.

    Raises:
        ModelError: If a node is not valid; the message names it.
    """
    return _Walk(remainder, binder, name).run(whole=whole)


class _Walk:
    def __init__(self, remainder: Remainder, binder: NodeBinder, name: str) -> None:
        self._begun = remainder
        self._binder = binder
        self._name = name
        self._frames = [frame._replace(scope=dict(frame.scope)) for frame in remainder.frames]
        self._late: list[tuple[int, _Stop]] = []
        self._left: list[int] = []
        self._awaited: set[str] = set()
        self._symbols = _Symbols(remainder)
        binder.restore(remainder.types, remainder.constants)
        if self._frames[0].position == 0:
            self._open(self._frames[0])

    def run(self, *, whole: bool) -> Walked:
        while self._frames[-1].computes is not None or not self._frames[-1].is_done:
            stop = self._step()
            if stop is not None and not self._postpones(stop):
                return self._break_at_postponed() if self._late else self._break(stop)
        if self._late:
            return self._break_at_postponed()
        outputs, scope = [output.name for output in self._frames[0].block.outputs], self._frames[0].scope
        others = [name for name, each in self._begun.types.items() if not is_tensor(each)]
        if whole and not others:
            return Walked(self._binder.finish(self._name, self._begun.types, tuple(outputs), scope))
        results = self._binder.resolved(outputs, scope, Node("the network", (), (), name=self._name))
        given, held, derived = self._split(results)
        why, symbols = f"input {others[0]!r} is no tensor" if whole else "", tuple(self._symbols.places)
        follows = GraphBreak("end", results, constants=held, why=why, symbols=symbols, derived=derived)
        return Walked(self._graph(given), follows)

    # Taking nodes

    def _open(self, frame: Frame) -> None:
        for name, read in frame.block.tensors.items():
            self._binder.tensor(name, read, frame.scope, f"{frame.path}:{name}")

    def _step(self) -> _Stop | None:
        frame = self._frames[-1]
        if frame.is_done:
            branch = self._frames.pop()
            self._leave(branch, self._frames[-1])
            return None
        index = len(self._frames) - 1
        node = frame.block.nodes[frame.position]
        if index == 0 and not self._awaited.isdisjoint(reads(node)):
            self._left.append(frame.position)
            self._awaited.update(node.outputs)
            self._frames[0] = frame._replace(position=frame.position + 1)
            return None
        self._binder.read_as(frame.opset, frame.within)
        caller = next(each.computes for each in self._frames if each.within) if frame.within else None
        with node_error_context(node, caller):
            stop = self._enter(node, frame) if node.op_type == "If" and not node.domain else self._take(node, frame)
        if stop is None:
            self._frames[index] = frame._replace(position=frame.position + 1)
        return stop

    def _enter(self, node: Node, frame: Frame) -> _Stop | None:
        """Go on with a branch of an If, once its condition is known."""
        (name,) = self._binder.resolved(node.inputs, frame.scope, node)
        kind = self._binder.type_of(name)
        if kind.dtype != "bool" or kind.size != 1:
            raise InvalidModelError(f"If node {node.name!r}: its condition is {kind}", "a condition is one bool")
        if self._binder.value_of(name) is None:
            return _Stop("values", (name,), (), f"If node {node.name!r}: its condition is known only at run time")
        wanted = "then_branch" if bool(self._binder.value(name).reshape(-1)[0]) else "else_branch"
        block = node.attrs[wanted]
        path = f"{frame.place}.{wanted}"
        self._push(Frame(block, path, 0, dict(frame.scope), frame.opset, node, frame.within))
        return None

    def _push(self, frame: Frame) -> None:
        self._frames.append(frame)
        self._open(frame)

    def _leave(self, branch: Frame, frame: Frame) -> None:
        node = cast("Node", branch.computes)
        self._binder.read_as(branch.opset, branch.within)
        results = self._binder.resolved([each.name for each in branch.block.outputs], branch.scope, node)
        frame.scope.update((output, result) for output, result in zip(node.outputs, results, strict=False) if output)

    def _take(self, node: Node, frame: Frame) -> _Stop | None:
        try:
            if not any(blocks(node)):
                self._call(self._binder.visit(node, frame.scope), node, frame)
                return None
            captured = captures(node)
            inputs = self._binder.resolved((*node.inputs, *captured), frame.scope, node)
            node = node.with_(attrs={**node.attrs, "captures": captured, "opset": frame.opset})
            if node.op_type in REPEATED and not node.domain:
                return self._repeat(node, inputs, frame)
            renamed = node.with_(inputs=inputs, outputs=self._binder.declare(node.outputs, frame.scope))
            self._call(self._binder.add([renamed]), node, frame)
        except UnknownTypeError as error:
            is_read = any(frame.block.last_read.get(name, -1) > frame.position for name in node.outputs)
            return self._stop(node, frame, error) if is_read else None
        return None

    def _call(self, call: FunctionCall | None, node: Node, frame: Frame) -> None:
        """Go on with the function of a node, if it is to be taken in its place."""
        if call is not None:
            for name in node.outputs:  # a break inside the function knows nothing of them
                frame.scope.pop(name, None)
            within = f"{frame.within}{node.name}/"
            self._push(Frame(call.block, f"{frame.place}.function", 0, call.scope, call.opset, node, within))

    # Stopping

    def _stop(self, node: Node, frame: Frame, error: UnknownTypeError) -> _Stop:
        """Raise for the values that must be known, or evaluated, before the types of a node can be told."""
        deciding: list[str] = []
        if error.stopped and frame.place not in self._begun.on_host:
            deciding = self._deciding_values(error.stopped, error, frame)
        if deciding:
            for name in node.outputs:
                frame.scope.pop(name, None)
            least = error.least if isinstance(error, UnknownValueError) else None
            return _Stop("values", tuple(deciding), (), error.message, least=least)
        if not error.nodes:  # other nodes are to take its place, which are not known
            raise UnsupportedOperatorError(error.message, "give a value that is one number")
        nodes = tuple(map(_storable, error.nodes))
        return _Stop("data", _read_by(nodes), nodes, error.message, is_of_host=isinstance(error, NoTensorError))

    def _deciding_values(self, node: Node, error: UnknownTypeError, frame: Frame) -> list[str]:
        """Return the values that decide the types of a node; none if they are too large, or made by its own upgrade."""
        if isinstance(error, UnknownValueError):
            first = node.inputs[error.index]
            if not self._decides(first, frame, MOST_DECIDING):
                return []
            if error.least is not None:
                return [first]
            beside = [name for name in node.inputs[1:] if self._is_list(name, frame)]
            return [first, *(name for name in dict.fromkeys(beside) if name != first)]
        if node.op_type in BY_DATA or node.domain == "opbuild" or isinstance(error, NoTensorError):
            return []
        return list(dict.fromkeys(name for name in node.inputs if self._is_list(name, frame)))

    def _is_list(self, name: str, frame: Frame) -> bool:
        """Return whether a value may be a list of sizes or axes."""
        return self._decides(name, frame, MOST_BESIDE) and self._binder.type_of(name).dtype in ("int32", "int64")

    def _decides(self, name: str, frame: Frame, most: int) -> bool:
        """Return whether a value may become a constant."""
        given = name in self._begun.types or name in frame.scope.values()
        if not name or not given or self._binder.is_known(name):
            return False
        kind = self._binder.type_of(name)
        return is_tensor(kind) and kind.size <= most and len(kind.shape) <= 1

    def _repeat(self, node: Node, inputs: tuple[str, ...], frame: Frame) -> _Stop | None:
        """Fold a node with a body of which all is known, or stop before it."""
        if all(self._binder.is_known(name) for name in inputs if name) and self._folded(node, inputs, frame):
            return None
        (block,) = blocks(node)
        captured = dict(zip(node.attrs["captures"], inputs[len(node.inputs) :], strict=True))
        own = {each.name: each.name for each in block.inputs}
        first = {value: name for name, value in reversed(captured.items())}
        scope = {name: first[value] for name, value in captured.items()} | own
        known, derived = self._constants(first)
        body = Remainder((Frame(block, f"{frame.place}.body", 0, scope, frame.opset),), {}, known, derived=derived)
        outer = tuple((name, value) for value, name in first.items() if name not in {*known, *derived})
        outputs = self._binder.declare(node.outputs, frame.scope)
        formal = inputs[: len(node.inputs)]
        attrs = {name: value for name, value in node.attrs.items() if not isinstance(value, UntypedGraph)}
        attrs |= {
            "declared": tuple((each.dtype, *(() if each.shape is None else (each.shape,))) for each in block.outputs)
        }
        bare = node.with_(inputs=formal, outputs=outputs, attrs=attrs, proto=None)
        why = f"{node.op_type} node {node.name!r}: its body is repeated when the network runs"
        return _Stop("repeat", tuple(dict.fromkeys(filter(None, formal))), (bare,), why, body, outer)

    def _folded(self, node: Node, inputs: tuple[str, ...], frame: Frame) -> bool:
        try:
            found = self._binder.evaluated(node, [self._binder.value(name) if name else None for name in inputs])
        except (RunError, ModelError):
            return False
        self._binder.assign(self._binder.declare(node.outputs, frame.scope), found)
        return True

    # What only the host can do comes last, so that it breaks nothing in two that kernels compute

    def _postpones(self, stop: _Stop) -> bool:
        """Go on behind a node of the host; readers of numbers that it makes are left for the next segment."""
        if not stop.is_of_host or len(self._frames) > 1:
            return False
        frame = self._frames[0]
        for node in stop.nodes:
            moves = node.op_type in MOVING and self._binder.is_no_tensor(node.inputs[0])
            self._binder.begin({x: HOST_VALUE for x in node.outputs if moves or self._binder.is_no_tensor(x)})
        made = {name for node in stop.nodes for name in node.outputs if not self._binder.is_no_tensor(name)}
        outputs = frame.block.nodes[frame.position].outputs
        self._awaited.update(name for name in outputs if frame.scope.get(name) in made)
        self._late.append((frame.position, stop))
        self._frames[0] = frame._replace(position=frame.position + 1)
        return True

    def _break_at_postponed(self) -> Walked:
        """Return the segment that ends with the postponed nodes, before those left and those not yet taken."""
        frame = self._frames[0]
        is_inside = len(self._frames) > 1  # a branch or a function, which is taken again
        left = [*self._left, *range(frame.position - is_inside, len(frame.block.nodes))]
        last = self._late[-1][0]
        taken = [place for place in range(len(frame.block.nodes)) if place not in {*left, last}]
        nodes = tuple(frame.block.nodes[place] for place in (*taken, last, *left))
        unknown = {name for place in left for name in frame.block.nodes[place].outputs}
        scope = {name: value for name, value in frame.scope.items() if name not in unknown}
        path = f"{frame.path}~{','.join(map(str, left))}" if self._left else frame.path
        block = replace(frame.block, nodes=nodes)
        self._frames = [Frame(block, path, len(taken), scope, frame.opset, None, frame.within)]
        evaluated = tuple(each for _, stop in self._late for each in stop.nodes)
        return self._break(_Stop("data", _read_by(evaluated), evaluated, self._late[0][1].why))

    # Breaking

    def _break(self, stop: _Stop) -> Walked:
        """Return the segment that ends here."""
        frame = self._frames[-1]
        node = frame.block.nodes[frame.position]
        opset = self._binder.opset
        follows = GraphBreak(
            stop.kind, path=frame.place, node=node.name, op_type=node.op_type, why=stop.why, opset=opset
        )
        first = tuple(name for name in stop.reads if name in self._begun.types)
        if stop.kind == "values" and first:
            alone = self._begun.before is None or stop.least is not None or node.op_type == "If"
            begun = self._fresh_remainder() if alone else self._begun.before or self._begun
            asked = () if alone else self._begun.asked
            live = {name: name for name in begun.types}
            kept = tuple(name for name, each in begun.types.items() if not is_tensor(each))
            least = _least_dimension(stop.least, live)
            follows = replace(follows, reads=(*asked, *first), live=live, kept=kept, state=begun.digest, least=least)
            symbols = tuple(("", index) for index in range(len(begun.numbers)))
            follows = replace(follows, symbols=symbols, shapes=_shapes(begun))
            return Walked(self._graph(()), follows, begun)
        if stop.kind != "values":
            self._frames[-1] = frame._replace(position=frame.position + 1)
        own = {name for each in stop.nodes for name in each.outputs}
        made = tuple(dict.fromkeys(value for value in frame.scope.values() if value in own))
        frames, named = _renamed(self._frames)
        known, derived = self._constants(named)
        live = {name: value for value, name in named.items() if name not in {*known, *derived}}
        used = {value for each in frames for name, value in each.scope.items() if each.uses_later(name)}
        types = {
            name: self._binder.type_of(value) if name in used else HOST_VALUE
            for name, value in sorted(live.items())
            if value not in made or name not in used
        }
        remainder = Remainder(frames, types, known, self._begun.on_host, derived=derived)
        wanted = [value for value in live.values() if value not in made]
        kept = tuple(name for name in live if name not in used)
        follows = replace(follows, live=live, kept=kept, state=remainder.digest, shapes=_shapes(remainder))
        follows = replace(follows, symbols=tuple(self._symbols.places))
        if stop.kind == "values":
            least = _least_dimension(stop.least, {value: name for name, value in live.items()})
            follows = replace(follows, reads=tuple(named[name] for name in stop.reads), least=least)
            return Walked(self._graph(wanted), follows, remainder)
        given, held, worked_out = self._split(stop.reads)
        is_over = len(frames) == 1 and frames[0].is_done
        results = [frames[0].scope[output.name] for output in frames[0].block.outputs] if is_over else []
        follows = replace(
            follows,
            results=tuple(results) if live.keys() >= {*results} else (),
            reads=tuple(name for name in stop.reads if name not in held),
            symbols=tuple(self._symbols.places),
            derived=worked_out,
            made=tuple(named[value] for value in made if named.get(value) in used),
            nodes=stop.nodes,
            constants=held,
            body=Body(stop.body.digest, stop.body.own_inputs, dict(stop.outer)) if stop.body else None,
        )
        graph = self._graph((*wanted, *given, *(value for _, value in stop.outer)))
        return Walked(graph, follows, remainder, stop.body)

    def _constants(self, named: Mapping[str, str]) -> tuple[dict[str, KnownValue], dict[str, DerivedValue]]:
        """Return the constants among some values, by their names in the remainder, and those of them that are open."""
        found = self._derived(named)
        others = ((value, name) for value, name in named.items() if name not in found)
        return {name: self._binder.known(value) for value, name in others if self._binder.is_known(value)}, found

    def _derived(self, named: Mapping[str, str]) -> dict[str, DerivedValue]:
        """Return the values among some that follow from open extents, by their names in the remainder."""
        found = {}
        for value, name in named.items():
            opened = self._binder.open_value(value)
            if opened is not None:
                try:
                    found[name] = derived(opened, self._binder.type_of(value).dtype, self._symbols.of)
                except NotImplementedError:  # it follows from floating-point numbers
                    self._binder.fix(value)
        return found

    def _fresh_remainder(self) -> Remainder:
        """Return the remainder at the start, its open values apart from this lowering; see ``Remainder.numbers``."""
        begun = self._begun
        opened = {name: each for name, each in begun.known.items() if each.dtype}
        symbols = _Symbols(replace(begun, types={}))
        symbols.places += [("", index) for index in range(len(begun.numbers))]
        more = {name: derived(each.read(), each.dtype, symbols.of) for name, each in opened.items()}
        known = {name: each for name, each in begun.known.items() if name not in opened}
        return replace(begun, known=known, derived={**begun.derived, **more})

    def _split(self, names: Iterable[str]) -> tuple[tuple[str, ...], dict[str, Array], dict[str, DerivedValue]]:
        """Return the values that the segment's graph gives, and small constants that the break holds or works out."""
        constants = {name: self._binder.value(name) for name in names if name and self._binder.is_known(name)}
        held = {name: np.array(value, order="C") for name, value in constants.items() if _is_held(value)}
        follows = self._derived({name: name for name, value in constants.items() if is_open_value(value)})
        for value in held.values():
            value.flags.writeable = False  # whoever gets it as a result gets a copy
        return tuple(name for name in names if name and name not in {*held, *follows}), held, follows

    def _graph(self, outputs: Collection[str]) -> Graph:
        """Return the segment's graph; its inputs are all tensors that the remainder begins with."""
        types = self._begun.types
        wanted = tuple(dict.fromkeys(name for name in outputs if name and name not in types))
        inputs = [name for name, each in types.items() if is_tensor(each)]
        return self._binder.segment(self._name, inputs, wanted)


class _Symbols:
    """The numbers with which a segment begins, as far as the later segments follow from them.

    Attributes:
        places: Where the segment has each of them; see ``GraphBreak.symbols``.
    """

    def __init__(self, begun: Remainder) -> None:
        self.places: list[Dimension] = []
        self._known: dict[int, Dimension] = {}
        for name, each in begun.types.items():
            self._note((name, axis, extent) for axis, extent in enumerate(each.shape))
        self._note(("", index, number) for index, number in enumerate(begun.numbers))

    def _note(self, found: Iterable[tuple[str, int, Any]]) -> None:
        for name, place, extent in found:
            if isinstance(extent, SymbolicExtent):
                ((monomial, _),) = extent.polynomial
                self._known.setdefault(monomial[0], (name, place))

    def of(self, variable: int) -> int:
        """Return the index of the symbol that a variable stands for."""
        place = self._known[variable]
        if place not in self.places:
            self.places.append(place)
        return self.places.index(place)


def _shapes(remainder: Remainder) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors with which a remainder begins, -1 where an extent is open."""
    return {
        name: tuple(-1 if isinstance(extent, SymbolicExtent) else extent for extent in each.shape)
        for name, each in remainder.types.items()
        if is_tensor(each)
    }


def _renamed(frames: Sequence[Frame]) -> tuple[tuple[Frame, ...], dict[str, str]]:
    """Return frames that know only the values they still read, and their names of these, by the former names.

    The names do not depend on nodes taken before: rests behind both branches of an If are one, if their values are of
    the same types.
    """
    named: dict[str, str] = {}
    used: set[str] = set()
    renamed = []
    for frame in frames:
        scope = {name: value for name, value in frame.scope.items() if frame.reads_later(name)}
        for name, value in sorted(scope.items()):
            if value and value not in named:
                candidates = chain((name,), (f"{name}@{index}" for index in count()))
                named[value] = fresh = next(each for each in candidates if each not in used)
                used.add(fresh)
        renamed.append(frame._replace(scope={name: named.get(value, "") for name, value in scope.items()}))
    return tuple(renamed), named


def _least_dimension(least: Dimension | None, named: Mapping[str, str]) -> Dimension | None:
    """Return the dimension that a value counts from, as the remainder calls it; 0 if the remainder does not read it."""
    if least is None:
        return None
    return (named[least[0]], least[1]) if least[0] in named else ("", 0)


def _read_by(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return the values that nodes read and do not make."""
    own = {name for each in nodes for name in each.outputs}
    return tuple(dict.fromkeys(name for each in nodes for name in each.inputs if name and name not in own))


def _is_held(value: Array) -> bool:
    """Return whether a break holds a constant: it is small, or text, which no segment gives."""
    return not is_open_value(value) and (value.nbytes <= MOST_EMBEDDED or value.dtype == object)


def _storable(node: Node) -> Node:
    """Return a node as it is evaluated: without graphs, and the type that an Optional declares, a protobuf message."""
    kept = {
        name: value
        for name, value in node.attrs.items()
        if not hasattr(value, "SerializeToString") and not isinstance(value, UntypedGraph)
    }
    return node.with_(attrs=kept)
