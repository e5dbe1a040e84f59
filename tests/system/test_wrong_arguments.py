"""Every command with every wrong thing: one line that says what, one that says what to do, and the same exit code."""

from __future__ import annotations

import ast
import io
import itertools
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opbuild
from opbuild.cli.main import main
from opbuild.cli.options import Whole
from opbuild.cli.streams import show_failure
from opbuild.errors import FileError, OpbuildError
from opbuild.platform.files import kinds as file_kinds
from opbuild.target.host import BUILDABLE
from opbuild.text.plural import counted, verb
from support.commands import all_commands
from support.small_network import SHAPE, SmallNetwork

pytestmark = pytest.mark.usefixtures("kept_objects")

SOURCE = Path(opbuild.__file__).parent

PYTHON = re.compile(r"\b\w+=[\[{('\"]|\bopbuild\.(compile|load|export)\b")
"""What only who writes Python can use."""
COMMAND = re.compile(r"(?<![\w-])--[a-z]\w+|\bopbuild (compile|export|explain|run) ")
"""What only who types a command can use."""

MODEL: dict[str, list[str]] = {
    "compile": ["compile", "FILE"],
    "run": ["run", "FILE"],
    "explain": ["explain", "FILE"],
    "report": ["report", "FILE"],
    "profile": ["profile", "FILE"],
    "bench": ["bench", "FILE"],
    "export": ["export", "--model=FILE"],
    "check": ["export", "--mode=3", "--model=FILE"],
    "json": ["export", "--mode=1", "--model=FILE", "--json=out.json"],
    "atc": ["atc", "--model=FILE", "--framework=5", "--output=out", "--soc_version=host"],
    "cache export": ["cache", "export", "out.bundle", "--model=FILE"],
}
"""Commands that take an ONNX model."""
OTHERS: dict[str, list[str]] = {
    "show": ["export", "--mode=6", "--om=FILE"],
    "launch": ["launch", "-n", "1", "FILE"],
    "import": ["cache", "import", "FILE"],
    "input": ["run", "small.onnx", "--shape", "x:64,256", "--input", "x=FILE"],
}

FAULTS: dict[str, tuple[str, int, str]] = {
    "missing": ("nothing.onnx", 2, "there is no file 'nothing.onnx'"),
    "a folder": ("folder", 2, "'folder' is a folder"),
    "empty": ("empty.onnx", 2, "'empty.onnx' is empty"),
    "an image": ("image.onnx", 2, "'image.onnx' is a PNG image, not an ONNX model"),
    "PyTorch's": ("model.pt", 2, "'model.pt' is a PyTorch file or another zip archive, not an ONNX model"),
    "garbage": (
        "garbage.onnx",
        3,
        "'garbage.onnx' is not an ONNX model: it is truncated, damaged or of another format",
    ),
    "a name too long": ("a" * 400, 2, f"'{'a' * 400}' cannot be read: File name too long"),
    "not readable": ("small.onnx", 2, "'small.onnx' cannot be read: Permission denied"),
}
"""What is given, the exit code, and what is said."""
BUILT: dict[str, tuple[str, int, str]] = {
    "an offline model": ("built.om", 2, "'built.om' is an offline model (.om), not an ONNX model"),
    "a script": ("script.py", 2, "'script.py' is a Python script, not an ONNX model"),
}
"""The same, but for commands that take them."""
TAKEN = {
    ("run", "an offline model"),
    ("run", "a script"),
    ("report", "an offline model"),
    ("profile", "an offline model"),
}


