"""Executors by the names that ``--executor`` takes: Dask's, and processes of this host."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from opbuild.errors import OptionError

PROCESSES, DASK = "processes", "dask://"
FORMS = f"give {PROCESSES}, or the address of a Dask scheduler: {DASK}HOST:PORT, dask+tls://HOST:PORT"

CONNECT_SECONDS = 10
"""How long a scheduler may take to answer."""

_ADDRESSES = {DASK: "tcp://", "dask+tls://": "tls://"}
"""What an address begins with here, and for Dask, whose own configuration has the certificates."""


class DaskExecutor(Executor):
    """A Dask cluster as an executor that says how many tasks its workers take at once."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._tasks = client.get_executor(pure=False)  # a batch that was lost is another task when it is tried again

    @property
    def num_workers(self) -> int:
        """The threads of all workers."""
        return sum(self._client.nthreads().values())

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a task."""
        future: Future[Any] = self._tasks.submit(function, *args, **kwargs)
        return future


@contextmanager
def executor_named(text: str, workers: int) -> Iterator[Executor]:
    """Open the executor that ``--executor`` names; of processes of this host there are ``workers``."""
    if text == PROCESSES:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            yield pool
        return
    known = next((prefix for prefix in _ADDRESSES if text.startswith(prefix) and text != prefix), None)
    if known is None:
        raise OptionError(f"--executor is {text!r}", FORMS)
    with _client(_ADDRESSES[known] + text.removeprefix(known)) as client:
        yield DaskExecutor(client)


def _client(address: str) -> Any:
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise OptionError(f"Dask cannot be loaded: {error}", "pip install 'opbuild[dask]'") from error
    try:
        return distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        message = f"no Dask scheduler answers at {address}: {error}"
        raise OptionError(message, "start one and its workers: 'dask scheduler', 'dask worker ADDRESS'") from error
