"""Ranks share what any of them built: each operator is compiled once a job, and every rank ends with its own copy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from opbuild.builder.build import Builder
from opbuild.builder.job import BuildResult
from opbuild.config import Config
from opbuild.kernel.interfaces import Found
from opbuild.kernel.opdesc import OpDesc
from opbuild.store.claims import FolderClaims
from opbuild.store.operators import operators_in
from opbuild.store.peers import Peers, announce, claims_folder
from opbuild.store.tiers import rank_stores
from support.fake_compiler import FakeCompiler
from support.networks import bert
from support.processes import environment
from support.samples import LEVEL, Recorder, conv, needed

WANTED = tuple(conv(tile) for tile in range(6))


def rank_builder(config: Config) -> Builder:
    """Return a rank's builder with the fake compiler."""
    operators, runtimes = rank_stores(config, lambda folder: operators_in(folder, config.device_id))
    claims = FolderClaims(claims_folder(config), config.rank_id)
    return Builder(operators, FakeCompiler(), LEVEL, config, Recorder(), runtime_store=runtimes, claims=claims)


def build(config: Config, *descs: OpDesc) -> BuildResult:
    """Build operators as one rank."""
    with rank_builder(config) as builder:
        return builder.build(needed(*descs), "net")


def files(config: Config) -> dict[str, int]:
    """Return the names of the files that a rank's kernel_meta holds, with their inodes."""
    return {path.name: path.stat().st_ino for path in config.kernel_meta.iterdir()}


@pytest.fixture
def ranks(config: Config) -> list[Config]:
    """Four ranks of one base folder, on devices of their own."""
    return [replace(config, rank_id=rank, rank_size=4, device_id=rank) for rank in range(4)]


def test_each_rank_ends_with_its_own_complete_folder(ranks: list[Config]) -> None:
    """Only the first compiles; the others link its files, and each says from which rank an operator is (F63, F64)."""
    results = [build(config, *WANTED) for config in ranks]
    assert [result.built for result in results] == [6, 0, 0, 0]
    assert [result.shared for result in results] == [0, 6, 6, 6]
    assert all(files(config) == files(ranks[0]) for config in ranks[1:])
    assert len(files(ranks[0])) == 18
    assert {str(decision.reason) for decision in results[1].decisions} == {"taken from rank 0"}
    assert {decision.reason.code for decision in results[1].decisions} == {"shared"}
    assert [build(config, *WANTED).shared for config in ranks] == [0, 0, 0, 0]


def test_what_some_ranks_lost_is_taken_from_the_others(ranks: list[Config]) -> None:
    """A folder deleted, half of another, and each rank of the rest lacking something: nothing is compiled (F63)."""
    for config in ranks:
        build(config, *WANTED)
    complete = set(files(ranks[0]))
    shutil.rmtree(ranks[2].cache_folder)
    for number, name in enumerate(sorted(complete)):
        if number % 2:
            (ranks[1].kernel_meta / name).unlink()
        if number < 6:
            (ranks[3].kernel_meta / name).unlink()
    assert [build(config, *WANTED).built for config in ranks] == [0, 0, 0, 0]
    assert all(set(files(config)) == complete for config in ranks)


def test_ranks_find_each_other_without_a_job(ranks: list[Config]) -> None:
    """Folders named rank_<id> side by side are enough, also for a rank that says nothing of a job."""
    build(ranks[0], *WANTED)
    alone = replace(ranks[3], rank_size=1)
    assert build(alone, *WANTED).built == 0


def test_folders_of_devices_find_each_other(config: Config) -> None:
    """device<k>/rank_<k> is found beside device<j>/rank_<j>, and claims are common to all."""
    ranks = [replace(config, cache_path=config.cache_path / f"device{rank}", rank_id=rank) for rank in range(2)]
    assert claims_folder(ranks[0]) == claims_folder(ranks[1]) == config.cache_path / ".opbuild_claims"
    build(ranks[0], *WANTED)
    assert build(ranks[1], *WANTED).shared == 6
    assert [str(peer) for peer in Peers(ranks[0])()] == ["rank 1"]


def test_a_job_finds_folders_anywhere(config: Config, tmp_path: Path) -> None:
    """Ranks that keep their caches in unrelated places find each other through the job's folder."""
    job = tmp_path / "job"
    ranks = [replace(config, cache_path=tmp_path / f"c{rank}" / "x", rank_id=rank, job_folder=job) for rank in range(2)]
    assert claims_folder(ranks[1]) == job / "claims"
    for rank in (*ranks, *ranks):
        announce(rank)
    build(ranks[0], *WANTED)
    assert json.loads((job / "stores" / "0").read_bytes()) == [[str(ranks[0].kernel_meta), str(ranks[0].network_meta)]]
    assert build(ranks[1], *WANTED).shared == 6


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'[["a", "b"]]', b'[["/\\u0000", "/b"]]', b"[" * 100_000])
def test_what_a_job_says_is_not_believed_blindly(config: Config, tmp_path: Path, content: bytes) -> None:
    """A file of the job's folder that is no list of pairs of absolute paths names no peer (F58)."""
    job = tmp_path / "job"
    (job / "stores").mkdir(parents=True)
    (job / "stores" / "1").write_bytes(content)
    assert Peers(replace(config, job_folder=job))() == ()


