"""Running a part of a test in a fork, so that limits, mounts and users that it changes end with it."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import subprocess
import traceback
from collections.abc import Callable
from typing import Any

_CLONE_NEWNS = 0x20000


class CanNotBeSetUpError(Exception):
    """The system does not allow what a test needs; the test is skipped."""


def in_fork(work: Callable[[], Any], seconds: int = 60) -> Any:
    """Return what a function returns in a fork of this process, as JSON carries it.

    Args:
        work: The function.
        seconds: After which the fork is ended, with a traceback of where it is.

    Raises:
        CanNotBeSetUpError: If the function raises it.
        AssertionError: If it raises anything else, or the fork ends otherwise.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(seconds, exit=True)
        os.close(read)
        try:
            said = {"result": work()}
        except CanNotBeSetUpError as error:
            said = {"skip": str(error)}
        except BaseException:
            said = {"error": traceback.format_exc()}
        with os.fdopen(write, "w") as file:
            json.dump(said, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    status = os.waitpid(child, 0)[1]
    assert text, f"the fork ended with status {status}"
    said = json.loads(text)
    if "skip" in said:
        raise CanNotBeSetUpError(said["skip"])
    assert "error" not in said, said["error"]
    return said["result"]


def own_mounts() -> None:
    """Let this process, a fork, have mounts of its own.

    Raises:
        CanNotBeSetUpError: If it may not.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        raise CanNotBeSetUpError("mounts need root")
    mount("--make-rprivate", "/")


def mount(*arguments: str) -> None:
    """Run the program ``mount``.

    Raises:
        CanNotBeSetUpError: If it fails.
    """
    try:
        subprocess.run(["mount", *arguments], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CanNotBeSetUpError(f"mount {' '.join(arguments)}: {error}") from error
