"""The operator types that there are, for options that list some."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from opbuild.errors import OptionError
from opbuild.graph import user_operators
from opbuild.graph.passes.infer import types_with_rule

WITHOUT_RULE = frozenset((
    "AffineGrid", "Attention", "BitCast", "BlackmanWindow", "CausalConvWithState", "Col2Im",
    "Compress", "ConcatFromSequence", "Constant", "DFT", "DeformConv", "Det", "GRU",
    "HammingWindow", "HannWindow", "If", "ImageDecoder", "LSTM", "LinearAttention", "Loop", "MaxRoiPool",
    "MelWeightMatrix", "Multinomial", "NegativeLogLikelihoodLoss", "NonMaxSuppression", "NonZero",
    "Optional", "OptionalGetElement", "OptionalHasElement", "QLinearMatMul", "RNN", "RegexFullMatch", "RoiAlign",
    "RotaryEmbedding", "STFT", "Scan", "Scatter", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase",
    "SequenceInsert", "SequenceLength", "SequenceMap", "SoftmaxCrossEntropyLoss", "SplitToSequence", "StringConcat",
    "StringNormalizer", "StringSplit", "SwiGLU", "TfIdfVectorizer", "Unique", "Upsample",
))  # fmt: skip
"""ONNX's operators that an option may name whether they have a shape rule here or not."""


def known_types() -> frozenset[str]:
    """Return every operator type: ONNX's, opbuild's own, and those that the user defined so far."""
    return WITHOUT_RULE | types_with_rule() | user_operators.known_types()


def check_types(types: Iterable[str], option: str = "optypelist_for_implmode") -> None:
    """Check that an option names operator types that exist.

    Raises:
        OptionError: If it names another one.
    """
    known = known_types()
    for op_type in types:
        if op_type not in known:
            near = difflib.get_close_matches(op_type, sorted(known), 3)
            meant = f"; is it {' or '.join(near)}?" if near else ""
            raise OptionError(
                f"{option} names {op_type!r}, which is no operator type",
                f"give types as ONNX spells them, such as Conv, Softmax, Tanh{meant}",
            )
