"""The documents: what they link to is there, headings too, and the index names each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def prose(path: Path) -> str:
    """Return a document's text without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(path: Path) -> set[str]:
    """Return the anchors that a link can name of a document: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(path: Path, root: Path = ROOT) -> list[str]:
    """Return the links of a document that lead nowhere in this project; those to other places are not followed."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        elsewhere = "://" in link or not target.is_relative_to(root)
        if not elsewhere and (not target.exists() or (anchor and anchor not in anchors(target))):
            found.append(link)
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    """A file or heading that was renamed is renamed in the links too."""
    assert broken(document) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    """A missing file and a missing heading are; a heading with code and signs, and another site, are sound."""
    document = tmp_path / "a.md"
    document.write_text("# `One`: two, three\n[a](#one-two-three) [b](b.md) [c](a.md#one) [d](https://example.org/x)\n")
    assert broken(document, tmp_path) == ["b.md", "a.md#one"]


@pytest.mark.parametrize(("index", "folder"), [("README.md", "."), ("design/README.md", "design")])
def test_the_index_names_every_document(index: str, folder: str) -> None:
    """Guides, concepts and reference stand in docs/README.md, the design in its own: each page once, and no other."""
    docs = ROOT / "docs"
    linked = re.findall(r"^\| \[[^\]]+\]\(([^)#\s]+)\)", (docs / index).read_text(), re.MULTILINE)
    pages = {str(path.relative_to(docs / folder)) for path in (docs / folder).rglob("*.md") if path != docs / index}
    if folder == ".":
        linked = [page for page in linked if not page.startswith(("../", "design/"))]
        pages = {page for page in pages if not page.startswith("design/")}
    assert sorted(linked) == sorted(pages)


def test_the_design_names_modules_that_exist() -> None:
    """A module that was moved or taken away is not named as one that does something now."""
    roots = (ROOT, ROOT / "src" / "opbuild", ROOT / "tests")
    pages = sorted((ROOT / "docs" / "design").glob("*.md"))
    module = re.compile(r"`([\w/]+/[\w.]+\.(?:py|c|h|json))`")
    named = {(page.name, name) for page in pages for name in module.findall(prose(page))}
    assert len(named) > 50
    assert [each for each in sorted(named) if not any((root / each[1]).exists() for root in roots)] == []


def test_the_glossary_is_short() -> None:
    """Sixty words at most, each once and in order, in a line or two: who reads the code needs no more to begin."""
    text = (ROOT / "docs" / "concepts" / "glossary.md").read_text()
    rows = re.findall(r"^\| \*\*([^*]+)\*\* \| (.+) \|$", text, re.MULTILINE)
    words = [word for word, _ in rows]
    assert 40 <= len(words) <= 60
    assert words == sorted(set(words), key=str.lower)
    assert [word for word, meaning in rows if len(meaning) > 320] == []
