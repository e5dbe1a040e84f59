"""The page in a real browser: it works, it follows the colours, and it fits a phone."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from opbuild.cli.page.render import Layer, PageContents, render
from opbuild.graph.types import TensorType
from opbuild.report import Report
from opbuild.runtime.calls import NetworkCall

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed, which opens the page")

NARROW, ROWS = 400, 1000

PROBE = """<script>
const errors = [];
addEventListener("error", event => errors.push(event.message));
addEventListener("load", () => {
  const words = document.getElementById("words"), frame = document.documentElement;
  words.value = "layer99";
  words.dispatchEvent(new Event("input"));
  document.title = JSON.stringify({
    errors, rows: document.querySelectorAll("#layers tbody tr").length,
    found: document.getElementById("found").textContent,
    wide: frame.scrollWidth > frame.clientWidth, dark: matchMedia("(prefers-color-scheme: dark)").matches,
  });
});
</script>"""


def page(folder: Path) -> Path:
    """Write a page of 1,000 layers that reports on itself in its title."""
    kind = TensorType("float32", (1, 1000))
    call = [
        NetworkCall("conv_relu_123456789_1__kernel0", (f"layer{n}",), "conv", {}, kind.shape, 0, 8) for n in range(ROWS)
    ]
    layers = [Layer(n, each, "built", "not in the store", 41.0, None, 0, 0, None, 100) for n, each in enumerate(call)]
    contents = PageContents(Report("net" * 40, steps={"build": 1.0}), (), tuple(layers), (), (), None, None, 2, "1")
    path = folder / "page.html"
    path.write_text(render(contents).replace("<head>", "<head>" + PROBE, 1), encoding="utf-8")
    frame = folder / "narrow.html"
    frame.write_text(f'<iframe src="page.html" width="{NARROW}" height="900"></iframe>', encoding="utf-8")
    return path


def browse(folder: Path, path: Path, *options: str) -> str:
    """Open a page in a browser of its own and return the document as it is then."""
    assert BROWSER is not None
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}",
        *options,
    ]
    ended = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_a_page_of_1000_layers_works_in_a_browser(tmp_path: Path) -> None:
    """No script fails, all rows are there, the filter finds those that fit, and nothing is wider than the window."""
    shown = browse(tmp_path, page(tmp_path), "--enable-logging=stderr", "--window-size=1200,900", "--dump-dom")
    title = re.search(r"<title>(.*?)</title>", shown)
    assert title is not None
    assert title[1] == (f'{{"errors":[],"rows":{ROWS},"found":"11 of {ROWS}","wide":false,"dark":false}}')


@pytest.mark.slow
def test_a_phone_shows_the_page_without_scrolling_sideways(tmp_path: Path) -> None:
    """In a frame of 400 pixels the page is not wider than the frame."""
    path = page(tmp_path)
    text = path.read_text(encoding="utf-8").replace("document.title = ", "parent.document.title = ")
    path.write_text(text, encoding="utf-8")
    options = ("--allow-file-access-from-files", "--disable-web-security", "--dump-dom")
    shown = browse(tmp_path, tmp_path / "narrow.html", *options)
    assert '"wide":false' in shown


@pytest.mark.slow
def test_dark_differs_from_light(tmp_path: Path) -> None:
    """The page follows the colours that the reader's system asks for."""
    path, pictures = page(tmp_path), []
    for name, options in (("light", ()), ("dark", ("--blink-settings=preferredColorScheme=0",))):
        picture = tmp_path / f"{name}.png"
        browse(tmp_path, path, f"--screenshot={picture}", "--window-size=500,500", *options)
        pictures.append(picture.read_bytes())
    assert pictures[0] != pictures[1]
