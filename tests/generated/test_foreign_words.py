"""Foreign words reach no terminal as orders: names in models, names of files, texts of the store, errors of others."""

from __future__ import annotations

import ast
import io
import json
import logging
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import opbuild
from generated.foreign_words import ORDERS, SURROGATE, hostile_model, orders_in, word
from opbuild.cli.main import main
from opbuild.cli.tables import Terminal
from opbuild.errors import OpbuildError
from opbuild.events import Warned, log_warnings
from opbuild.text.visible import visible
from support.fuzzing import CAMPAIGN, SEED

SOURCES = Path(opbuild.__file__).parent


@pytest.mark.each
@pytest.mark.parametrize("order", [*ORDERS, SURROGATE])
def test_orders_are_written_as_repr_writes_them(order: str) -> None:
    """What prints stays as it is, in any script; what does not is shown by its escape."""
    assert not orders_in(visible(f"a{order}b"))
    assert visible("größe 層 \n weight:0 [red]") == "größe 層 \n weight:0 [red]"
    assert visible("\x1b]52;c;x\x07") == r"\x1b]52;c;x\x07"


def commands(model: str, folder: Path) -> list[list[str]]:
    """Return the commands that say something of a model or of the store."""
    store, remote = [f"--cache_path={folder / 'store'}"], f"file://{folder / 'remote'}"
    return [
        ["explain", model, *store],
        ["explain", model, *store, "--json"],
        ["compile", model, *store],
        ["run", model, *store],
        ["run", model, *store, "--output_dir", str(folder / "out")],
        ["profile", model, *store],
        ["profile", model, *store, "--by", "kernel"],
        ["report", model, *store, "-o", str(folder / "page.html")],
        ["export", "--model", model, "--output", str(folder / "file"), "--log", "debug"],
        ["export", "--model", model, "--mode", "3", "--check_report", str(folder / "all.json")],
        ["run", str(folder / "file.om")],
        ["atc", f"--model={model}", "--framework=5", f"--output={folder / 'atc'}", "--soc_version=host"],
        ["warm", model, *store],
        ["push", model, remote, *store],
        ["pull", remote, model, *store],
        ["cache", "check", "--remote", remote],
        ["cache", "export", str(folder / "bundle"), "--model", model, *store],
        ["cache", "ls", *store],
        ["cache", "ls", *store, "--json"],
        *(["cache", "show", file.stem, *store] for file in sorted(folder.glob("store/rank_0/*_meta/*.json"))[:4]),
        ["cache", "stats", *store],
        ["cache", "verify", *store],
        ["bank", "ls"],
        ["cache", "clear", *store],
    ]


def mistakes(model: str, draw: random.Random) -> list[list[str]]:
    """Return commands that somebody else's script has put foreign words in."""
    return [
        ["run", model, "--shape", word(draw, "x")],
        ["compile", model, word(draw, "--option")],
        ["compile", word(draw, "missing")],
        ["compile", model, f"--cache_path={word(draw, 'folder')}"],
        ["cache", "show", word(draw, "name")],
        ["cache", "check", "--remote", word(draw, "file://")],
        [word(draw, "command")],
    ]


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Return the exit code of a command and what it writes, in which there are no orders."""
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code = main(arguments)
    written = capsys.readouterr()
    assert not orders_in(written.out + written.err), (arguments, written)
    if "--json" in arguments and written.out:
        json.loads(written.out)
    return code, written.out


SEEDS = range(SEED, SEED + (max(CAMPAIGN // 100, 3) if CAMPAIGN else 2))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_command_gives_a_terminal_orders_of_a_model(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every name and text of a model, and the model's file's, gives orders; every command is run on it."""
    draw = random.Random(seed)
    name = word(draw, "model").replace("/", "-") + draw.choice(("", SURROGATE))
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(hostile_model(draw).SerializeToString())
    monkeypatch.chdir(tmp_path)
    for arguments in (*commands(str(path), tmp_path), *mistakes(str(path), draw)):
        said(arguments, capsys)
    page = tmp_path / "page.html"
    if page.exists():
        assert not orders_in(page.read_text(encoding="utf-8"))


