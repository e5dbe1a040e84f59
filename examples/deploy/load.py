"""Loads a server with a number of requests from several threads; counts errors and wrong answers, and times requests.

Each request is a batch of one to eight rows of an array, whose right answers are the same rows of another; each is a
connection of its own. The exit code is 1 if anything went wrong.

    python load.py http://127.0.0.1:8000/ --rows x.npy --answers y.npy
    python load.py http://127.0.0.1:8000/v2/models/opbuild/infer --as v2 --rows x.npy --answers y.npy
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

LARGEST = 8
"""Rows of a request."""
TIMEOUT = 60
"""Seconds after which an answer counts as lost."""
KINDS = {"b": "INT", "i": "INT", "u": "UINT", "f": "FP"}
"""Letters of numpy's element types, as the Open Inference Protocol begins their names."""


@dataclass(frozen=True)
class Form:
    """How arrays are written into requests and read from answers."""

    content: str
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


def _npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _v2(array: Any) -> bytes:
    dtype = f"{KINDS[array.dtype.kind]}{array.dtype.itemsize * 8}"
    tensor = {"name": "x", "shape": array.shape, "datatype": dtype, "data": array.ravel().tolist()}
    return json.dumps({"inputs": [tensor]}).encode()


def _from_v2(body: bytes) -> Any:
    [tensor] = json.loads(body)["outputs"]
    return np.array(tensor["data"]).reshape(tensor["shape"])


FORMS = {
    "npy": Form("application/octet-stream", _npy, lambda body: np.load(io.BytesIO(body))),
    "json": Form(
        "application/json", lambda x: json.dumps({"x": x.tolist()}).encode(), lambda y: np.array(json.loads(y))
    ),
    "v2": Form("application/json", _v2, _from_v2),
}
"""numpy's files, BentoML's JSON, and the Open Inference Protocol of Triton and KServe, where the input's name is x."""


@dataclass
class Load:
    """Requests to a server, and what became of them.

    Attributes:
        url: Of the server, with the path.
        form: A name in ``FORMS``.
        rows: What batches are taken from.
        answers: The right answer to each row.
        outcomes: How many requests had which: ``right``, ``wrong``, or an error.
        seconds: Of each request that was answered.
    """

    url: str
    form: Form
    rows: Any
    answers: Any
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def run(self, requests: int, threads: int) -> float:
        """Send a number of requests; return the seconds that all took."""
        begin = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            for outcome, seconds in pool.map(self._request, range(requests)):
                self.outcomes[outcome] += 1
                self.seconds += [seconds] if outcome == "right" else []
        return time.perf_counter() - begin

    def _request(self, number: int) -> tuple[str, float]:
        size = 1 + number % min(LARGEST, len(self.rows))
        first = number % (len(self.rows) - size + 1)
        begin = time.perf_counter()
        try:
            result = self._answer(self.rows[first : first + size])
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            return f"{type(error).__name__}: {error}", 0.0
        right = self.answers[first : first + size]
        close = result.shape == right.shape and np.allclose(result, right, rtol=1e-4, atol=1e-6)
        return "right" if close else "wrong", time.perf_counter() - begin

    def _answer(self, batch: Any) -> Any:
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT)
        try:
            connection.request("POST", parts.path, self.form.write(batch), {"Content-Type": self.form.content})
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"status {response.status}")
        return self.form.read(body)


def main() -> int:
    """Send the requests that the arguments say, print what became of them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--rows", type=Path, required=True, help="an array, .npy")
    parser.add_argument("--answers", type=Path, required=True, help="the right answers to its rows, .npy")
    parser.add_argument("--as", dest="form", choices=FORMS, default="npy")
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--threads", type=int, default=8)
    given = parser.parse_args()
    load = Load(given.url, FORMS[given.form], np.load(given.rows), np.load(given.answers))
    elapsed = load.run(given.requests, given.threads)
    for outcome, count in load.outcomes.most_common():
        print(f"{count:8} {outcome}")
    if load.seconds:
        half, most, nearly_all = np.percentile(load.seconds, [50, 95, 99]) * 1e3
        print(f"{given.requests / elapsed:.0f} requests a second")
        print(f"half take up to {half:.1f} ms, 95% {most:.1f}, 99% {nearly_all:.1f}")
    return int(load.outcomes["right"] != given.requests)


if __name__ == "__main__":
    sys.exit(main())
