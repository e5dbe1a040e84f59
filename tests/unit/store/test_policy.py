"""``op_cache.ini``: what counts, in which order, and what its user is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from opbuild.store.policy import Policy, create_policy_file, read_policy

FILE = "[op_compiler_cache]\nmax_op_cache_size=300\nremain_cache_size_ratio=80\n"


def read(tmp_path: Path, text: str, *environment: str) -> tuple[tuple[int, int], str, tuple[str, ...]]:
    """Return size and ratio, their origin, and the warnings, for a file of this text."""
    (tmp_path / "op_cache.ini").write_text(text)
    policy, warnings = read_policy(tmp_path / "op_cache.ini", (*environment, "", "")[:2])  # type: ignore[arg-type]
    return (policy.max_megabytes, policy.remain_ratio), policy.origin, warnings


def test_a_valid_file_counts_before_the_environment(tmp_path: Path) -> None:
    """Both values are valid: the file decides for every user of the folder."""
    assert read(tmp_path, FILE, "700", "10") == ((300, 80), str(tmp_path / "op_cache.ini"), ())


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + FILE,
        "# mine\n; yours\n\n[op_compiler_cache]\r\n max_op_cache_size = 300 # MB\r\nremain_cache_size_ratio=80 ; %\r\n",
        "[other]\nx=1\n" + FILE + "adk_version=8\nnonsense\n",
    ],
)
def test_comments_spaces_and_strange_lines_do_no_harm(tmp_path: Path, text: str) -> None:
    """Files that editors and other programs wrote are read."""
    assert read(tmp_path, text)[0] == (300, 80)


def test_without_a_file_the_environment_counts_and_then_the_defaults(tmp_path: Path) -> None:
    """Each variable counts for itself."""
    missing = tmp_path / "none" / "op_cache.ini"
    assert read_policy(missing, ("700", "")) == (Policy(700, 50, "environment"), ())
    assert read_policy(missing, ("", "10")) == (Policy(500, 10, "environment"), ())
    assert read_policy(missing) == (Policy(500, 50, "default"), ())


@pytest.mark.parametrize(
    ("name", "line", "value"),
    [
        ("max_op_cache_size", 2, "0"),
        ("max_op_cache_size", 2, "-2"),
        ("max_op_cache_size", 2, "5e2"),
        ("max_op_cache_size", 2, ""),
        ("remain_cache_size_ratio", 3, "0"),
        ("remain_cache_size_ratio", 3, "101"),
        ("remain_cache_size_ratio", 3, "50%"),
        ("remain_cache_size_ratio", 3, "\u0665\u0660"),
    ],
)
def test_an_invalid_value_is_named_with_its_line_and_the_next_source_counts(
    tmp_path: Path, name: str, line: int, value: str
) -> None:
    """File, line and value are in the warning; neither value of the file counts then."""
    good = {"max_op_cache_size": "300", "remain_cache_size_ratio": "80"}
    text = FILE.replace(f"{name}={good[name]}", f"{name}={value}")
    values, origin, warnings = read(tmp_path, text, "700")
    assert (values, origin) == ((700, 50), "environment")
    (warning,) = warnings
    assert f"{tmp_path / 'op_cache.ini'} line {line} " in warning
    assert f"{name} is {value!r}" in warning


def test_half_a_file_does_not_count(tmp_path: Path) -> None:
    """One value alone is said to be half of what is needed."""
    values, origin, (warning,) = read(tmp_path, "[op_compiler_cache]\nmax_op_cache_size=300\n")
    assert (values, origin) == ((500, 50), "default")
    assert "no remain_cache_size_ratio" in warning


def test_values_outside_the_section_do_not_count(tmp_path: Path) -> None:
    """A forgotten section is said, with the lines."""
    values, _, warnings = read(tmp_path, FILE.partition("\n")[2])
    assert values == (500, 50)
    assert [f"line {line} " in warning for line, warning in enumerate(warnings, 1)] == [True, True]


def test_an_invalid_variable_is_named_and_the_default_counts(tmp_path: Path) -> None:
    """The other variable still counts."""
    policy, (warning,) = read_policy(tmp_path / "none", ("much", "70"))
    assert (policy.max_megabytes, policy.remain_ratio) == (500, 70)
    assert "ASCEND_MAX_OP_CACHE_SIZE is 'much'" in warning


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A folder of that name is no reason to fail."""
    policy, (warning,) = read_policy(tmp_path)
    assert policy == Policy()
    assert str(tmp_path) in warning


def test_the_file_made_first_changes_nothing_until_it_is_edited(tmp_path: Path) -> None:
    """It names both values in comments; taking the ``#`` away makes them count."""
    file = tmp_path / "op_cache.ini"
    create_policy_file(file)
    text = file.read_text()
    assert "#max_op_cache_size=500" in text
    assert read_policy(file, ("700", "")) == (Policy(700, 50, "environment"), ())
    edited = text.replace("#max", "max").replace("#remain", "remain")
    assert read(tmp_path, edited, "700")[0] == (500, 50)
    create_policy_file(file)
    assert file.read_text() == edited


def test_no_folder_is_made_for_the_file(tmp_path: Path) -> None:
    """Where nothing is stored nothing appears."""
    create_policy_file(tmp_path / "none" / "op_cache.ini")
    assert list(tmp_path.iterdir()) == []


def test_bytes_follow_from_megabytes_and_ratio() -> None:
    """-1 is no limit."""
    assert (Policy(500, 50).max_bytes, Policy(500, 50).remaining_bytes) == (500 * 2**20, 250 * 2**20)
    assert Policy(500).ages
    assert not Policy(-1).ages
