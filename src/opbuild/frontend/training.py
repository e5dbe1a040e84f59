"""The optimizers of ``ai.onnx.preview.training`` as functions, for as many tensors as a node has."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.frontend.onnx_messages import FunctionProto
from opbuild.graph.types import Node

DOMAIN = "ai.onnx.preview.training"


def own_function(node: Node) -> FunctionProto:
    """Return the function of an optimizer; ONNX's schemas have none."""
    from onnx import parser

    return parser.parse_function(
        f'<opset_import: ["" : 21], domain: ""> {OWN_FUNCTIONS[node.domain, node.op_type](node)}'
    )


def adagrad(node: Node) -> str:
    """Return the text of Adagrad's function: each element's steps become smaller with the squares that it has seen."""
    lines = [*_numbers(node, "decay_factor", "epsilon", "norm_coefficient"), "Decay = Mul (TF, decay_factor)"]
    lines += ["Slow = Add (One, Decay)", "Step = Div (RF, Slow)"]
    for i in range(_count(node, 3)):
        lines += [
            *_regularised(i),
            f"Square{i} = Mul (Slope{i}, Slope{i})",
            f"NewH{i} = Add (H{i}, Square{i})",
            f"Root{i} = Sqrt (NewH{i})",
            f"Sum{i} = Add (Root{i}, epsilon)",
            f"Far{i} = Mul (Step, Slope{i})",
            f"Change{i} = Div (Far{i}, Sum{i})",
            f"NewX{i} = Sub (X{i}, Change{i})",
        ]
    return _function(node, "H", lines)


def adam(node: Node) -> str:
    """Return the text of Adam's function, whose first steps are corrected for averages that begin with zeros."""
    names = ("epsilon", "norm_coefficient", "norm_coefficient_post")
    lines = [
        *_numbers(node, *names, alpha=0.9, beta=0.999),
        "KeptV = Pow (alpha, TF)",
        "KeptH = Pow (beta, TF)",
        "NewShareV = Sub (One, KeptV)",
        "NewShareH = Sub (One, KeptH)",
        "RootH = Sqrt (NewShareH)",
        "Raised = Mul (RF, RootH)",
        "Corrected = Div (Raised, NewShareV)",
        "Step = Where (Later, Corrected, RF)",
        "OtherV = Sub (One, alpha)",
        "OtherH = Sub (One, beta)",
        "Last = Sub (One, norm_coefficient_post)",
    ]
    for i in range(_count(node, 4)):
        lines += [
            *_regularised(i),
            f"OldV{i} = Mul (alpha, V{i})",
            f"AddV{i} = Mul (OtherV, Slope{i})",
            f"NewV{i} = Add (OldV{i}, AddV{i})",
            f"OldH{i} = Mul (beta, H{i})",
            f"Square{i} = Mul (Slope{i}, Slope{i})",
            f"AddH{i} = Mul (OtherH, Square{i})",
            f"NewH{i} = Add (OldH{i}, AddH{i})",
            f"Root{i} = Sqrt (NewH{i})",
            f"Sum{i} = Add (Root{i}, epsilon)",
            f"Far{i} = Mul (Step, NewV{i})",
            f"Change{i} = Div (Far{i}, Sum{i})",
            f"Moved{i} = Sub (X{i}, Change{i})",
            f"NewX{i} = Mul (Last, Moved{i})",
        ]
    return _function(node, "VH", lines)


def momentum(node: Node) -> str:
    """Return the text of Momentum's function, plain or Nesterov's."""
    lines = [*_numbers(node, "norm_coefficient", "alpha", "beta"), "Share = Where (Later, beta, One)"]
    for i in range(_count(node, 3)):
        lines += [
            *_regularised(i),
            f"OldV{i} = Mul (alpha, V{i})",
            f"AddV{i} = Mul (Share, Slope{i})",
            f"NewV{i} = Add (OldV{i}, AddV{i})",
        ]
        if node.text("mode", "standard") == "nesterov":
            lines += [f"Ahead{i} = Mul (alpha, NewV{i})", f"Way{i} = Add (Slope{i}, Ahead{i})"]
        else:
            lines += [f"Way{i} = Identity (NewV{i})"]
        lines += [f"Far{i} = Mul (RF, Way{i})", f"NewX{i} = Sub (X{i}, Far{i})"]
    return _function(node, "V", lines)


def _count(node: Node, kinds: int) -> int:
    """Return the number of optimized tensors; for each there are as many inputs as kinds, behind rate and step."""
    return (len(node.inputs) - 2) // kinds


def _regularised(i: int) -> list[str]:
    return [f"Norm{i} = Mul (norm_coefficient, X{i})", f"Slope{i} = Add (Norm{i}, G{i})"]


def _numbers(node: Node, *names: str, **defaults: float) -> list[str]:
    """Return constants for attributes, of the tensors' type; those that are named without a default are 0."""
    found = []
    for name, default in {**dict.fromkeys(names, 0.0), **defaults}.items():
        value = float(node.attrs.get(name, default))
        found += [
            f"{name}_float = Constant <value_float: float = {value!r}> ()",
            f"{name} = CastLike ({name}_float, X0)",
        ]
    return found


def _function(node: Node, kept: str, lines: Sequence[str]) -> str:
    """Return the text of a function of rate, step, tensors, gradients and the states kept from step to step."""
    kinds = "XG" + kept
    count = _count(node, len(kinds))
    inputs = ", ".join(["R", "T", *(f"{kind}{i}" for kind in kinds for i in range(count))])
    outputs = ", ".join(f"New{kind}{i}" for kind in "X" + kept for i in range(count))
    head = [
        "RF = CastLike (R, X0)",
        "TF = CastLike (T, X0)",
        "One_float = Constant <value_float: float = 1.0> ()",
        "One = CastLike (One_float, X0)",
        "Zero = Constant <value: tensor = int64 {0}> ()",
        "Later = Greater (T, Zero)",
    ]
    return f"{node.op_type} ({inputs}) => ({outputs}) {{ {' '.join([*head, *lines])} }}"


OWN_FUNCTIONS = {(DOMAIN, "Adagrad"): adagrad, (DOMAIN, "Adam"): adam, (DOMAIN, "Momentum"): momentum}
"""What makes the text of the function of an optimizer, by its domain and type."""
