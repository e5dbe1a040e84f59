"""What the settings of debugging ask for, and how their mistakes are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.kernel.debug import (
    OPTIONS,
    Debug,
    DebugConfig,
    flags_of,
    make_debug,
    parse_debug_config,
    read_debug_config,
)
from opbuild.kernel.key import make_key
from opbuild.pipeline.setup import set_up
from support.samples import IDENTITY, LEVEL, conv

FILE = """
# op_debug_config=dump_bin
  op_debug_config = ccec_g , oom
something else

op_debug_list=GatherV2,OpType::ReduceSum, conv/2
"""


def test_a_file_is_read_as_atc_reads_it() -> None:
    """Lines are trimmed, comments and other lines say nothing, values are separated by commas."""
    found = parse_debug_config(FILE, "debug.cfg")
    assert found == DebugConfig(frozenset({"ccec_g", "oom"}), ("GatherV2", "conv/2"), ("ReduceSum",))
    assert found.has_list
    assert not parse_debug_config("op_debug_config=" + ",".join(OPTIONS[:4]), "f").has_list
    assert parse_debug_config("op_debug_config=oom\nop_debug_config=ccec_g", "f").options == {"oom", "ccec_g"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n\nop_debug_config", ["f.cfg, line 3", "op_debug_config", "'='"]),
        ("op_debug_config=", ["f.cfg, line 1", "empty"]),
        ("op_debug_config=oom,,ccec_g", ["f.cfg, line 1", "empty"]),
        ("# x\nop_debug_config=oom,fast", ["f.cfg, line 2", "'fast'", "dump_cce"]),
        ("op_debug_config=OOM", ["f.cfg, line 1", "'OOM'", "oom"]),
        ("op_debug_config=oom\nop_debug_list=", ["f.cfg, line 2", "op_debug_list", "empty"]),
        ("op_debug_list", ["f.cfg, line 1", "op_debug_list"]),
        ("op_debug_config=oom\nop_debug_list=a,OpType::", ["f.cfg", "OpType::"]),
        ("op_debug_config=oom\nop_debug_config=ccec_O0", ["f.cfg, line 2", "oom", "ccec_O0"]),
        ("op_debug_config=ccec_O0,oom", ["f.cfg, line 1", "oom", "ccec_O0"]),
        ("# nothing\n", ["f.cfg", "neither"]),
    ],
)
def test_a_wrong_line_is_named_with_its_file(text: str, said: list[str]) -> None:
    """The error is one line that names file, line, what is wrong and what is allowed."""
    with pytest.raises(OptionError) as caught:
        parse_debug_config(text, "f.cfg")
    assert all(part in str(caught.value) for part in said), caught.value
    assert "\n" not in caught.value.message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file and one that is no text are errors of the option."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe\0")
    for name, why in (("missing", "No such file"), ("binary", "UTF-8")):
        with pytest.raises(OptionError, match=f"(?s)op_debug_config is .*{name}.*{why}"):
            read_debug_config(tmp_path / name)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"level": 5}, "op_debug_level is 5"),
        ({"debug_dir": "."}, "op_debug_level is 0"),
        ({"level": 1, "debug_dir": "missing"}, "does not exist"),
        ({"level": 1, "debug_dir": "file"}, "not a folder"),
        ({"level": 2, "config_file": "config"}, "op_debug_level 2 and the option oom"),
    ],
)
def test_settings_that_are_wrong_or_do_not_fit_are_refused(
    options: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``debug_dir`` must exist and needs a level; level 2 holds ccec_O0, which excludes oom."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "config").write_text("op_debug_config=oom")
    given = {"level": 0, "config_file": None, "debug_dir": None, "default_dir": tmp_path} | options
    with pytest.raises(OptionError, match=f"(?s){said}"):
        make_debug(**given)


def test_the_caches_own_folder_does_not_take_debug_files(tmp_path: Path) -> None:
    """The names of debug files are those of entries, so they must not fall among them."""
    config = Config(cache_path=tmp_path, op_debug_level=1)
    config.kernel_meta.mkdir(parents=True)
    with pytest.raises(OptionError, match=r"(?s)debug_dir is .*kernel_meta.*cache"):
        set_up(Config(cache_path=tmp_path, op_debug_level=1, debug_dir=config.kernel_meta), None, None)


def test_an_operator_is_selected_by_node_or_by_type() -> None:
    """A fused operator is selected by each of its types, a shared one by each of its nodes."""
    debug = Debug(config=DebugConfig(frozenset({"oom"}), ("n2",), ("ReduceSum",)))
    assert debug.options(("Conv", "Relu"), ("n1",)) is None
    assert debug.options(("Conv", "Relu"), ("n1", "n2")) == ("oom",)
    assert debug.options(("ReduceSum",), ()) == ("oom",)
    assert debug.options(("reducesum",), ()) is None
    assert debug.unmatched(("Conv",), ("n2",)) == ("OpType::ReduceSum",)
    assert debug.unmatched(("ReduceSum",), ("n1",)) == ("n2",)


def test_only_what_decides_the_code_is_in_the_key() -> None:
    """Keys of code that is debugged differ from each other and from the plain one; files beside it change nothing."""
    keys = {
        options: make_key(conv(), LEVEL, IDENTITY, "s", flags_of(options)).sha256
        for options in ((), ("dump_bin", "dump_cce", "dump_loc"), ("oom",), ("ccec_O0",), ("ccec_g", "ccec_O0"))
    }
    assert keys[()] == keys["dump_bin", "dump_cce", "dump_loc"]
    assert len(set(keys.values())) == len(keys) - 1
    plain = make_key(conv(), LEVEL, IDENTITY, "s")
    checked = make_key(conv(), LEVEL, IDENTITY, "s", ("oom",))
    assert plain.first_difference(checked) == 'debug none -> ["oom"]'
    assert checked.first_difference(plain) == 'debug ["oom"] -> none'