def test_a_terminal_gets_only_the_orders_of_what_draws_on_it(tmp_path: Path) -> None:
    """Tables, bars and coloured lines keep their own orders; brackets in foreign words are brackets."""
    from rich.table import Table
    from rich.text import Text

    for order in ORDERS:
        file = io.StringIO()
        console = Terminal(file=file, force_terminal=True, color_system="standard", width=200, highlight=False)
        table = Table("name", f"a{order}", title=f"t{order}")
        table.add_row(Text(f"b{order}", "red"), f"c{order}")
        console.print(table)
        console.print(f"d{order}", Text(f"e{order}", "yellow"))
        bare = file.getvalue().replace("\x1b[31m", "").replace("\x1b[33m", "").replace("\x1b[0m", "")
        for style in ("\x1b[1m", "\x1b[3m", "\x1b[1;31m", "\x1b[1;33m"):
            bare = bare.replace(style, "")
        assert not orders_in(bare), bare
        if order.startswith("["):
            assert bare.count(order) == 6


def test_errors_warnings_and_what_is_logged_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    """Programs that print an error or log a warning give no orders either."""
    for order in (*ORDERS, SURROGATE):
        error = OpbuildError(f"node 'a{order}'", f"rename a{order}", command=f"--name a{order}")
        assert not orders_in(str(error) + error.message + error.hint + error.command_hint + str(error.args[0]))
        with caplog.at_level(logging.WARNING, "opbuild"):
            log_warnings(Warned(f"foreign {order}"))
    assert not orders_in(caplog.text)


@pytest.mark.slow
def test_a_damaged_store_gives_no_orders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of strange files, and texts in records, are shown by the commands on the store."""
    draw = random.Random(SEED)
    path = tmp_path / "m.onnx"
    path.write_bytes(plain_model())
    said(["compile", str(path), "--cache_path", str(tmp_path / "store")], capsys)
    for file in [each for each in (tmp_path / "store").rglob("*") if each.suffix in (".info", ".json")]:
        file.write_text(json.dumps(_hostile(json.loads(file.read_text()), draw)))
        (file.parent / (word(draw, "stray").replace("/", "-") + SURROGATE)).write_text("x")
    for arguments in commands(str(path), tmp_path):
        said(arguments, capsys)


@pytest.mark.slow
def test_the_commands_are_such_as_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a model that gives no orders each command says something: one that is mistyped would show nothing."""
    path = tmp_path / "m.onnx"
    path.write_bytes(plain_model())
    for arguments in commands(str(path), tmp_path):
        assert said(arguments, capsys)[0] == 0, arguments


def plain_model() -> bytes:
    """Return a model without any orders."""
    from generated.growing import chain, model

    return model(chain(2, "Sin", "Softmax"), ["y"]).SerializeToString()


def _hostile(value: Any, draw: random.Random) -> Any:
    """Return a JSON value with orders in some of its texts."""
    if isinstance(value, dict):
        return {key: _hostile(each, draw) for key, each in value.items()}
    if isinstance(value, list):
        return [_hostile(each, draw) for each in value]
    return word(draw, value) if isinstance(value, str) and draw.random() < 0.3 else value


def test_a_traceback_gives_no_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends the program unexpectedly may have foreign words in its text."""
    from opbuild.__main__ import _show

    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    try:
        raise ValueError("".join((*ORDERS, SURROGATE)))
    except ValueError as error:
        _show(type(error), error, error.__traceback__)
    assert "ValueError" in stream.getvalue()
    assert not orders_in(stream.getvalue())


def test_commands_write_through_one_place() -> None:
    """No command prints, echoes or makes a console by itself: what it forgot would be an order."""
    own = {"streams.py", "interrupt.py"}
    for path in sorted((SOURCES / "cli").glob("*.py")):
        if path.name not in own:
            calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            found = {ast.unparse(each) for each in calls} & {"print", "click.echo", "click.secho", "Console"}
            assert not found, f"{path.name}: {found}: use opbuild.cli.streams.echo or opbuild.cli.tables.Terminal"