@pytest.fixture
def folder(small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files of every kind."""
    (tmp_path / "small.onnx").write_bytes(small_network.path.read_bytes())
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "image.onnx").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04" + bytes(100))
    (tmp_path / "garbage.onnx").write_bytes(b"\xde\xad\xbe\xef" * 50)
    (tmp_path / "built.om").write_bytes(file_kinds.OFFLINE_MAGIC + bytes(100))
    (tmp_path / "script.py").write_text("raise SystemExit('it ran')")
    for name in ("MS_COMPILER_CACHE_PATH", "ASCEND_CACHE_PATH", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(command: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run a command that fails; return its exit code, message and hint, after looking at its form."""
    code = main(command)
    captured = capfd.readouterr()
    if command[0] == "atc":
        _, failed, first, second = captured.out.splitlines()
        assert failed.startswith("ATC run failed")
        message, hint = first.partition(": ")[2], second.removeprefix("        Solution: ")
        assert hint != second
    else:
        first, second = captured.err.splitlines()
        assert re.match(r"error \([a-z ]+\): ", first)
        message, hint = first.partition("): ")[2], second.removeprefix("  hint: ")
        assert hint != second
    assert "Traceback" not in captured.err + captured.out
    assert not PYTHON.search(message + hint), message + hint
    return code, message, hint


def _unreadable(path: Path) -> str:
    """Stand in for a file system: who may do anything is refused nothing by modes."""
    if path.name in ("small.onnx", "built.om"):
        raise PermissionError(13, os.strerror(13))
    return ""


@pytest.mark.parametrize("fault", [*FAULTS, *BUILT])
@pytest.mark.parametrize("command", MODEL)
def test_a_wrong_file_is_the_same_error_in_every_command_and_in_python(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], command: str, fault: str
) -> None:
    """It was a directory here and a folder there, exit code 2 or 3, with the right call nowhere."""
    if (command, fault) in TAKEN:
        return
    name, code, message = {**FAULTS, **BUILT}[fault]
    if fault == "not readable":
        monkeypatch.setattr(file_kinds, "kind_of", _unreadable)
        monkeypatch.setattr("opbuild.cli.run.kind_of", _unreadable)
    found = said([argument.replace("FILE", name) for argument in MODEL[command]], capfd)
    assert found[:2] == (code, message)
    with pytest.raises(OpbuildError) as caught:
        opbuild.compile(name)
    assert (caught.value.message, caught.value.exit_code) == (message, code)
    assert not COMMAND.search(caught.value.hint)


@pytest.mark.parametrize("fault", ["missing", "a folder", "empty", "an image", "garbage", "not readable"])
@pytest.mark.parametrize("command", OTHERS)
def test_a_wrong_file_of_another_kind_is_the_same_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], command: str, fault: str
) -> None:
    """Offline models, scripts, bundles and arrays are named in the same words."""
    if (command, fault) == ("launch", "garbage"):
        return  # text that is no Python is Python's to say
    name, _, message = FAULTS[fault]
    if fault == "not readable":
        name, message = "built.om", message.replace("small.onnx", "built.om")
        kind_of = file_kinds.kind_of

        def refusing(path: Path) -> str:
            return _unreadable(path) if path.suffix == ".om" else kind_of(path)

        monkeypatch.setattr(file_kinds, "kind_of", refusing)
    if command == "launch" and fault == "empty":
        name, message = "folder", FAULTS["a folder"][2]  # an empty script is one
    code, found, hint = said([argument.replace("FILE", name) for argument in OTHERS[command]], capfd)
    assert code in (2, 3)
    assert message.partition(",")[0].partition(" not ")[0] in found
    assert hint


@pytest.mark.parametrize(
    ("path", "instead"), [("small.onnx", r"opbuild\.compile\('small.onnx'\)"), ("script.py", "python")]
)
def test_load_names_the_call_for_what_it_is_given(folder: Path, path: str, instead: str) -> None:
    """And ``compile`` the one for an offline model."""
    with pytest.raises(FileError, match=instead):
        opbuild.load(path)
    with pytest.raises(FileError, match=r"opbuild\.load\('built.om'\)"):
        opbuild.compile("built.om")


