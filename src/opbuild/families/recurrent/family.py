"""Recurrences over sequences: RNN, GRU and LSTM, their inputs' products computed before or at each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opbuild.families.dims import free_dims
from opbuild.families.family import Dims, Family, Variant, VariantPart, elements
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.operations.expression import Expression
from opbuild.platform.records import dataclass
from opbuild.target.machine import Machine

PANEL = 16
"""Hidden units in a panel of packed weights: all gates of these units lie side by side."""

INPUTS = 3
"""Rank of the inputs; products of them, where the kernel does not make these, have a rank of 5."""

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
"""Rows of weights that a hidden unit has: of ONNX's gates, in its order."""

SUMS = {1: 8, 2: 16, 4: 16}
"""Vectors of sums in a tile by its rows, at most: 8 keep a core busy, and tiles are what steps are divided into; 24
took up to six times as long as 16."""

RATE = 3
"""Multiplications with additions of a lane in a nanosecond."""

BYTES = 40
"""Bytes of the weights that a core reads in a nanosecond where they lie in its second-level cache."""

LEAST_FUSED = 8
"""Sequences from which on a kernel multiplies the inputs of a step as fast as one product of all steps."""

MOST_FUSED = 4 << 20
"""Bytes of the weights of one direction, at most, that are read at each step for it."""

STEP, UNIT = 400, 3
"""Nanoseconds that a step takes besides, and a vector of hidden units: four to five exponentials."""


@dataclass(frozen=True)
class RecurrentForm:
    """The form of a recurrence: kind, directions and activations.

    Attributes:
        kind: ``RNN``, ``GRU`` or ``LSTM``.
        directions: ``forward``, ``reverse`` or ``both``.
        activations: Expressions over the accumulator, in ONNX's order.
        linear: Whether a GRU multiplies by its weights before it resets.
        coupled: Whether an LSTM forgets what it does not take in.
        peepholes: Whether an LSTM's gates see its cell.
        fused: Whether it multiplies the inputs by their weights, too.
        kept: Whether an LSTM, or a linear GRU, gives what its gradient needs of all steps, too.
        impl_mode: The implementation mode.
        group: Neighbours along K that are adjacent in recurrence weights of int8; 0 of float32.
    """

    kind: str
    directions: str
    activations: tuple[Expression, ...]
    linear: bool
    coupled: bool
    peepholes: bool
    fused: bool
    kept: bool
    impl_mode: str
    group: int = 0


def choose(
    kind: str, linear: bool, fused: bool, batch: int, size: int, panels: int, machine: Machine
) -> Variant | None:
    """Return the variant, or None where one product of all steps' inputs is faster than the fused kernel asked for.

    Args:
        kind: ``RNN``, ``GRU`` or ``LSTM``.
        linear: Whether a GRU multiplies before it resets; its candidate's products are then two, so it is not fused.
        fused: Whether the kernel is to multiply the inputs, too.
        batch: Sequences.
        size: Extent of an input.
        panels: Panels of ``PANEL`` hidden units.
        machine: What runs it.
    """
    weights = 4 * GATES[kind] * panels * PANEL * (size + panels * PANEL)
    if fused and (linear or size == 0 or batch < LEAST_FUSED or weights > MOST_FUSED):
        return None
    tiles = list(_tiles(kind, linear, batch, panels, machine))
    rows, gates, _ = tiles[0]
    sides = (side for *tile, side in tiles if tile == [rows, gates] and side > 1)
    side = next((side for side in sides if rows * side * gates * machine.vectors(PANEL) <= SUMS[rows]), 1)
    return {"rows": rows, "panels": side, "gates": gates}


def candidates(
    kind: str, linear: bool, fused: bool, batch: int, size: int, panels: int, machine: Machine
) -> list[Variant | None]:
    """Return the variants among which tuning searches; the arguments are those of ``choose``.

    Whether a kernel multiplies the inputs, too, is a choice where it can.
    """
    own = choose(kind, linear, fused, batch, size, panels, machine)
    if fused and (linear or size == 0):
        return [own]
    tiles = _tiles(kind, linear, batch, panels, machine)
    others = [{"rows": rows, "panels": side, "gates": gates} for rows, gates, side in tiles]
    return [own, *([None] if fused and own is not None else []), *(each for each in others if each != own)]


