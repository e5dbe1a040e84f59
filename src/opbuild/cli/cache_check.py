"""``opbuild cache check``: whether the remote store answers, its abilities, and whether all in it is sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from opbuild.cli.cache_options import json_option, locate, print_json, target_options
from opbuild.cli.echoing import echo
from opbuild.cli.options import remote_option
from opbuild.errors import BuildError, OptionError

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
    from opbuild.cache.sharing import asked, named_remote
    from opbuild.cli.cache_clean import verify_place

    config, level = locate(**place)
    remote = named_remote(config, level, reads_all=repair)
    if remote is None and repair:
        return verify_place(config, repair=True, as_json=as_json)
    if remote is None:
        raise OptionError("there is no remote store", "name one: --remote URL, OPBUILD_REMOTE or op_cache.ini")
    if repair:
        return _repair(remote, as_json)
    steps, url = asked(remote), remote.service.address.url
    if as_json:
        print_json({"remote": url, "mode": config.remote_mode,
                    "steps": [{"step": n, "answer": w, "milliseconds": ms} for n, w, ms in steps]})  # fmt: skip
    else:
        echo(f"{url}, mode {config.remote_mode}")
        for name, word, milliseconds in steps:
            echo(f"{name:<7} {word} ({milliseconds:.1f} ms)")
    failed = next((step for step in steps if step.answer != "ok"), None)
    if failed is not None:
        message = f"the remote store cannot be used to {failed.name}: {failed.answer}"
        raise BuildError(message, "builds go on without it")
    return 0


def _repair(remote: Remote, as_json: bool) -> int:
    """Look at everything, remove damaged objects, and tell which; return the exit code."""
    from opbuild.cache.sharing import RemoteCheck
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
