"""Files of a cache that became huge: a miss at once, not minutes of reading or an end of memory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from opbuild.cli.store import bundling
from opbuild.cli.store.folder import Cache
from opbuild.config import Config
from opbuild.errors import InvalidModelError, OpbuildError
from opbuild.offline.build import export
from opbuild.offline.load import load
from opbuild.platform.files import trust as limits
from opbuild.store.operators import operators_in
from opbuild.target.host import host_level
from support.samples import conv, entry_of
from support.seeds import MEMORY
from support.small_network import SmallNetwork

HUGE = 2**40
FILES = (
    *("kernel_meta/softmax_*.o", "kernel_meta/softmax_*.info", "kernel_meta/softmax_*.json"),
    *("network_meta/small_*.json", "network_meta/small_*.so", "network_meta/small_*.bin", "network_meta/small_*.seen"),
    *("network_meta/small_*.model", "network_meta/small_*.digest", "network_meta/compiler.json"),
    *("network_meta/weights/*.bin", "network_meta/weights/*.json", "network_meta/counters.jsonl", "op_cache.ini"),
)


def grow(path: Path, *, keep: bool) -> None:
    """Let a file end far beyond its contents, or hold nothing but a hole; it takes no more of the disk."""
    os.truncate(path, path.stat().st_size if keep else 0)
    os.truncate(path, HUGE)


@pytest.mark.slow
@pytest.mark.parametrize("keep", [True, False], ids=["grown", "hole"])
@pytest.mark.parametrize("pattern", FILES)
def test_a_huge_file_is_a_miss(small_network: SmallNetwork, tmp_path: Path, pattern: str, keep: bool) -> None:
    """A terabyte of zeros in a file's place was read at every build, or ended it with a MemoryError."""
    cache = tmp_path / "cache"
    shutil.copytree(small_network.cache, cache)
    with small_network.replayed():
        small_network.build(cache)
        grow(next((cache / "rank_0").glob(pattern)), keep=keep)
        config = Config(cache_path=cache)
        problems = list(Cache.of(config).problems())
        assert problems or pattern.endswith(("counters.jsonl", "op_cache.ini"))
        for path in (cache / "rank_0/network_meta").glob("*.bin" if "kernel_meta" in pattern else "*.nothing"):
            path.unlink()  # so that the operators are looked up
        small_network.build(cache)
        assert small_network.build(cache, forbid_compile=True).report.image
        for problem in Cache.of(config).problems():
            Cache.of(config).repair(problem)
        small_network.build(cache, forbid_compile=True)
    sizes = [path.stat().st_size for path in cache.rglob("*") if path.is_file() and path.name != "op_cache.ini"]
    assert max(sizes) < MEMORY


@pytest.mark.parametrize("keep", [True, False], ids=["grown", "hole"])
def test_a_huge_bundle_or_offline_model_is_refused(small_network: SmallNetwork, tmp_path: Path, keep: bool) -> None:
    """What follows the contents is not read; the message says that the file is damaged, or none."""
    config = Config.from_environment(cache_path=small_network.cache)
    bundle, model = tmp_path / "cache.bundle", tmp_path / "small.om"
    bundling.export_cache(bundle, config, host_level())
    with small_network.replayed():
        export(small_network.path, model, input_shapes={"x": small_network.x.shape}, config=config)
    for path in (bundle, model):
        grow(path, keep=keep)
    with pytest.raises(OpbuildError, match="is damaged" if keep else "is not a bundle"):
        bundling.import_bundle(bundle, Config(cache_path=tmp_path / "cache"), host_level())
    with pytest.raises(InvalidModelError, match="is damaged" if keep else "is not an offline model"):
        load(model)


def test_nothing_is_stored_that_a_look_up_would_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object above the limit is used, and said not to be stored, instead of written in vain each time."""
    _, entry = entry_of(conv())
    monkeypatch.setitem(limits.ENTRY, ".o", len(entry.object) - 1)
    assert "more than a look-up reads" in str(operators_in(tmp_path).publish(entry))
    assert not list(tmp_path.iterdir())