def test_run_names_no_other_call_for_what_it_runs(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The kind of a file decides how it is run, whatever its name ends with."""
    (folder / "built.om").rename("built.onnx")
    assert main(["run", "built.onnx"]) == 3
    assert "'built.onnx' has version 0 of the format" in capfd.readouterr().err
    assert main(["run", "script.py"]) == 1


OVER_THE_MODEL: dict[str, tuple[list[str], str]] = {
    "export": (["export", "model.om"], "--output is 'model.om', which is the model"),
    "atc": (["atc", "model.om", "--framework=5", "--output=link", "--soc_version=host"],
            "--output is 'link.om', which is the model"),
    "json": (["export", "--mode=1", "model.om", "--json=model.om"], "--json is 'model.om'"),
    "check": (["export", "--mode=3", "model.om", "--check_report=./model.om"], "--check_report is 'model.om'"),
    "cache export": (["cache", "export", "model.om", "--model=model.om"],
               "the bundle 'model.om' cannot be written: it is the model"),
}  # fmt: skip


@pytest.mark.parametrize("command", OVER_THE_MODEL)
def test_nothing_is_written_over_the_model(folder: Path, capfd: pytest.CaptureFixture[str], command: str) -> None:
    """A model whose name ends with ``.om`` was replaced by what it was built into, and lost."""
    (folder / "small.onnx").rename("model.om")
    (folder / "link.om").symlink_to("model.om")
    before = (folder / "model.om").read_bytes()
    arguments, message = OVER_THE_MODEL[command]
    assert said(arguments, capfd)[:2] == (2, message)
    with pytest.raises(OpbuildError, match=r"output is 'model.om', which is the model"):
        opbuild.export("model.om", "model", input_shapes={"x": (64, 256)})
    assert (folder / "model.om").read_bytes() == before


COMMANDS = all_commands()
NUMBERS = [
    (name, option) for name, each in COMMANDS.items() for option in each.params if isinstance(option.type, Whole)
]


@pytest.mark.parametrize("name", COMMANDS, ids=" ".join)
def test_an_unknown_option_is_named_and_help_is_offered(
    folder: Path, capfd: pytest.CaptureFixture[str], name: tuple[str, ...]
) -> None:
    """In every command."""
    code, message, hint = said([*name, "--no_such_option"], capfd)
    assert code == 2
    assert "no_such_option" in message
    if name != ("atc",):
        assert hint == f"'opbuild {' '.join(name)} --help' lists what it takes"


HELP = "'opbuild {} --help' lists what it takes"
LEVELS = f"it may be {BUILDABLE}"
USAGE: dict[str, tuple[str, str]] = {
    "run --modle=x": ("there is no option '--modle'", f"did you mean --model? {HELP.format('run')}"),
    "export --input_shap=x": ("there is no option '--input_shap'",
                               f"did you mean --shape? {HELP.format('export')}"),
    "run small.onnx --input": ("--input needs a value", HELP.format("run")),
    "cache show": ("NAME is missing", HELP.format("cache show")),
    "cache lss": ("there is no command 'lss'", f"did you mean ls? {HELP.format('cache')}"),
    "compil small.onnx": ("there is no command 'compil'", "did you mean compile? 'opbuild --help' lists what it takes"),
    "launch script.py": ("--num_ranks is missing", HELP.format("launch")),
    "launch -n 2": ("SCRIPT.py is missing", HELP.format("launch")),
    "compile small.onnx more": ("too many arguments: more", HELP.format("compile")),
    "run small.onnx a b": ("too many arguments: a b", HELP.format("run")),
    "compile": ("the model is missing", "give its path: opbuild compile MODEL.onnx"),
    "run": ("the model is missing", "give its path: opbuild run SCRIPT.py|MODEL.onnx|MODEL.om"),
    "compile ''": ("MODEL.onnx is empty", "it must be the path of a file"),
    "run --model=": ("--model is empty", "it must be the path of a file"),
    "example squeezenet -o ''": ("--output is empty", "it must be the file to write"),
    "operators --type=float": ("--type is 'float'",
                               "it must be bool, uint8, uint16, uint32, uint64, int8, int16, int32, "
                               "int64, float16, float32, float64, bfloat16, float8_e4m3fn, float8_e4m3fnuz, "
                               "float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu, float4_e2m1fn, int4, uint4, int2 "
                               "or uint2"),
    "run built.om --workers=2": ("--workers is for models to build, and 'built.om' is built", "leave it out"),
    "run --report=page.html script.py": ("--report is for models, and 'script.py' is a script",
                                         "leave it out, or put what is the script's own behind its name"),
    "profile": ("the model is missing", "give its path: opbuild profile MODEL.onnx|MODEL.om"),
    "profile small.onnx --by=shape": ("--by is 'shape'", "it must be layer or kernel"),
    "bench small.onnx --runtime=caffe": (
        "--runtime is 'caffe'", "it must be opbuild, onnxruntime, openvino, mnn, ncnn or torch",
    ),
    "bench small.onnx --num_threads=0": ("--num_threads is '0'", "it must be an integer from 1 to 1024"),
    "bench small.onnx --output=folder": (
        "--output is 'folder'", "it must be the file to write in a folder that you may write to, and it is a folder"
    ),
    "bench small.onnx": (
        "input 'x' has the open shape [?,256]",
        'give numbers for each ?: --shape "x:?,256", or data: --input "x=FILE.npy"',
    ),
    "run --seed=1 script.py": ("--seed is for models, and 'script.py' is a script",
                               "leave it out, or put what is the script's own behind its name"),
    "compile small.onnx --shape=x:-1,256": (
        "--shape 'x:-1,256' has the dimension '-1'",
        'give a number: only .om files leave dimensions open; write it as "data:1,3,224,224", and several inputs as '
        '"a:1,8;b:1,16"',
    ),
    "export --mode=6": ("--om is missing", "mode 6 needs it: --om=FILE.om"),
    "export --mode=6 built.om --om=built.om": (
        "the file is given twice: 'built.om' and --om 'built.om'", "give it once"
    ),
    "atc": ("--model is missing", "mode 0 needs it: --model=FILE.onnx"),
    "run small.onnx --input garbage.onnx": (
        "--input garbage.onnx: 'garbage.onnx' is an ONNX model, not a numpy array (.npy)",
        "give --input NAME=FILE.npy, once for each input that has data",
    ),
    "run small.onnx --input x=model.txt": (
        "--input x=model.txt: 'model.txt' is not a numpy array (.npy) of numbers, or it is damaged",
        "save one: numpy.save(FILE, array)",
    ),
    "run --serve=numpy script.py": ("--serve is 'numpy'", "it must be mindspore or onnxruntime"),
    "compile small.onnx --target=z80": ("--target is 'z80': there is no level 'z80'", LEVELS),
    "warm small.onnx --target=host,z80": ("--target has 'z80': there is no level 'z80'", LEVELS),
    "push small.onnx": ("the model or the URL is missing", "give both: opbuild push MODEL.onnx... URL"),
    "pull file:///no/folder": (
        "URL is 'file:///no/folder', and there is no such folder", "give the one that 'opbuild push' wrote to"
    ),
    "bank import garbage.onnx": (
        "'garbage.onnx' is no tuning database", "give the files that 'opbuild bank export' wrote"
    ),
    "bank export no/bank": (
        "the tuning database 'no/bank' cannot be written: there is no folder 'no'", "name another file"
    ),
    "run small.onnx --input =x.npy": (
        "--input is '=x.npy'", "give --input NAME=FILE.npy, once for each input that has data"
    ),
}  # fmt: skip


@pytest.mark.parametrize("typed", USAGE)
def test_a_wrong_command_line_is_said_in_one_wording(
    folder: Path, capfd: pytest.CaptureFixture[str], typed: str
) -> None:
    """Click's sentences stood beside opbuild's own: no nearest command, the hint for another one, '.' for nothing."""
    (folder / "model.txt").write_text("text")
    assert said(shlex.split(typed), capfd) == (2, *USAGE[typed])


@pytest.mark.parametrize("typed", ["push small.onnx redis://host", "pull redis://host"])
def test_a_server_that_needs_a_package_is_an_error_that_names_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], typed: str
) -> None:
    """Before anything is asked for."""
    monkeypatch.setitem(sys.modules, "opendal", None)
    assert said(typed.split(), capfd) == (5, "the package opendal is not installed", "pip install 'opbuild[remote]'")


@pytest.mark.parametrize(
    "command",
    ["compile small.onnx", "run small.onnx", "run built.om", "explain small.onnx", "report small.onnx",
     "profile small.onnx", "cache ls", "cache export x.bundle", "export small.onnx",
     "atc small.onnx --framework=5 --output=out --soc_version=host"],
)  # fmt: skip
@pytest.mark.parametrize("option", ["cache_path", "op_compiler_cache_dir", "output_dir"])
def test_a_file_where_a_folder_must_be_is_refused_by_every_command(
    folder: Path, capfd: pytest.CaptureFixture[str], command: str, option: str
) -> None:
    """``compile`` built all the same, and kept nothing."""
    words = command.split()
    found = COMMANDS[tuple(words[:2])] if words[0] == "cache" else COMMANDS[(words[0],)]
    if option in {each.name for each in found.params}:
        said_here = said([*words, f"--{option}=small.onnx"], capfd)
        assert said_here == (2, f"--{option} is 'small.onnx'", "it must be a folder, which is made if it is missing")


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {}])
def test_errors_have_no_colours_where_none_are_wanted(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """``NO_COLOR`` held for tables and not for errors."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    show_failure(OpbuildError("message", "hint"), terminal)
    assert ("\x1b" in terminal.getvalue()) == (not variables)


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "99999999999999999999", ""])
@pytest.mark.parametrize(("name", "option"), NUMBERS, ids=lambda each: getattr(each, "name", None) or " ".join(each))
def test_a_number_out_of_range_says_the_range(
    folder: Path, capfd: pytest.CaptureFixture[str], name: tuple[str, ...], option: Any, value: str
) -> None:
    """It was "not in the range x>=1"."""
    if value == "99999999999999999999" and option.type.greatest is None:
        value = "-" + value
    spelled = max(option.opts, key=len)
    code, message, hint = said([*name, f"{spelled}={value}", "small.onnx"], capfd)
    assert (code, message) == (2, f"{spelled} is {value!r}" if value else f"{spelled} is empty")
    assert re.fullmatch(r"it must be an integer (of at least \d+|from \d+ to \d+)", hint)


