"""Ships kernels for NVIDIA's GPUs: of those that a run on a card computed rightly, and of no others.

    python -m kernels.gpu PACK [--results benchmarks/results/gpu/field.jsonl] [--folder src/opbuild/store/packs]

``PACK`` is what ``benchmarks/gpu/prepare.py`` made, the results are those of ``benchmarks/gpu/gpu_field.py`` with it.
Binaries that were part of a right answer are added to ``kernels/verified_sm_90a.json``, by their SHA-256, with date,
card and check; those of the pack that are listed there are shipped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernels.make import write_pack
from opbuild.backend.triton.compiler import TritonCompiler
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.digest import sha256
from opbuild.platform.files.trust import PRIVATE
from opbuild.platform.paths import Path as OwnPath
from opbuild.store.model_packs import opened
from opbuild.store.pack import PACKS, SUFFIX, FamilySources, PackFile, pack_bytes

TARGET = "cuda:sm_90a"
VERIFIED = Path(__file__).parent / "verified_sm_90a.json"


def verified_by(results: Iterator[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return the binaries that were part of right answers, by their SHA-256, with date, card and check."""
    found: dict[str, dict[str, str]] = {}
    card = date = ""
    for each in results:
        card, date = each.get("card", card), each.get("date", date)
        if each.get("right") and card not in ("", "none"):
            for digest in each["binaries"]:
                found.setdefault(digest, {"card": card, "date": date, "check": each["step"]})
    return found


def shipped(file: PackFile, verified: Mapping[str, Any]) -> bytes | None:
    """Return the file of a family as it is shipped; None if none of its binaries was verified."""
    objects = [each for each in file.objects() if sha256(each.object) in verified]
    if not objects:
        return None
    desc = OpDesc.from_components(objects[0].components)
    compiler = TritonCompiler()
    sources = FamilySources(compiler.released_digest(desc), compiler.sources_digest(desc))
    return pack_bytes(TARGET, file.family, file.compiler, sources, objects)


def main(arguments: list[str] | None = None) -> int:
    """Add to the list what was verified, and write the files of the pack."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pack", type=Path, help="the pack of prepare.py")
    parser.add_argument("--results", type=Path, help="the results of gpu_field.py with it")
    parser.add_argument("--folder", type=Path, default=PACKS, help="where packs are")
    parser.add_argument("--verified", type=Path, default=VERIFIED, help="the list")
    given = parser.parse_args(arguments)
    listed = json.loads(given.verified.read_text()) if given.verified.exists() else {}
    if given.results is not None:
        found = verified_by(map(json.loads, given.results.read_text().splitlines()))
        listed = {**found, **listed}
        given.verified.write_text(json.dumps(listed, indent=1, sort_keys=True) + "\n")
    archive = opened(OwnPath(str(given.pack)), str(given.pack), PRIVATE)
    if archive.problem is not None:
        print(archive.problem, file=sys.stderr)
        return 1
    count = 0
    for file in (file for pack in archive.packs(TARGET) for file in pack.files()):
        data = shipped(file, listed)
        if data is not None:
            write_pack(Path(given.folder) / TARGET / f"{file.family}{SUFFIX}", data)
            count += 1
    print(f"{len(listed)} binaries are verified; files of {count} families written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
