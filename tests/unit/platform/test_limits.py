"""Errors that come from a limit name it, with its value and what to do; all others stay as they are."""

from __future__ import annotations

import errno
import resource
import signal

import pytest

from opbuild.errors import BuildError, ModelError
from opbuild.platform.limits import hint_for, hint_for_signal, named, names_limits, suspected
from support.forked import in_fork


@pytest.mark.parametrize(
    ("error", "flag"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "-n"),
        (OSError(errno.EFBIG, "File too large"), "-f"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "-u"),
        (RuntimeError("can't start new thread"), "-u"),
        (MemoryError(), "memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory"),
        (ImportError("libx.so: failed to map segment from shared object"), "memory"),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value)[:20],
)
def test_what_the_system_refuses_names_the_limit(error: Exception, flag: str) -> None:
    """The flag of ``ulimit`` that raises it, in an error of opbuild (F06, F65)."""
    assert flag in hint_for(error)
    with pytest.raises(BuildError, match="it cannot be built") as caught, named(BuildError, "it cannot be built"):
        raise error
    assert flag in caught.value.hint


def test_the_cause_of_an_error_counts_too() -> None:
    """A library that wraps what the system said hides nothing."""

    @names_limits(BuildError, "it")
    def fail() -> None:
        try:
            raise OSError(errno.EMFILE, "Too many open files")
        except OSError as error:
            raise RuntimeError("it did not work") from error

    with pytest.raises(BuildError) as caught:
        fail()
    assert "ulimit -n" in caught.value.hint


@pytest.mark.parametrize("error", [ValueError("x"), OSError(errno.ENOENT, "gone"), ModelError("bad"), KeyError("k")])
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    """Nothing is blamed on a limit that has nothing to do with it."""

    @names_limits(BuildError, "it")
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        fail()
    assert caught.value is error


def test_signals_of_limits_are_known() -> None:
    """A linker that is ended by SIGXFSZ says nothing; a crash is no limit's."""
    assert "ulimit -f" in hint_for_signal(signal.SIGXFSZ)
    assert "ulimit -t" in hint_for_signal(signal.SIGXCPU)
    assert hint_for_signal(signal.SIGSEGV) == ""


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_folder_that_compilers_need_is_suspected(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose root is read-only."""
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert suspected() == "little is allowed here: give /tmp a volume that can be written"


def test_only_low_limits_are_suspected() -> None:
    """Where all is as usual a crash is a crash."""

    def low() -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10240, 10240))
        resource.setrlimit(resource.RLIMIT_STACK, (512 * 1024, 512 * 1024))
        return suspected()

    said = in_fork(low)
    assert "ulimit -f, now 10 KB" in said
    assert "ulimit -s, now 512 KB" in said
    assert "ulimit -v" not in said