VARIABLES = [
    "MS_BUILD_PROCESS_NUM",
    "OPBUILD_NUM_THREADS",
    "OPBUILD_COMPILE_TIMEOUT",
    "RANK_SIZE",
    "DEVICE_ID",
    "RANK_ID",
]


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("value", ["x", "-1", "99999999999"])
def test_a_variable_out_of_range_says_the_range(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], variable: str, value: str
) -> None:
    """The same for what the environment says."""
    monkeypatch.setenv(variable, value)
    code, message, hint = said(["compile", "small.onnx"], capfd)
    assert (code, message) == (2, f"{variable} is {value!r}")
    assert re.fullmatch(r"it must be an integer from \d+ to \d+", hint)


def test_hints_are_in_the_idiom_of_the_place(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """``--shape`` on the command line, ``input_shapes={...}`` in Python; one message had both."""
    code, _, hint = said(["export", "--model=small.onnx"], capfd)
    assert (code, hint) == (3, 'give it: --shape "x:..."')
    with pytest.raises(OpbuildError) as caught:
        opbuild.export("small.onnx", "out")
    assert caught.value.hint == "give it: input_shapes={'x': (...)}; for a file of many sizes give variants or ranges"
    np.save(folder / "x.npy", np.ones((64, 255), np.float32))
    code, _, hint = said(["run", "small.onnx", "--input", "x=x.npy"], capfd)
    assert code == 4
    (folder / "script.py").write_text("import opbuild\nopbuild.compile('small.onnx', num_threads=0)")
    code, message, hint = said(["run", "script.py"], capfd)
    assert message == "num_threads is 0 (script.py:2, in <module>)"


def _texts(node: ast.AST) -> str:
    """Return the text of a string in the sources, with ``{}`` for what is put in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_texts(part) for part in node.values)
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, (ast.BinOp, ast.IfExp, ast.BoolOp)):
        return " ".join(_texts(part) for part in ast.iter_child_nodes(node))
    return "{}" if isinstance(node, ast.FormattedValue) else ""


def _errors() -> Iterator[tuple[Path, ast.Call]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(getattr(node, "func", None), "id", "")
            if isinstance(node, ast.Call) and name.endswith("Error") and len(node.args) > 1:
                yield path.relative_to(SOURCE), node


SCRIPTS = ("mindspore", "user_operators")
"""Whose errors only programs meet."""
STARTERS = ("ranks",)
"""What only a command can start."""
COMMANDS_ONLY = ("cli", "tuning")
"""Whose errors only commands meet."""


def test_no_hint_of_a_command_is_python_and_none_of_python_is_a_commands() -> None:
    """Where both can meet an error, it has a hint for each; found for every error in the sources."""
    wrong, looked_at = [], 0
    for path, call in _errors():
        hint = re.sub(r"^pip install .*", "", _texts(call.args[1]))
        command = next((_texts(each.value) for each in call.keywords if each.arg == "command"), None)
        looked_at += 1
        if path.parts[0] in STARTERS:
            continue
        if path.parts[0] in COMMANDS_ONLY:
            bad = PYTHON.search(hint)
        elif path.parts[0] in SCRIPTS:
            bad = COMMAND.search(hint)
        else:
            bad = COMMAND.search(hint) or PYTHON.search(hint if command is None else command)
        if bad:
            wrong.append(f"{path}:{call.lineno}: {hint}")
    assert looked_at > 300
    assert wrong == []


THINGS = "operators|entries|files|ranks|networks|inputs|outputs|dimensions|arrays|nodes|parts|values|extents|axes|terms"
KERNELS = ("backend", "families", "kernel", "lowering", "mindspore", "operations")
"""Where messages are about sizes that are never one, or for whoever writes kernels."""


def test_plurals_are_made_in_one_place() -> None:
    """``1 operators`` went to users from a dozen places: a number before a plural comes from ``counted``."""
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        if place.parts[0] in KERNELS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            parts = node.values if isinstance(node, ast.JoinedStr) else []
            for number, text in itertools.pairwise(parts):
                if isinstance(number, ast.FormattedValue) and re.match(rf" ({THINGS})\b", _texts(text)):
                    wrong.append(f"{place}:{node.lineno}: {_texts(node)}")
    assert wrong == []


@pytest.mark.parametrize(("number", "text"), [(0, "0 entries were"), (1, "1 entry was"), (2, "2 entries were")])
def test_one_is_singular(number: int, text: str) -> None:
    """And nothing is plural."""
    assert f"{counted(number, 'entry', 'entries')} {verb(number, 'was', 'were')}" == text


def test_one_operator_is_one_operator(
    folder: Path, small_network: SmallNetwork, capfd: pytest.CaptureFixture[str]
) -> None:
    """In what commands print of a build."""
    with small_network.replayed():
        assert main(["compile", "small.onnx", "--shape", f"x:{SHAPE[0]},{SHAPE[1]}"]) == 0
        assert main(["cache", "ls"]) == 0
        assert main(["run", "small.onnx", "--shape", "x:64,256", "--runs", "1"]) == 0
    captured = capfd.readouterr()
    assert not re.search(rf"\b1 ({THINGS}|calls)\b", captured.out + captured.err)
    assert "1 call\n" in captured.out
