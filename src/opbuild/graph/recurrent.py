"""The attributes of RNN, GRU and LSTM nodes, read once for shape rules and for the host backend."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import Any

from opbuild.graph.types import Node
from opbuild.platform.records import dataclass

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
"""Gates of each cell: how many rows of weights one hidden unit has."""

_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}

_KINDS = {"IntegerLSTM": "LSTM"}
"""The cells of operators that are not called as theirs."""

_NO_DEFAULT = float("nan")

_PARAMETERS: dict[str, tuple[float | None, float | None]] = {
    **dict.fromkeys(("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus"), (None, None)),
    "Affine": (_NO_DEFAULT, _NO_DEFAULT),
    "LeakyRelu": (0.01, None),
    "ThresholdedRelu": (1.0, None),
    "ScaledTanh": (_NO_DEFAULT, _NO_DEFAULT),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0, None),
}
"""The activations and the defaults of their alpha and beta, those of ONNX's operators of that name; None where they
take none. ONNX has no operators of the names that have no default."""

_BY_LOWER = {name.lower(): name for name in _PARAMETERS}


@dataclass(frozen=True)
class Activation:
    """One activation of a cell, with its parameters; 0 where it takes none."""

    name: str
    alpha: float
    beta: float


@dataclass(frozen=True)
class Cell:
    """A recurrent node's attributes.

    Attributes:
        kind: ``RNN``, ``GRU`` or ``LSTM``.
        reverse: For each direction, whether it reads the sequence from its end.
        activations: For each direction, its activations.
        clip: The bound of what the gates' activations get; infinite if there is none.
        batch_first: Whether the batch comes before the sequence (``layout=1``).
        linear_before_reset: Whether a GRU multiplies by its recurrence weights before it resets.
        coupled: Whether an LSTM forgets what it does not take in (``input_forget=1``).
    """

    kind: str
    reverse: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    clip: float
    batch_first: bool
    linear_before_reset: bool = False
    coupled: bool = False


def cell_of(node: Node) -> Cell:
    """Return the cell that a recurrent node's attributes describe.

    Raises:
        ValueError: If an attribute has a value that the operator does not define.
    """
    direction = _text(node.attrs.get("direction", "forward")).lower()
    directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if direction not in directions:
        raise ValueError(f"direction is {direction!r}, not forward, reverse or bidirectional")
    layout = int(node.attrs.get("layout", 0))
    if layout not in (0, 1):
        raise ValueError(f"layout is {layout}, not 0 or 1")
    reverse = directions[direction]
    clip = float(node.attrs.get("clip", 0.0)) or float("inf")
    linear, coupled = (bool(node.attrs.get(name, 0)) for name in ("linear_before_reset", "input_forget"))
    kind = _KINDS.get(node.op_type, node.op_type)
    return Cell(kind, reverse, _activations(node, kind, len(reverse)), clip, layout == 1, linear, coupled)


def _activations(node: Node, kind: str, directions: int) -> tuple[tuple[Activation, ...], ...]:
    default = _DEFAULTS[kind]
    names = [_text(name) for name in node.attrs.get("activations") or default * directions]
    if len(names) != len(default) * directions:
        raise ValueError(f"it has {len(names)} activations, not {len(default)} for each of {directions} direction(s)")
    alphas, betas = iter(node.attrs.get("activation_alpha") or ()), iter(node.attrs.get("activation_beta") or ())
    found = [_activation(name, alphas, betas) for name in names]
    return tuple(tuple(found[start : start + len(default)]) for start in range(0, len(found), len(default)))


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Activation:
    """Return an activation; one that takes a parameter takes the next of those given."""
    known = _BY_LOWER.get(name.lower())
    if known is None:
        raise ValueError(f"the activation {name!r} is not one of {', '.join(_PARAMETERS)}")
    alpha, beta = (
        0.0 if default is None else float(next(given, default))
        for default, given in zip(_PARAMETERS[known], (alphas, betas), strict=True)
    )
    if isnan(alpha) or isnan(beta):
        raise ValueError(f"the activation {known} needs activation_alpha and activation_beta: it has no defaults")
    return Activation(known, alpha, beta)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
