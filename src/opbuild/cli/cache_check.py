"""``opbuild cache check``: whether the remote store answers, how fast, and what it can do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import click

from opbuild.cli.cache_options import json_option, locate, print_json, target_options
from opbuild.cli.echoing import echo
from opbuild.cli.options import remote_option
from opbuild.errors import BuildError, OptionError
from opbuild.kernel.reason import Reason


@click.command()
@target_options
@remote_option
@json_option
def check(as_json: bool, **place: Any) -> None:
    """Ask the remote store to read, and where OPBUILD_REMOTE_MODE is write, to write and remove a small object.

    Fails if it refuses, or is slow: builds then go on without it.
    """
    from opbuild.pipeline.setup import set_up
    from opbuild.pipeline.stores import Stores
    from opbuild.store.remote.objects import NAMESPACE
    from opbuild.store.remote.service import described

    config, level = locate(**place)
    remote = Stores(set_up(config, level, None, runs_elsewhere=True)).remote
    if remote is None:
        raise OptionError("there is no remote store", "name one: --remote URL, OPBUILD_REMOTE or op_cache.ini")
    service, path = remote.service, f"{NAMESPACE}check/{os.urandom(8).hex()}"
    steps: list[tuple[str, Callable[[], bytes | Reason | None]]] = [("read", lambda: service.read(path, 64))]
    if remote.writes:
        steps += [("write", lambda: service.write(path, b"check")), ("remove", lambda: service.delete(path))]
    answers = []
    for name, ask in steps:
        started = time.perf_counter()
        problem = ask()
        word = described(problem) if isinstance(problem, Reason) else "ok"
        answers.append((name, "ok" if word.startswith("absent") else word, 1e3 * (time.perf_counter() - started)))
    failed = [(name, word) for name, word, _ in answers if word != "ok"]
    if as_json:
        print_json({"remote": service.address.url, "mode": config.remote_mode,
                    "steps": [{"step": n, "answer": w, "milliseconds": ms} for n, w, ms in answers]})  # fmt: skip
    else:
        echo(f"{service.address.url}, mode {config.remote_mode}")
        for name, word, milliseconds in answers:
            echo(f"{name:<7} {word} ({milliseconds:.1f} ms)")
    if failed:
        name, word = failed[0]
        raise BuildError(f"the remote store can not be used to {name}: {word}", "builds go on without it")
