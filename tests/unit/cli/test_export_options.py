"""Options of ``opbuild export`` and ``opbuild atc``: what each takes, and how a wrong one is refused."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from opbuild.cli.export import atc, export, make_config
from opbuild.cli.export_options import FOREIGN, ExportRequest
from opbuild.cli.main import main

GIVEN = {
    "export": ["--model=m.onnx"],
    "atc": ["--model=m.onnx", "--framework=5", "--output=m", "--soc_version=host"],
}
"""What a right command line begins with; a later value of an option wins."""
ATC_NAMES = {"target": "soc_version", "shape": "input_shape"}
"""ATC's names of options that have others in ``export``."""

BAD: dict[str, tuple[list[str], str, str]] = {
    "mode": (["--mode=9"], "'9'", "0, 1, 3 or 6"),
    "model": (["--model=none.onnx"], "'none.onnx'", "the path of an ONNX model"),
    "framework": (["--framework=3"], "'3'", "it must be 5; 3 is TensorFlow"),
    "output": (["--output=no/such/m"], "'no/such/m'", "there is no folder 'no/such'"),
    "target": (["--target=Ascend310P3"], "'Ascend310P3'", "x86-64-v2, x86-64-v3"),
    "shape": (["--shape=data:1,x"], "'x'", "a whole number, -1 for any, or a range"),
    "dynamic_batch_size": (["--dynamic_batch_size=1,0"], "'1,0'", "2 to 100 different sizes"),
    "dynamic_image_size": (["--dynamic_image_size=224;448"], "'224;448'", "2 to 100 different heights and widths"),
    "dynamic_dims": (["--dynamic_dims=1,2;3"], "'1,2;3'", "2 to 100 different lists of dimensions"),
    "om": (["--mode=6", "--om=none.om"], "'none.om'", "the path of an offline model"),
    "json": (["--mode=1", "--om=m.onnx", "--json=no/such.json"], "'no/such.json'", "the JSON file to write"),
    "check_report": (["--mode=3", "--check_report=no/such.json"], "'no/such.json'", "the JSON file to write"),
    "op_select_implmode": (["--op_select_implmode=fast"], "'fast'", "high_performance or high_precision"),
    "optypelist_for_implmode": (
        ["--optypelist_for_implmode=Conv;Add", "--op_select_implmode=high_precision"], "'Conv;Add'",
        "names of operator types separated by commas",
    ),
    "precision_mode": (["--precision_mode=force_fp16"], "'force_fp16'", "must_keep_origin_dtype or force_fp32"),
    "op_compiler_cache_mode": (["--op_compiler_cache_mode=on"], "'on'", "enable, force or disable"),
    "cache_path": (["--cache_path="], "is empty", "a folder, which is made if it is"),
    "op_compiler_cache_dir": (["--op_compiler_cache_dir=m.onnx"], "'m.onnx'", "a folder, which is made if it is"),
    "op_debug_level": (["--op_debug_level=5"], "'5'", "0, 1, 2, 3 or 4"),
    "op_debug_config": (["--op_debug_config=none.cfg"], "'none.cfg'", "an existing file"),
    "debug_dir": (["--debug_dir=none", "--op_debug_level=1"], "'none'", "an existing folder"),
    "remote": (["--remote=ftp://host"], "'ftp://host'", "redis://host, s3://bucket"),
    "log": (["--log=verbose"], "'verbose'", "debug, info, warning, error or null"),
    "workers": (["--workers=0"], "'0'", "an integer of at least 1"),
    "num_threads": (["--num_threads=1.5"], "'1.5'", "an integer from 1 to 1024"),
    "dry_run": (["--dry_run=1"], "dry_run", "takes no value"),
    "explain": (["--explain=1"], "explain", "takes no value"),
    "strict": (["--strict=1"], "strict", "takes no value"),
}  # fmt: skip
"""For each option a command line with a bad value, the value as it is shown, and what is allowed."""

NO_EMPTY_VALUE = ("dry_run", "explain", "help", "strict")


