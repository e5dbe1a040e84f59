"""What becomes of a case: it passes on kernels alone or with the host's help, it is refused, or it is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnx.backend.test.runner import Runner

from conformance.cases import Case
from opbuild import onnx_backend
from opbuild.errors import OpbuildError

COMPILED, HOST, RANDOM, REFUSED, WRONG = STATES = ("compiled", "host", "random", "refused", "wrong")


ROUNDED = {
    **dict.fromkeys(("dft_inverse", "dft_inverse_opset19"), 1e-6),
    **dict.fromkeys(("attention_4d_causal_fp16", "attention_4d_causal_fp16_expanded"), 5e-4),
}
"""Absolute tolerances of cases whose expected values are as far from the true ones: numpy computed them in float32, or
Softmax in float16 throughout."""


AS_FRAMEWORKS: Mapping[str, Any] = {
    "resize_downsample_scales_linear_align_corners": [[[[1.0, 4.0]]]],
    "resize_downsample_scales_cubic_align_corners": [[[[1.0, 2.5, 4.0], [7.0, 8.5, 10.0], [13.0, 14.5, 16.0]]]],
}
"""What torch and ONNX Runtime compute in cases whose expected values are the reference's alone.

See docs/design/meanings.md.
"""


class Outcome(NamedTuple):
    """What became of a case.

    Attributes:
        state: One of ``STATES``.
        operators: The operator types in it.
        host: The types of those that ran on the host.
        reason: Why it was refused, or how it is wrong.
    """

    state: str
    operators: tuple[str, ...]
    host: tuple[str, ...] = ()
    reason: str = ""


def outcome(case: Case, cache: Path) -> Outcome:
    """Run a case and compare what comes out as ONNX's own runner does."""
    found = Outcome(WRONG, case.operators)
    host: set[str] = set()
    try:
        model = onnx_backend.prepare(case.model, cache_path=cache, num_threads=2)
        for given, expected in case.data:
            results = model.run(given)
            host.update(model.network.report.host)
            _compare(case, results, expected)
    except OpbuildError as error:
        return found._replace(state=REFUSED, reason=error.message)
    except AssertionError as error:
        return found._replace(reason=" ".join(str(error).split())[:200])
    except Exception as error:  # what is no error of opbuild's is a crash, whatever it is
        return found._replace(reason=f"crashed: {error!r}"[:200])
    state = RANDOM if case.is_random else HOST if host else COMPILED
    return found._replace(state=state, host=tuple(sorted(host)))


def remembered(found: Mapping[str, Outcome]) -> dict[str, Any]:
    """Return the summary of all cases: the count of each state, and the cases that do not pass compiled."""
    counts = Counter(each.state for each in found.values())
    others = {name: each.state for name, each in found.items() if each.state != COMPILED}
    return {"counts": {state: counts[state] for state in STATES}, "not compiled": others}


def _compare(case: Case, results: tuple[Any, ...], expected: list[Any]) -> None:
    if case.name in AS_FRAMEWORKS:
        expected = [np.float32(AS_FRAMEWORKS[case.name])]
    if not case.is_random:
        _compare_values(expected, results, case.rtol, max(case.atol, ROUNDED.get(case.name, 0.0)))
        return
    for got, wanted in zip(results, expected, strict=True):
        if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
            raise AssertionError(f"{got.dtype}{got.shape} is not {wanted.dtype}{wanted.shape}")


def _compare_values(expected: Any, results: Any, rtol: float, atol: float) -> None:
    """Compare as ONNX's runner, which cannot take apart sequences of scalars; absent optional values are None."""
    for wanted, got in zip(expected, results, strict=True):
        if isinstance(wanted, list):
            _compare_values(wanted, got, rtol, atol)
        elif wanted is not None or got is not None:
            Runner.assert_similar_outputs([wanted], [_as_runner(got)], rtol, atol)


def _as_runner(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic) else value