def test_ranks_share_what_is_equal_and_nothing_else(ranks: list[Config]) -> None:
    """Different networks: a rank takes the operators that both need, and its folder holds only its own network's."""
    build(ranks[0], conv(0), conv(1), conv(2))
    result = build(ranks[1], conv(2), conv(3))
    assert [decision.outcome for decision in result.decisions] == ["shared", "built"]
    assert len(files(ranks[1])) == 6


def test_a_peers_entry_is_checked_like_ones_own(ranks: list[Config]) -> None:
    """What is damaged, or what others can write to, is not taken from a peer (F58)."""
    build(ranks[0], conv(0), conv(1), conv(2))
    objects = sorted(ranks[0].kernel_meta.glob("*.o"))
    objects[0].write_bytes(b"")
    objects[1].chmod(0o666)
    result = build(ranks[1], conv(0), conv(1), conv(2))
    assert (result.built, result.shared) == (2, 1)
    ranks[0].kernel_meta.chmod(0o777)
    assert build(ranks[2], conv(0)).shared == 1  # rank 1 has it
    shutil.rmtree(ranks[1].cache_folder)
    shutil.rmtree(ranks[2].cache_folder)
    assert build(ranks[3], conv(0)).shared == 0


def test_where_files_cannot_be_linked_they_are_copied(ranks: list[Config], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another file system, or one without links: every rank still ends with a complete folder (F64)."""

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    build(ranks[0], *WANTED)
    monkeypatch.setattr(os, "link", refuse)
    assert build(ranks[1], *WANTED).shared == 6
    ours, theirs = files(ranks[1]), files(ranks[0])
    assert set(ours) == set(theirs)
    assert not set(ours.values()) & set(theirs.values())


def test_a_rank_that_cannot_keep_what_it_takes_runs_with_it(ranks: list[Config]) -> None:
    """Where the own folder refuses, the peers' entries are used and one warning says so (F54)."""
    build(ranks[0], *WANTED)
    ranks[1].cache_folder.write_bytes(b"")
    result = build(ranks[1], *WANTED)
    assert (result.built, len(result.entries)) == (0, 6)
    assert result.warnings == ("6 entries of other ranks are used but could not be stored here",)


def test_force_in_one_rank_leaves_the_others_files_alone(ranks: list[Config]) -> None:
    """Files are linked, and replaced by renaming: what one rank forces, the others keep as it was (F21)."""
    for config in ranks[:2]:
        build(config, *WANTED)
    before = files(ranks[1])
    store = operators_in(ranks[0].kernel_meta)
    with Builder(store, FakeCompiler(), LEVEL, ranks[0], force=True) as builder:
        assert builder.build(needed(*WANTED), "net").built == 6
    assert files(ranks[1]) == before
    with rank_builder(ranks[1]) as builder:
        assert all(isinstance(builder.store.lookup(builder.key(desc)), Found) for desc in WANTED)


RANKS = """
import json, os, sys
import onnx
import opbuild, opbuild.api, opbuild.frontend.onnx_model, opbuild.lowering.lower, opbuild.builder.build

def rank(number):
    os.environ["RANK_ID"] = os.environ["DEVICE_ID"] = str(number)
    report = opbuild.compile(sys.argv[1]).report
    with open(f"{sys.argv[2]}/{number}.report", "w") as file:
        json.dump([[each.name, each.status, each.reason] for each in report.operators], file)

for line in sys.stdin:
    children = []
    for number in json.loads(line):
        child = os.fork()
        if child == 0:
            rank(number)
            os._exit(0)
        children.append(child)
    print(json.dumps([os.waitpid(child, 0)[1] for child in children]), flush=True)
"""


@pytest.mark.slow
def test_a_job_of_four_ranks_compiles_each_operator_once(tmp_path: Path) -> None:
    """Cold: compiled over all ranks = operators of the network; without rank 2 and half of 1: 0 (F24, F63, F64)."""
    model, folder, job = tmp_path / "net.onnx", tmp_path / "cache", tmp_path / "job"
    job.mkdir(mode=0o700)
    onnx.save(bert(layers=1, decomposed=False), model)
    variables = {"RANK_SIZE": "4", "OPBUILD_JOB_DIR": str(job), "MS_COMPILER_CACHE_PATH": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-c", RANKS, str(model), str(tmp_path)],
        env=environment(**variables, MS_BUILD_PROCESS_NUM="1"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def run(*ranks: int) -> list[list[list[Any]]]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(ranks) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == [0] * len(ranks)
        return [json.loads((tmp_path / f"{rank}.report").read_bytes()) for rank in ranks]

    reports = run(0, 1, 2, 3)
    built = [name.rpartition("_")[0] for report in reports for name, status, _ in report if status == "built"]
    assert len(built) == len(set(built)) == len(reports[0]) > 3
    metas = [folder / f"rank_{rank}" / "kernel_meta" for rank in range(4)]
    complete = {path.name for path in metas[0].iterdir()}
    assert len(complete) == 3 * len(built)
    assert all({path.name for path in meta.iterdir()} == complete for meta in metas)
    shutil.rmtree(metas[2].parent)
    shutil.rmtree(metas[1].parent / "network_meta")
    for name in sorted(complete)[::2]:
        (metas[1] / name).unlink()
    again = run(1, 2)
    process.communicate()
    assert [status for report in again for _, status, _ in report if status == "built"] == []
    assert all({path.name for path in meta.iterdir()} == complete for meta in metas)
