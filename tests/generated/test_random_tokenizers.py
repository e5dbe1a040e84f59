"""Random Tokenizer nodes of com.microsoft give what ONNX Runtime gives, and text pipelines what scikit-learn gives.

``OPBUILD_FUZZ=5000`` tries so many.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper

import opbuild
from opbuild.errors import OpbuildError
from support.comparison import onnxruntime_outputs
from support.fuzzing import CAMPAIGN, check_seeds
from support.tiers import spans

Array = npt.NDArray[Any]

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []

PIECES = ("a", "b", "ab", "abc", "z", "Z", "é", "日本", "1", "_", "-", " ", "  ", ",", ".", "\t", "\n", "!", "😀", "")
PATTERNS = (
    *("[a-zA-Z0-9_]+", r"\w+", r"\w\w+", "[a-z]+", "a|ab|abc", "(a|ab)(c|bcd)?", "a*", "[ab]{2}", "a+?", "(?:ab)+|z"),
    *("[^ ]+", r"[[:alpha:]]+", r"\d|[a-z]{1,2}", "(a?)(ab)?b", "x|", ".{2}", r"\S+", "日|本"),
)
SEPARATORS = (" ", ",", r"\s+", "-", "[ ,.]", "a|ab", "ab", "b*", r"\.", "日", "z", "[!_]+", "x")


def random_tokenizer(seed: int) -> tuple[onnx.ModelProto, Array]:
    """Return the Tokenizer of a seed, and strings."""
    draw = random.Random(seed)
    attrs: dict[str, Any] = {"mark": draw.randint(0, 1), "pad_value": draw.choice(("#", "", "pad"))}
    attrs["mincharnum"] = draw.choice((1, 1, 1, 2, 3))
    kind = draw.randrange(5)
    if kind == 0:
        attrs |= {"mincharnum": 1} | ({"separators": [""]} if draw.random() < 0.5 else {"tokenexp": "."})
    elif kind < 3:
        attrs["tokenexp"] = draw.choice(PATTERNS)
    else:
        attrs["separators"] = draw.sample(SEPARATORS, draw.randint(1, 3))
    shape = [(draw.randint(1, 4),), (draw.randint(1, 3), draw.randint(1, 3))][draw.randrange(2)]
    words = ["".join(draw.choices(PIECES, k=draw.randint(0, 12))) for _ in range(int(np.prod(shape)))]
    node = helper.make_node("Tokenizer", ["x"], ["y"], "tokens", domain="com.microsoft", **attrs)
    text = onnx.TensorProto.STRING
    ends = [
        helper.make_tensor_value_info(name, text, [None] * rank)
        for name, rank in (("x", len(shape)), ("y", len(shape) + 1))
    ]
    graph = helper.make_graph([node], "tokens", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return model, np.array(words, object).reshape(shape)


def compared(seed: int) -> tuple[str, str]:
    """Return the outcome of the Tokenizer of a seed."""
    model, text = random_tokenizer(seed)
    (wanted,) = onnxruntime_outputs(model, {"x": text})
    try:
        (got,) = opbuild.compile(model).run(None, {"x": text})
    except OpbuildError as error:
        return "foreign", f"{type(error).__name__}: {error}"
    said = f"{text.tolist()}: {got.tolist()}, not {wanted.tolist()}: {model.graph.node[0].attribute}"
    return ("right", "") if got.shape == wanted.shape and (got == wanted).all() else ("wrong", said)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", spans(60, 30))
def test_tokenizers_give_what_onnx_runtime_gives(seeds: range) -> None:
    """Characters, patterns and separators, the longest match each, marks, padding and least lengths."""
    check_seeds("tokenizers", compared, seeds)


DOCUMENTS = ["The quick brown fox, jumps over!", "hello world a bc def", "Hi hi HI x", " some and--dashes_1 2 33"]
"""Without what skl2onnx leaves out: joined white space, and words of one letter in n-grams."""

WORDS = "[a-zA-Z0-9_]+"


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "count"},
        {"kind": "tfidf"},
        {"kind": "tfidf", "norm": "l1", "sublinear_tf": False, "use_idf": False},
        {"kind": "count", "ngram_range": (1, 2), "token_pattern": WORDS},
        {"kind": "tfidf", "ngram_range": (2, 3), "token_pattern": WORDS},
        {"kind": "count", "analyzer": "char"},
        {"kind": "count", "analyzer": "char", "ngram_range": (2, 3)},
        {"kind": "tfidf", "stop_words": ["the", "hi"]},
        {"kind": "count", "token_pattern": "[a-z]+"},
        {"kind": "count", "lowercase": False},
        {"kind": "count", "binary": True},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_text_pipelines_give_what_scikit_learn_gives(options: dict[str, Any]) -> None:
    """Vectorizers as skl2onnx writes them, with n-grams of words and of characters."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

    kinds = {"count": CountVectorizer, "tfidf": TfidfVectorizer}
    vectorizer = kinds[options["kind"]](**{name: value for name, value in options.items() if name != "kind"})
    wanted = vectorizer.fit_transform(DOCUMENTS).toarray()
    model = convert_sklearn(vectorizer, initial_types=[("x", StringTensorType([None, 1]))])
    (got,) = opbuild.compile(model).run(None, {"x": np.array(DOCUMENTS, object)[:, None]})
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)
