"""Metrics: what this process has counted, by stable names, and as a collector for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from opbuild.events import counts

if TYPE_CHECKING:
    from prometheus_client.core import Metric

COUNTERS: Mapping[str, str] = {
    "builds": "Builds of operators that ended",
    "build_seconds": "Seconds of these builds, from their beginning to their end",
    "operators_built": "Operators that were compiled here",
    "operators_failed": "Operators that could not be compiled",
    "operators_reused": "Operators of builds and of stored networks that need not be compiled",
    "operators_from_pack": "Those of builds that came from the pack",
    "operators_from_remote": "Those of builds that came from the remote store",
    "compile_seconds": "Seconds of compiling operators, summed over those that were compiled at once",
    "built_bytes": "Bytes of operators that were compiled",
    "reused_bytes": "Bytes of operators that builds reused",
    "networks_loaded": "Networks that were loaded as they were stored",
    "networks_from_remote": "Networks that came whole from the remote store",
    "bindings_stored": "Sizes that a network was made ready for as it was stored",
    "bindings_by_numbers": "Sizes that a network was made ready for by the numbers of a program for many sizes",
    "bindings_built": "Sizes that a network was built for",
    "bind_seconds": "Seconds of making networks ready for sizes",
    "first_answers": "Sizes whose first calls other kernels compute, until the network's own are compiled",
    "first_answer_seconds": "Seconds until a network was ready so",
    "fallbacks": "Calls that numpy computes, of all sizes that networks were made ready for",
    "remote_requests": "Requests to remote stores",
    "remote_errors": "Requests to remote stores that failed",
    "remote_seconds": "Seconds of requests to remote stores",
    "remote_read_bytes": "Bytes of contents that came from remote stores",
    "remote_written_bytes": "Bytes of contents that were sent to remote stores",
    "warnings": "Warnings",
}
"""The metrics that only grow, with what they are for people. Names end with the unit, if it is not a number."""

GAUGES: Mapping[str, str] = {"operators_pending": "Operators that builds under way have yet to compile"}
"""Those that also fall."""


def metrics() -> dict[str, float]:
    """Return the counts of this process by name; a fork begins with none.

    Names are stable. Those that end with ``_seconds`` or ``_bytes`` are so; all others are numbers of things. All but
    ``operators_pending`` only grow.
    """
    found = counts()
    return {name: found.get(name, 0) for name in (*COUNTERS, *GAUGES)}


class PrometheusCollector:
    """The metrics of this process, for ``prometheus_client``: ``REGISTRY.register(opbuild.PrometheusCollector())``.

    Their names begin with ``opbuild_``, and those of counters end with ``_total``.
    """

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its present value."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        found = metrics()
        for name, text in COUNTERS.items():
            yield CounterMetricFamily(f"opbuild_{name}", text, value=found[name])
        for name, text in GAUGES.items():
            yield GaugeMetricFamily(f"opbuild_{name}", text, value=found[name])
