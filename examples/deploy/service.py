"""What the servers beside this file serve: a network, built once in a process, before its first request.

``MODEL`` names the file. It has one input, whose first dimension is the batch. Requests and answers are arrays, as
numpy's ``.npy`` files.
"""

from __future__ import annotations

import io
import os

import numpy as np

import opbuild
from opbuild.errors import InputError

network = opbuild.compile(os.environ["MODEL"])


def first_call() -> None:
    """Call the network with a batch of one, so that no request waits for what a first call does."""
    [declared] = network.inputs
    network(np.zeros([max(1, extent) for extent in declared.shape], declared.dtype))


def answer(body: bytes) -> tuple[int, bytes]:
    """Return the status and the body of the answer to a request's body."""
    try:
        result = network(np.load(io.BytesIO(body), allow_pickle=False))
    except (InputError, ValueError, EOFError) as error:
        return 400, str(error).encode()
    file = io.BytesIO()
    np.save(file, result)
    return 200, file.getvalue()


def health() -> bytes:
    """Return which process this is, and what it built and reused, for a probe: it answers where requests are."""
    return f"{os.getpid()}: {network.report!r}, {network.report.pending} pending\n".encode()


first_call()
