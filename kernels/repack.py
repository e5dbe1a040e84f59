"""Writes the files of the pack anew, in the form of now: the same objects of the same sources; nothing is compiled.

python -m kernels.repack [--folder src/opbuild/store/packs]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kernels.make import write_pack
from opbuild.store.pack import PACKS, SUFFIX, pack_bytes, read_pack


def repack(path: Path) -> None:
    """Write a file anew, each part compressed again.

    Raises:
        OSError: If it cannot be read or written.
        ValueError: If it is damaged, or of a form that is not read any more.
    """
    file = read_pack(path)
    write_pack(path, pack_bytes(file.target, file.family, file.compiler, file.sources, file.objects()))


def main() -> None:
    """Write all files anew, and say how large each level is then."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--folder", type=Path, default=PACKS, help="where the pack is")
    for folder in sorted(path for path in arguments.parse_args().folder.iterdir() if path.is_dir()):
        paths = sorted(folder.glob(f"*{SUFFIX}"))
        before = sum(path.stat().st_size for path in paths)
        for path in paths:
            repack(path)
        after = sum(path.stat().st_size for path in paths)
        print(f"{folder.name}: {before / 1e6:.2f} MB, now {after / 1e6:.2f}", flush=True)


if __name__ == "__main__":
    main()
