"""Running a part of a test in a fork, so that limits, mounts and users that it changes end with it, and it may die."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

_CLONE_NEWNS = 0x20000


class CanNotBeSetUpError(Exception):
    """The system does not allow what a test needs; the test is skipped."""


def forked(work: Callable[[int], object], seconds: float = 60) -> tuple[int, bytes]:
    """Let a fork of this process work; return how it ended, as ``os.waitpid`` has it, and what it wrote to its pipe.

    It ends with status 1 where the work raises something, which is printed; it has no thread but that of the work.

    Args:
        work: Takes the pipe's descriptor.
        seconds: After which the fork is ended by ``SIGALRM``, with a traceback of where it is.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(read)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            faulthandler.register(signal.SIGALRM, sys.__stderr__, chain=True)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            work(write)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    return os.waitpid(child, 0)[1], said


def in_fork(work: Callable[[], Any], seconds: float = 60) -> Any:
    """Return the result of a function in a fork of this process, as JSON carries it.

    Args:
        work: The function.
        seconds: After which the fork is ended, with a traceback of where it is.

    Raises:
        CanNotBeSetUpError: If the function raises it.
        AssertionError: If it raises anything else, or the fork ends otherwise.
    """

    def report(pipe: int) -> None:
        try:
            said = {"result": work()}
        except CanNotBeSetUpError as error:
            said = {"skip": str(error)}
        except BaseException:
            said = {"error": traceback.format_exc()}
        with os.fdopen(pipe, "w", closefd=False) as file:
            json.dump(said, file)

    status, text = forked(report, seconds)
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
