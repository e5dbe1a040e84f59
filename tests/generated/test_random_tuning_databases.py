"""Random tuning databases: the stored network that they choose without lowering is that of lowering."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from opbuild.families.family import TuningQuery
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.kernel.networks import Answers, answers_from_json, answers_to_json, digest_of
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.lowering.tuned import LoweringQuery, NoTuning, Tuned
from opbuild.pipeline.tuned import ApplicableRecords
from opbuild.store.tuning_database import TuningRecord
from opbuild.target.level import BY_NAME
from support.fuzzing import INPUTS, SEED
from support.seeds import try_seeds
from support.tuned_records import record

LEVEL = BY_NAME["x86-64-v3"]
SOURCES = "of now"

Records = dict[TuningQuery, TuningRecord]

Lacking = tuple[TuningQuery, Any]
"""An answer whose kernel does not come with the release."""


@cache
def network() -> Graph:
    """Return a convolution that Winograd's may serve, or the direct one if that is told so, a product and a softmax."""
    shapes = {"x": (1, 16, 14, 14), "h": (1, 16, 14, 14), "flat": (1, 3136), "p": (1, 64), "y": (1, 64)}
    weights = {"w": np.ones((16, 16, 3, 3), np.float32), "m": np.ones((3136, 64), np.float32)}
    types = {name: TensorType("float32", shape) for name, shape in shapes.items()}
    types |= {name: TensorType("float32", each.shape) for name, each in weights.items()}
    nodes = (
        Node("Conv", ("x", "w"), ("h",), {"pads": [1, 1, 1, 1]}, name="conv"),
        Node("Flatten", ("h",), ("flat",), name="flat"),
        Node("MatMul", ("flat", "m"), ("p",), name="product"),
        Node("Softmax", ("p",), ("y",), {"axis": -1}, name="scores"),
    )
    return Graph("network", nodes, ("x",), ("y",), types, weights)


@cache
def askable() -> dict[TuningQuery, LoweringQuery]:
    """Return all that lowering may ask: what it asks next where the first answer is that another family serves too."""
    asked = dict(lowered(NoTuning()).queries)
    for query, each in list(asked.items()):
        for candidate in each.candidates:
            said = record(query, each.default, candidate, sources=SOURCES, level=LEVEL.name)
            asked |= lowered(ApplicableRecords({query: said}, lambda _: SOURCES)).queries
    return asked


def lowered(known: Any, withheld: Sequence[Lacking] = ()) -> Tuned:
    """Return the queries of lowering, with their answers."""
    found = Tuned(known, withheld)
    lower(network(), LEVEL, Options(chooser=found))
    return found


def some_records(draw: random.Random) -> Records:
    """Return records of some queries, some others of their buckets, of choices some of which no family names."""
    found: Records = {}
    for query, asked in askable().items():
        if draw.random() < 0.5:
            continue
        near = query.arguments.replace("14", "15") if draw.random() < 0.3 else query.arguments
        choice = draw.choice([*asked.candidates, {"no": 1}, asked.default])
        sources = draw.choice([SOURCES, SOURCES, SOURCES, "older"])
        about = {"sources": sources, "level": LEVEL.name}
        found[TuningQuery(query.family, near)] = record(TuningQuery(query.family, near), asked.default, choice, **about)
    return found


def made(known: ApplicableRecords, lacking: Sequence[Lacking]) -> Answers:
    """Return the answers by which a machine makes the network, where the pack lacks the kernels of some of them."""
    withheld: list[Lacking] = []
    while True:
        found = lowered(known, withheld)
        taken = [(q, each.answer) for q, each in found.queries.items() if each.origin and each.is_shipped]
        more = [each for each in taken if each in lacking]
        if not more:
            return found.answers()
        withheld += more


def one(seed: int) -> tuple[str, str]:
    """Let machines make the network, and each look for its own among what the others made, without lowering."""
    draw = random.Random(seed)
    lacking = [(q, each) for q, asked in askable().items() for each in asked.candidates if draw.random() < 0.3]
    machines = [ApplicableRecords(some_records(draw), lambda _: SOURCES, some_records(draw)) for _ in range(4)]
    stored = [made(known, lacking) for known in machines]
    read = [answers_from_json(answers_to_json(each)) for each in stored]
    found = 0
    for known, own in zip(machines, stored, strict=True):
        taken = [each for each in read if known.comes_to(each, with_pack=True)]
        for each in taken:  # what somebody built for it is there, whatever the release lacks
            there = [(TuningQuery(*asked[:2]), asked.choice) for asked in each]
            right = made(known, [answer for answer in lacking if answer not in there])
            if digest_of(each) != digest_of(right):
                return "wrong", f"{digest_of(each)} is taken for {digest_of(right)}"
        if digest_of(own) not in map(digest_of, taken):
            return "wrong", "a machine does not find what it made"
        found += len(taken) - 1
    return ("shared" if found else "apart"), ""


def test_a_network_that_is_found_without_lowering_is_the_one_that_lowering_makes() -> None:
    """By records of the very query or of its bucket, stale ones, illegal ones, and what the release withholds."""
    tally = try_seeds("networks of random banks", one, range(SEED, SEED + INPUTS))
    assert not tally.faults, tally.faults
    assert tally.outcomes["shared"]
    assert tally.outcomes["apart"]


def test_who_answers_and_where_is_not_in_the_digest() -> None:
    """The families' own answers have none, whoever said so; of others it has queries and choices alone."""
    (query, asked), *_ = ((q, each) for q, each in askable().items() if len(each.candidates) > 1)
    other = next(each for each in asked.candidates if each != asked.default)
    about = {"sources": SOURCES, "level": LEVEL.name}
    first = record(query, asked.default, other, machine="128GF/L1", date="2026-11-01", **about)
    second = record(query, asked.default, other, machine="512GF/L1", system="elsewhere", **about)
    none = record(TuningQuery("conv", "[1]"), {}, {"tile": 1}, **about)
    digests = [
        digest_of(
            lowered(ApplicableRecords(dict.fromkeys([TuningQuery(*each[:2])], each[2]), lambda _: SOURCES)).answers()
        )
        for each in ((*query, first), (*query, second), (*TuningQuery("conv", "[1]"), none))
    ]
    assert digests[0] == digests[1] != ""
    assert digests[2] == digest_of(lowered(NoTuning()).answers()) == ""
