"""Takes the pictures of the report's page that the guide shows, on this (quiet) machine: ``make pictures``.

ResNet-50 and BERT-base are built into an empty cache and timed, and Chromium draws their pages.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image

from benchmarks.field_networks import written

ROOT = Path(__file__).resolve().parents[1]
NETWORKS = {"resnet50": "ResNet-50", "bert": "BERT-base 128"}
"""The names of the pictures, and of the networks among those of the field."""

_BROWSER = ("chromium", "--headless=new", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,1500")


def take(name: str, network: str, work: Path) -> None:
    """Take the picture of a network's page."""
    model = written(network, work)[0].rename(work / f"{name}.onnx")
    page, picture = work / f"{name}.html", ROOT / "docs" / "images" / f"report_{name}.png"
    report = ("report", str(model), "--time", f"--output={page}", f"--cache_path={work / 'cache'}")
    subprocess.run([sys.executable, "-m", "opbuild", *report], check=True)
    subprocess.run([*_BROWSER, f"--screenshot={picture}", page.as_uri()], check=True)
    Image.open(picture).quantize(256).save(picture, optimize=True)


def main() -> None:
    """Take all of them."""
    work = ROOT / "build" / "pictures"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for name, network in NETWORKS.items():
        take(name, network, work)


if __name__ == "__main__":
    main()
