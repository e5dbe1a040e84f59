"""``opbuild cache check``: whether the remote store answers, what it can do, and whether all in it is sound."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from opbuild.cli.cache_options import json_option, locate, print_json, target_options
from opbuild.cli.echoing import echo
from opbuild.cli.options import remote_option
from opbuild.errors import BuildError, OptionError
from opbuild.kernel.reason import Reason

if TYPE_CHECKING:
    from opbuild.pipeline.remote import Remote


@click.command()
@click.option(
    "--repair", is_flag=True, help="Read all of it, and remove what is damaged; without one, 'cache verify --repair'."
)
@target_options
@remote_option
@json_option
def check(repair: bool, as_json: bool, **place: Any) -> int:
    """Ask the remote store to read, and where OPBUILD_REMOTE_MODE is write, to write and remove a small object.

    Fails if it refuses, is slow, or others can write to its folder: builds then go on without it. With --repair exits
    with 1 if something is damaged and stays.
    """
    from opbuild.cli.cache_clean import verify_place
    from opbuild.pipeline.remote import remote_for_transfer
    from opbuild.pipeline.setup import set_up
    from opbuild.pipeline.stores import Stores
    from opbuild.store.remote.objects import NAMESPACE
    from opbuild.store.remote.service import described

    config, level = locate(**place)
    stores = Stores(set_up(config, level, None, runs_elsewhere=True))
    remote = stores.remote
    if remote is None and repair:
        return verify_place(config, repair=True, as_json=as_json)
    if remote is None:
        raise OptionError("there is no remote store", "name one: --remote URL, OPBUILD_REMOTE or op_cache.ini")
    if repair:
        return _repair(remote_for_transfer(config.remote or stores.policy.remote, stores.setup), as_json)
    service, path, objects = remote.service, f"{NAMESPACE}check/{os.urandom(8).hex()}", remote.objects
    steps: list[tuple[str, Callable[[], bytes | Reason | None]]] = [
        ("read", lambda: objects.problem(path) or service.read(path, 64))
    ]
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
    return 0


def _repair(remote: Remote, as_json: bool) -> int:
    """Look at everything, remove what is damaged, and tell what; return the exit code."""
    from opbuild.cache.remote_check import RemoteCheck
    from opbuild.cli.count_progress import count_progress
    from opbuild.store.remote.objects import NAMESPACE

    checked, found, removed = RemoteCheck(remote), [], 0
    with count_progress("checking", "checked", "the rest was not looked at") as count:
        for problem in checked.problems(count):
            found.append(problem)
            removed += checked.repair(problem)
            if not as_json:
                echo(f"{problem.path.removeprefix(NAMESPACE)}: {problem.reason.text}")
    total = count.total or 0
    if as_json:
        damaged = [{"path": each.path, "code": each.reason.code, "why": each.reason.text} for each in found]
        print_json({"remote": remote.service.address.url, "checked": total, "damaged": damaged, "removed": removed})
    else:
        left = f", {len(found) - removed} not removed" if removed < len(found) else " and removed" if removed else ""
        echo(f"{remote.service.address.url}: {total} checked, {len(found)} damaged{left}")
    return 1 if removed < len(found) else 0