def _tiles(kind: str, linear: bool, batch: int, panels: int, machine: Machine) -> Iterator[tuple[int, int, int]]:
    """Yield rows, gates and panels of the tiles that are legal, the largest first."""
    together = summed({"kind": kind, "linear": linear})

    def fits(rows: int, side: int, gates: int) -> bool:
        """Return whether the registers hold all sums, one unit's weights and one element of the state."""
        sums = side * gates * machine.vectors(PANEL)
        return rows * sums + (sums if rows > 1 else 0) + 1 <= machine.registers

    for rows in (4, 2, 1) if batch > 1 else (1,):
        for gates in (gates for gates in (4, 3, 2, 1) if together % gates == 0):
            for side in (side for side in (8, 4, 2, 1) if panels % side == 0):
                if fits(rows, side, gates) or (rows, gates, side) == (1, 1, 1):
                    yield rows, gates, side


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds on one core: to read the weights at each step, or to multiply by them."""
    (hidden, _), (batch, _), (directions, _), (steps, _) = shapes[len(desc.inputs)]
    size = shapes[0][0][0] if desc.inputs[0].name == "x" else 0
    rows, gates = int(desc.variant["rows"]), GATES[desc.attrs["kind"]]
    passes = -(-batch // rows)
    weights = (size + hidden) * -(-hidden // PANEL) * PANEL * gates
    own = next(operand for operand in desc.inputs if operand.name == "weights")
    at_once, width = (own.dims[0].extent, 1) if own.dtype == "int8" else (1, 4)
    product = passes * weights * max(rows / (RATE * at_once * machine.lanes), width / BYTES)
    units = batch * machine.vectors(hidden) * gates * UNIT
    return float(steps * directions * (product + units + STEP))


def describe(form: RecurrentForm, variant: Variant) -> OpDesc:
    """Return the descriptor.

    Operands, innermost dimension first; ``H`` hidden units, ``G`` gates, ``B`` sequences, ``D`` directions, ``T``
    steps, ``I`` elements of an input:

    * ``projected`` ``(H, G, B, D, T)``: what inputs and biases add to the gates; if fused in its place ``x``
      ``(I, B, T)``, ``input_weights`` ``(16, G, I, ceil(H / 16), D)`` and ``bias`` ``(H, G, D)``;
    * ``weights`` ``(16, G, H, ceil(H / 16), D)``: the recurrence weights in panels; of int8 in groups along K, which is
      their innermost dimension;
    * with weights of int8 ``scales`` and ``sums`` ``(H, G, D)``: what a weight's steps are worth, and the sums of all;
    * ``lengths`` ``(B)``: how many steps of each sequence count;
    * ``initial`` ``(H, B, D)``: the first hidden state; ``previous``: the memory of the output ``hidden``;
    * of an LSTM ``initial_cell`` and ``previous_cell``, alike, and ``peepholes`` ``(H, 3, D)`` if it has them;
    * of a linear GRU ``bias`` ``(H, D)``: what is added to the product before it is reset;
    * outputs ``every`` and ``hidden``, of an LSTM ``cell``: ``(H, B, D, T)``; the last two have stride 0 along T; if
      they are kept, also ``kept0`` and so on, alike: what goes into each gate's activation but for peepholes, and then
      the cell, or of a GRU what is reset.
    """
    gates = GATES[form.kind]
    states = free_dims(3, inner_stride=1)
    panels = _panels(gates, 1, variant)
    dims = {"projected": free_dims(5, inner_stride=1)}
    if form.fused:
        dims = {"x": free_dims(3), "input_weights": panels, "bias": states}
    dims["weights"] = panels
    if form.group:
        grouped = (Dim(form.group, 1), *_panels(gates, form.group, variant))
        dims |= {"weights": grouped, "scales": states, "sums": states}
    dims |= {"lengths": (Dim(),), "initial": states, "previous": states}
    if form.kind == "LSTM":
        dims |= {"initial_cell": states, "previous_cell": states}
    if form.peepholes:
        dims["peepholes"] = states
    if form.linear:
        dims["bias"] = free_dims(2, inner_stride=1)
    kinds = {"lengths": "int32", "sums": "int32", **({"weights": "int8"} if form.group else {})}
    inputs = tuple(Operand(name, kinds.get(name, "float32"), each) for name, each in dims.items())
    names = ("every", "hidden", "cell")[: 3 if form.kind == "LSTM" else 2]
    names += tuple(f"kept{number}" for number in range(gates + 1)) if form.kept else ()
    outputs = tuple(Operand(name, "float32", free_dims(4, inner_stride=1)) for name in names)
    attrs = {
        "kind": form.kind,
        "directions": form.directions,
        "activations": form.activations,
        "linear": form.linear,
        "coupled": form.coupled,
        **({"kept": True} if form.kept else {}),
    }
    return FAMILY.desc((form.kind,), inputs, outputs, attrs, variant, form.impl_mode)


def _panels(gates: int, group: int, variant: Mapping[str, Any]) -> tuple[Dim, ...]:
    """Return the dimensions of weights in panels; so many neighbours along K are inside the innermost one."""
    panel = Dim(PANEL, group), Dim(gates, PANEL * group), Dim(stride=PANEL * gates * group)
    return *panel, Dim(multiple=variant["panels"]), Dim()


def summed(attrs: Mapping[str, Any]) -> int:
    """Return the number of gates whose products are added up at once: a GRU that resets first has its second before."""
    return GATES[attrs["kind"]] - (attrs["kind"] == "GRU" and not attrs["linear"])


def _opened(_desc: OpDesc, _operand: Operand, _number: int, dim: Dim) -> Dim:
    return Dim(dim.extent, dim.stride)


def _products(dims: Sequence[Dims], out: Dims) -> int:
    """Count the products with the state, and those with the inputs where the kernel makes them, too."""
    hidden, gates = out[0][0], dims[0][1][0]
    if len(dims[0]) == INPUTS:
        hidden, gates = hidden + dims[0][0][0], dims[1][1][0]
    return elements(out) * gates * hidden


FAMILY = Family(
    "recurrent",
    choose,
    attributes=("kind", "directions", "activations", "linear", "coupled", "kept"),
    variant={"rows": VariantPart(), "panels": VariantPart(least=1), "gates": VariantPart()},
    types=("float32",),
    milliseconds=400,
    opened=_opened,
    work=work,
    candidates=candidates,
    products=_products,
)
