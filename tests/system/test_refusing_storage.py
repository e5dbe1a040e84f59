"""Storage that refuses, at every step that changes it, one after the other: the network is built and runs.

``OPBUILD_TEST_ALL_REFUSALS=1`` refuses each step with each error, not with one, and lets the storage stay so from each
step on, not from each third; ``pytest -s`` prints the figures.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from opbuild.cli.store.bundling import export_cache
from opbuild.config import Config
from opbuild.errors import BuildError, OptionError
from opbuild.offline.build import export
from opbuild.target.host import host_level
from support.refusing_storage import REFUSALS, RefusingStorage, watched
from support.small_network import SHAPE, SmallNetwork

pytestmark = pytest.mark.usefixtures("kept_objects")

ALL = bool(os.environ.get("OPBUILD_TEST_ALL_REFUSALS"))


def refusals(steps: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield each step with an error's number, or with each error's."""
    for number, step in enumerate(steps):
        yield from ((step, code) for code in (REFUSALS if ALL else [REFUSALS[number % len(REFUSALS)]]))


@pytest.mark.slow
@pytest.mark.parametrize("onwards", [False, True])
def test_every_step_of_a_build_may_be_refused(small_network: SmallNetwork, tmp_path: Path, onwards: bool) -> None:
    """Right results, one warning where something is not stored, and the next run is right again (F06, F54, F61)."""
    with small_network.replayed():
        with watched(RefusingStorage(tmp_path / "counted")) as counted:
            small_network.build(tmp_path / "counted")
        lost = refused = 0
        for case, (step, code) in enumerate(refusals(counted.steps[:: 3 if onwards and not ALL else 1])):
            cache = tmp_path / str(case)
            with watched(RefusingStorage(cache, step, onwards=onwards, code=code)) as storage:
                first = small_network.build(cache)
            private = [path for path in cache.rglob(".*") if path.is_file()]
            again = small_network.build(cache)
            not_stored = not again.report.image
            lost += not_stored
            said = (step, storage.steps, first.warnings)
            refused += storage.refused > 0
            assert len(first.warnings) <= 1, said
            assert first.warnings or not not_stored, said
            assert again.warnings == [], said
            assert not private or onwards, (said, private)
            assert again.report.image or small_network.build(cache).report.image, said
    # Two threads may both remember the compiler, or one may find what the other wrote: that step is not always there.
    assert case + 1 - refused <= 8
    print(f"{refused} builds, each with a step refused, {'and all after it' if onwards else 'once'}: all right;")
    print(f"{lost} of them were not stored, and said so once")


def test_nothing_escapes_the_refusals(small_network: SmallNetwork, tmp_path: Path) -> None:
    """What is refused from the first step on leaves nothing behind: every change goes through what is watched."""
    with small_network.replayed(), watched(RefusingStorage(tmp_path / "cache", "mkdir  #1", onwards=True)):
        built = small_network.build(tmp_path / "cache")
    assert built.report.built == 2
    assert len(built.warnings) == 1
    assert not (tmp_path / "cache").exists()


def test_every_step_of_writing_a_file_may_be_refused(small_network: SmallNetwork, tmp_path: Path) -> None:
    """An .om file and a bundle are written whole, or not at all with an error that names the file (F54)."""
    config = Config.from_environment(cache_path=small_network.cache)
    writers: dict[str, Callable[[Path], object]] = {
        "model.om": lambda path: export(small_network.path, path, input_shapes={"x": SHAPE}, config=config),
        "cache.bundle": lambda path: export_cache(path, config, host_level()),
    }
    for name, write in writers.items():
        with small_network.replayed():
            folder = tmp_path / name
            folder.mkdir()
            with watched(RefusingStorage(folder)) as counted:
                write(folder / name)
            whole = (folder / name).read_bytes()
            (folder / name).unlink()
            for step, code in refusals(counted.steps):
                with watched(RefusingStorage(folder, step, code=code)) as storage:
                    error = _error_of(write, folder / name)
                assert name in error or (folder / name).read_bytes() == whole, step
                (folder / name).unlink(missing_ok=bool(error))
                assert storage.refused, step
                assert list(folder.iterdir()) == [], step


def _error_of(write: Callable[[Path], object], path: Path) -> str:
    """Return the message of the error that writing a file raised, or nothing."""
    try:
        write(path)
    except (OptionError, BuildError) as error:
        return str(error)
    return ""
