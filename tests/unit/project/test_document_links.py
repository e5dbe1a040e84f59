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
    """Return what a link can name of a document: its headings, as GitHub writes them."""
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


@pytest.mark.parametrize(("index", "folder"), [("README.md", "."), ("decisions/README.md", "decisions")])
def test_the_index_names_every_document(index: str, folder: str) -> None:
    """Guides, concepts and reference in docs/README.md, decisions in theirs: what is not there is not found."""
    docs = ROOT / "docs"
    linked = set(re.findall(r"\]\(([^)#\s]+)\)", (docs / index).read_text()))
    pages = {str(path.relative_to(docs / folder)) for path in (docs / folder).rglob("*.md") if path != docs / index}
    if folder == ".":
        pages = {page for page in pages if not page.startswith("decisions/")}
    assert pages - linked == set()


def replacements(text: str) -> set[str]:
    """Return the numbers of the decisions that a page, or its row, says it was replaced or changed by."""
    said = re.findall(r"\b(?:[Rr]eplaced|[Cc]hanged) by (.*)", text)
    return {number for rest in said for number in re.findall(r"\[(\d{4})\]", rest.split(".** ")[0])}


def test_decisions_that_were_replaced_say_so_in_the_index_too() -> None:
    """Each page and its row name the same later decisions: a reader of the list takes none for valid that is not."""
    folder = ROOT / "docs" / "decisions"
    pages = {path.name[:4]: replacements(path.read_text()) for path in folder.glob("[0-9]*.md")}
    rows = {line[3:7]: replacements(line) for line in (folder / "README.md").read_text().splitlines() if "](0" in line}
    assert rows == pages
    assert any(pages.values())
    assert all(later > number for number, all_later in pages.items() for later in all_later)


def test_decisions_are_listed_once_and_in_order() -> None:
    """Branches that were joined left pages in the list twice, and others in the order in which they came."""
    listed = re.findall(r"^\| \[(\d{4})\]\(\1-", (ROOT / "docs" / "decisions" / "README.md").read_text(), re.MULTILINE)
    assert listed == sorted(set(listed))
    assert len(listed) == len(list((ROOT / "docs" / "decisions").glob("0*.md")))
