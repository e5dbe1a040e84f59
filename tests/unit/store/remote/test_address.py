"""Addresses of remote stores: URLs, and paths of folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from opbuild.errors import OptionError
from opbuild.store.remote.address import parse_address


@pytest.mark.parametrize("path", ["/srv/shared", "/srv/with space/a%20b/c?d#e", "~/shared"])
def test_the_path_of_a_folder_is_its_url(path: str) -> None:
    """Whatever is in it, and from a home."""
    folder = Path(path).expanduser()
    found = parse_address("remote", f" {path} ")
    assert found == parse_address("remote", folder.as_uri())
    assert found.options["root"] == str(folder)


@pytest.mark.parametrize("path", ["shared", "./shared", "../shared"])
def test_a_path_from_where_a_program_happens_to_run_is_refused(path: str) -> None:
    """The variable is set for programs that run anywhere."""
    with pytest.raises(OptionError, match="the path of a folder from / or ~"):
        parse_address("remote", path)
