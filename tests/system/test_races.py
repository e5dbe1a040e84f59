"""Races, counted: two writers of one key, and a bundle that is imported while operators are compiled.

The suite runs some hundred rounds of each, ``make campaign`` a thousand and more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from opbuild.kernel.interfaces import Found, Missing
from opbuild.store.operators import operators_in
from support.fake_compiler import fake_object
from support.fuzzing import CAMPAIGN
from support.samples import conv, entry_of, key_of

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []

ROUNDS = max(CAMPAIGN, 200)

IMPORTS = max(CAMPAIGN, 50)
"""Rounds of importing beside compiling, a few milliseconds each; 1,000 take ten seconds."""


@pytest.mark.slow
def test_two_writers_of_one_key_leave_one_writers_entry_or_a_miss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rounds in lockstep, each writer with bytes of its own: never a mixed entry (F11, F13)."""
    key = key_of(conv())
    entries = {
        (writer, parity): entry_of(conv(), code=(writer * 40 + str(parity)).encode(), milliseconds=float(parity))[1]
        for writer in "ab"
        for parity in (0, 1)
    }
    whole = {(entry.object, entry.milliseconds) for entry in entries.values()}
    assert len(whole) == 4
    barrier = threading.Barrier(3)
    problems: list[str] = []

    def write(writer: str) -> None:
        store = operators_in(tmp_path)
        for number in range(ROUNDS):
            barrier.wait()
            problems.extend(filter(None, [store.publish(entries[writer, number % 2])]))
            barrier.wait()

    threads = [threading.Thread(target=write, args=(writer,), daemon=True) for writer in "ab"]
    for thread in threads:
        thread.start()
    store, found, codes = operators_in(tmp_path), 0, set()
    for _ in range(ROUNDS):
        barrier.wait()
        during = store.lookup(key)
        barrier.wait()
        for answer in (during, store.lookup(key)):
            if isinstance(answer, Found):
                found += 1
                assert (answer.entry.object, answer.entry.milliseconds) in whole
            else:
                assert isinstance(answer, Missing)
                codes.add(answer.reason.code)
    for thread in threads:
        thread.join()
    assert problems == []
    assert found > 0
    assert codes <= {"absent", "incomplete", "damaged"}
    assert fake_object(b"a" * 40 + b"0", (key.symbol,)) in {each for each, _ in whole}
    with capsys.disabled():
        print(f"\n{ROUNDS} rounds of two writers: {found} look-ups found a whole entry, {2 * ROUNDS - found} none")


IMPORTING = f"""
import json, sys, threading
sys.path[:0] = {sys.path!r}
from pathlib import Path
from unittest import mock
from support.fake_compiler import fake_object
from opbuild.builder import build
from opbuild.builder.build import Builder
from opbuild.builder.client import IdleServer
from opbuild.cli.store.bundling import export_cache, import_bundle
from opbuild.config import Config
from opbuild.platform.digest import sha256
from opbuild.kernel.opdesc import OpDesc
from opbuild.store.claims import FolderClaims
from opbuild.store.operators import operators_in
from support.samples import LEVEL, conv, delivered, disk_builder, needed

class Instant:
    alive, worked, kind = True, True, None
    def __init__(self):
        self.answers = []
    def send(self, request):
        desc = OpDesc.from_components(request["desc"])
        self.answers.append(delivered(request, fake_object(desc.canonical().encode(), (request["symbol"],))))
    def receive(self, timeout=None):
        answers, self.answers = self.answers, []
        return answers
    def close(self):
        pass

build.IDLE_SERVER = mock.Mock(start=lambda *arguments: Instant())
base, rounds = Path(sys.argv[1]), int(sys.argv[2])
config = Config(cache_path=base, workers=1)
wanted = needed(conv(1))
with disk_builder(config) as builder:
    expected = [entry.sha256 for entry in builder.build(wanted, "net").entries.values()]
export_cache(base / "bundle", config, LEVEL)
go, done, added, built, failures = threading.Barrier(2), threading.Barrier(2), 0, 0, []

def importing():
    global added
    for _ in range(rounds):
        go.wait()
        try:
            added += import_bundle(base / "bundle", config, LEVEL).operators
        except BaseException as error:
            failures.append(repr(error))
        done.wait()

thread = threading.Thread(target=importing, daemon=True)
thread.start()
store = operators_in(config.kernel_meta)
with disk_builder(config, claims=FolderClaims(base / "claims")) as builder:
    for _ in range(rounds):
        for name in store.names():
            store.blobs.delete(name + '.json', name + '.o', name + '.info')
        go.wait()
        result = builder.build(wanted, "net")
        built += result.built
        assert [entry.sha256 for entry in result.entries.values()] == expected
        done.wait()
thread.join()
print(json.dumps([added, built, failures]))
"""


def test_a_bundle_is_imported_while_the_same_operators_are_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On two threads of one process, round after round: equal results, no exception, no crash (F23)."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", IMPORTING, str(tmp_path), str(IMPORTS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    added, built, failures = json.loads(done.stdout)
    assert failures == []
    assert 0 < built <= IMPORTS
    with capsys.disabled():
        print(f"\n{IMPORTS} rounds of import beside compile: {added} entries imported, {built} compiled, 0 failures")