def typed(command: str, words: str) -> str:
    """Return words about ``export`` as they are for a command."""
    names = "|".join(ATC_NAMES)
    return re.sub(rf"--({names})\b", lambda name: f"--{ATC_NAMES[name[1]]}", words) if command == "atc" else words


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a file ``m.onnx``; the home folder is inside too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ASCEND_CACHE_PATH", raising=False)
    (tmp_path / "m.onnx").write_bytes(b"a model")
    return tmp_path


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must fail on its options, and return the lines that say why and what is allowed as one."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    if arguments[0] == "export":
        assert captured.out == ""
        line, *hints = captured.err.splitlines()
        assert line.startswith(("error (option): ", "error (file): "))
        assert [hint[:8] for hint in hints] == ["  hint: "]
    else:
        assert captured.err == ""
        started, failed, line, *hints = captured.out.splitlines()
        assert [hint[:18] for hint in hints] == ["        Solution: "]
        assert started.startswith("ATC start working now")
        assert failed.startswith("ATC run failed")
        assert line.startswith("E1")
    return "; ".join([line, *(hint.partition(": ")[2] for hint in hints)])


@pytest.mark.parametrize(("command", "option"), list(itertools.product(GIVEN, BAD)))
def test_a_bad_value_is_named_with_its_option_and_what_is_allowed(
    folder: Path, command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command fails, says in one line what is wrong, and writes nothing."""
    arguments, value, allowed = BAD[option]
    line = refused([command, *GIVEN[command], *(typed(command, each) for each in arguments)], capsys)
    named = (
        "" if option in ("model", "om") else typed(command, f"--{option}")
    )  # other commands take such files without an option
    for text in (named, value, allowed):
        assert text in line
    assert [path.name for path in folder.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("command", [export, atc], ids=GIVEN)
def test_every_option_has_a_bad_value_above(command: Any) -> None:
    """An option that is added is tested too."""
    assert {option.name for option in command.params} - {"argument"} == {*BAD, *FOREIGN}


@pytest.mark.parametrize("spelling", [str, lambda name: name.replace("_", "-")], ids=["underscores", "hyphens"])
@pytest.mark.parametrize(("command", "option"), list(itertools.product(GIVEN, [*BAD, *FOREIGN])))
def test_an_empty_value_is_refused_whichever_way_the_option_is_spelled(
    folder: Path, command: str, option: str, spelling: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--option=`` is an error that names the option; for ATC's users with the code E10004."""
    if option in NO_EMPTY_VALUE:
        return
    name = typed(command, f"--{option}")
    line = refused([command, *GIVEN[command], f"--{spelling(name[2:])}="], capsys)
    assert f"{name} is empty; " in line
    assert command != "atc" or line.startswith("E10004: ")
    assert [path.name for path in folder.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("option", FOREIGN)
def test_an_option_that_decides_nothing_takes_only_what_changes_nothing(
    folder: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any other value is refused with what to do instead; the values that are taken do not stop the command."""
    accepted, instead = FOREIGN[option]
    line = refused(["atc", *GIVEN["atc"], f"--{option}=something"], capsys)
    assert line.startswith(f"E10055: --{option} is 'something'")
    assert typed("atc", " ".join(instead.split())) in line
    for value in accepted:
        assert "--mode is '9'" in refused(["atc", *GIVEN["atc"], f"--{option}={value}", "--mode=9"], capsys)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mdoel=x"], "there is no option"),
        (["m.onnx"], "the model is given twice: 'm.onnx' and --model 'm.onnx'"),
        (["m.onnx", "m.onnx"], "too many arguments: m.onnx"),
        (["--cache_path=a", "--op_compiler_cache_dir=b"], "--op_compiler_cache_dir names another cache"),
        (["--model"], "needs a value"),
        (["--model=."], "'.' is a folder"),
        (["--output=."], "and it is a folder"),
        (["--framework=0"], "Caffe"),
        (["--framework=1"], "mindspore.export"),
        (["--mode=5"], "dump graphs"),
        (["--op_select_implmode=high_precision_for_all"], "without _for_all"),
        (["--optypelist_for_implmode=Conv"], "give --op_select_implmode too"),
        (["--dynamic_batch_size=2"], "2 to 100 different sizes"),
        (["--dynamic_batch_size=2,2"], "2 to 100 different sizes"),
        (["--dynamic_batch_size=1,2"], "-1 first"),
        (["--dynamic_batch_size=1,2", "--shape=x:1,3"], "-1 first"),
        (["--dynamic_batch_size=1,2", "--shape=x:-1,3,-1"], "'x:-1,3,-1'"),
        (["--dynamic_batch_size=1,2", "--shape=x:-1,3;y:1~4"], "'y:1~4'"),
        (["--dynamic_batch_size=1,2", "--dynamic_dims=1,2;3,4"], "--dynamic_dims is '1,2;3,4'"),
        (["--dynamic_image_size=8,8;9,9"], "-1 for height and width"),
        (["--dynamic_image_size=8,8;9,9", "--shape=x:-1,3,-1,-1"], "'x:-1,3,-1,-1'"),
        (["--dynamic_image_size=8,8;9,9", "--shape=x:1,3,8~9,-1"], "'x:1,3,8~9,-1'"),
        (["--dynamic_dims=8;9", "--shape=x:-1,3,-1,-1"], "3 times -1"),
        (["--dynamic_dims=8;9", "--shape=x:1,8~9"], "'x:1,8~9'"),
        (["--debug_dir=."], "--op_debug_level"),
        (["--json=a.json"], "--mode=1 only"),
        (["--om=m.onnx"], "--mode=1 or --mode=6 only"),
        (["--check_report=a.json"], "--mode=3 only"),
        (["--mode=6", "--om=m.onnx", "--dry_run"], "--mode=0 or --mode=3 only"),
        (["--mode=3", "--explain"], "--explain is given"),
        (["--mode=1"], "--json is missing"),
        (["--mode=6"], "--om is missing"),
        (["--mode=1", "--json=a.json", "--om=m.onnx"], "one of --om and --model"),
        (["--target=z80"], "'z80'"),
        (["--shape=;"], "is empty"),
    ],
)
@pytest.mark.parametrize("command", GIVEN)
def test_options_that_do_not_go_together_are_refused(
    folder: Path, command: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is missing, excluded or unknown is one line too, before anything is read or written."""
    line = refused([command, *GIVEN[command], *(typed(command, each) for each in arguments)], capsys)
    assert typed(command, said) in line
    assert [path.name for path in folder.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("option", ["model", "framework", "output", "soc_version"])
def test_atc_asks_for_what_atc_asks_for(folder: Path, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What ATC requires for mode 0 is required, with ATC's code."""
    arguments = [each for each in GIVEN["atc"] if not each.startswith(f"--{option}=")]
    assert refused(["atc", *arguments], capsys).startswith(f"E10007: --{option} is missing; ")


@pytest.fixture
def requested(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[ExportRequest]:
    """Return the list of what command lines asked for; nothing is carried out."""
    found: list[ExportRequest] = []
    monkeypatch.setattr("opbuild.cli.export.carry_out", found.append)
    return found


def test_export_needs_nothing_but_a_model(requested: list[ExportRequest], user_store: Path) -> None:
    """The output is named after the model, the target is this machine, the store is the user's own."""
    assert main(["export", "--model=m.onnx"]) == 0
    (request,) = requested
    assert (request.mode, request.output, request.target, request.log) == (0, Path("m"), "host", "info")
    config = make_config(request)
    assert (config.op_compiler_cache_mode, config.op_compiler_cache_dir) == ("enable", None)
    assert config.cache_path == user_store


def test_atc_has_atcs_defaults(
    requested: list[ExportRequest], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cache is off and in ATC's place, and only warnings are said; each can be changed."""
    assert main(["atc", *GIVEN["atc"]]) == 0
    assert main(["atc", *GIVEN["atc"], "--op_compiler_cache_mode=enable", "--log=info"]) == 0
    assert [make_config(request).op_compiler_cache_mode for request in requested] == ["disable", "enable"]
    assert [request.log for request in requested] == ["warning", "info"]
    assert make_config(requested[1]).op_compiler_cache_dir == folder / "atc_data" / "kernel_cache"


@pytest.mark.parametrize("spelling", [["--model=m.onnx"], ["--model", "m.onnx"], ["m.onnx"]])
def test_the_model_may_be_an_argument(requested: list[ExportRequest], spelling: list[str]) -> None:
    """``opbuild export m.onnx -o out`` is what ``--model`` and ``--output`` say; so it is for ``atc``."""
    assert main(["export", *spelling, "-o", "out"]) == 0
    assert main(["atc", *spelling, "-oout", "--framework=5", "--soc_version=host"]) == 0
    assert [(request.model, request.output) for request in requested] == [(Path("m.onnx"), Path("out"))] * 2


def test_every_setting_reaches_the_build(requested: list[ExportRequest], folder: Path) -> None:
    """Options of the cache, of debugging and of precision are the build's settings, spelled either way."""
    (folder / "debug.cfg").write_text("op_debug_config=oom\n")
    options = {
        "workers": 3, "num_threads": 5, "op_compiler_cache_mode": "force", "op_compiler_cache_dir": Path("cache"),
        "op_debug_level": 2, "op_debug_config": Path("debug.cfg"), "debug_dir": Path(),
        "op_select_implmode": "high_precision", "optypelist_for_implmode": "Conv,Add", "precision_mode": "force_fp32",
    }  # fmt: skip
    for change in (str, lambda name: name.replace("_", "-")):
        arguments = [f"--{change(name)}={value}" for name, value in options.items()]
        assert main(["export", "--model=m.onnx", *arguments]) == 0
    for request in requested:
        config = make_config(request)
        found = {name: getattr(config, name) for name in options}
        assert found == {**options, "optypelist_for_implmode": ("Conv", "Add")}


def test_batch_sizes_become_variants_of_the_open_batch(requested: list[ExportRequest]) -> None:
    """Each size stands for the -1 that comes first; inputs without one keep their shape."""
    arguments = ["--dynamic_batch_size=1, 2,8", "--shape=x:-1,3;y:-1;z:4,5"]
    assert main(["export", "--model=m.onnx", *arguments]) == 0
    (request,) = requested
    assert request.variants == tuple({"x": (size, 3), "y": (size,)} for size in (1, 2, 8))
    assert request.input_shapes == {"x": (-1, 3), "y": (-1,), "z": (4, 5)}


def test_image_sizes_and_lists_of_extents_become_variants(requested: list[ExportRequest]) -> None:
    """Height and width are those of every open image; a list's extents go to each -1 in the order of the inputs."""
    arguments = ["--dynamic_image_size=8,9;16,16", "--shape=x:1,3,-1,-1;y:1,1,-1,-1;z:4,5"]
    assert main(["export", "--model=m.onnx", *arguments]) == 0
    arguments = ["--dynamic_dims=2,8,9; 4,16,16", "--shape=x:-1,3,-1;y:7,-1;z:4,5"]
    assert main(["export", "--model=m.onnx", *arguments]) == 0
    images, lists = (request.variants for request in requested)
    assert images == tuple({"x": (1, 3, h, w), "y": (1, 1, h, w)} for h, w in ((8, 9), (16, 16)))
    assert lists == ({"x": (2, 3, 8), "y": (7, 9)}, {"x": (4, 3, 16), "y": (7, 16)})


def test_ranges_are_passed_on(requested: list[ExportRequest]) -> None:
    """Open extents reach the build as they are written."""
    assert main(["export", "--model=m.onnx", "--shape=x:-1,3,1~640,1~640"]) == 0
    assert requested[0].input_shapes == {"x": (-1, 3, (1, 640), (1, 640))}
    assert requested[0].variants == ()


def test_the_guide_for_atcs_users_has_every_option() -> None:
    """Each option is in the guide, and those that are refused whatever their value are in its last table."""
    text = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "atc.md").read_text(encoding="utf-8")
    for option in {*BAD, *FOREIGN}:
        assert typed("atc", f"--{option}") in text, option
    refused_always = text.partition("Always refused:")[2].partition("## ")[0]
    assert {option for option in FOREIGN if f"`--{option}`" in refused_always} == {
        option for option, (accepted, _) in FOREIGN.items() if not accepted
    }
