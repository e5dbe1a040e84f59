"""Every command that builds, or looks at what would be built, tells the user all that he must know."""

from __future__ import annotations

from pathlib import Path

import pytest

from opbuild.cli.main import main
from support.small_network import SmallNetwork

SIZES = ("--shape=x:64,256", "--input_shape=x:64,256")
"""Of the network, for opbuild's own commands and for ATC's."""
ATC = ("--framework=5", "--output=m", "--soc_version=host", "--op_compiler_cache_mode=enable")
EXPORT = ("--output=m", "--op_compiler_cache_mode=enable")
COMMANDS = {
    "compile": (), "run": ("--runs=1",), "export": (), "export --dry_run": ("--dry_run",), "explain": (),
    "atc": ATC, "atc --dry_run": (*ATC, "--dry_run"), "atc --log=warning": (*ATC, "--log=warning"),
    "atc --explain": (*ATC, "--explain"),
}  # fmt: skip
"""A way to call each command that opens the store."""

BROKEN = {
    "max_op_cache_size=much\nremain_cache_size_ratio=50": "line 2 does not count: max_op_cache_size is 'much'",
    "max_op_cache_size=5": "it gives no remain_cache_size_ratio",
    "max_op_cache_size=5\nremain_cache_size_ratio=0": "line 3 does not count: remain_cache_size_ratio is '0'",
}
"""What may stand in ``op_cache.ini``, and what is said of it."""


@pytest.mark.parametrize(
    ("command", "content"), [*((name, next(iter(BROKEN))) for name in COMMANDS), *(("atc", text) for text in BROKEN)]
)
def test_every_command_says_what_is_wrong_with_the_settings(
    small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, content: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """``opbuild atc`` was silent about an ``op_cache.ini`` that is not valid, and dry runs said it bare."""
    monkeypatch.chdir(tmp_path)
    settings = tmp_path / "cache" / "rank_0" / "op_cache.ini"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"[op_compiler_cache]\n{content}\n", encoding="utf-8")
    given = [*COMMANDS[command], f"--cache_path={tmp_path / 'cache'}"]
    name = command.partition(" ")[0]
    with small_network.replayed():
        assert main([name, str(small_network.path), SIZES[name == "atc"], *given]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("warning: ") == 1
    assert (
        f"warning: {settings} {BROKEN[content]}" in said
        or f"warning: {settings} does not count: {BROKEN[content]}" in said
    )


@pytest.mark.parametrize("command", ["export", "atc"])
def test_who_asks_for_silence_gets_it(
    small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """``--log=error`` and ``--log=null`` print no warning, in a dry run either."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASCEND_MAX_OP_CACHE_SIZE", "much")
    for log in ("error", "null"):
        for more in ((), ("--dry_run",)):
            with small_network.replayed():
                given = [*(ATC if command == "atc" else EXPORT), f"--log={log}", *more]
                assert main([command, str(small_network.path), SIZES[command == "atc"], *given]) == 0
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize("words", ["compile", "explain", "run small.om", "report small.om", "cache ls", "env"])
def test_every_command_says_once_that_a_variable_is_unknown(
    small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str,
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Also those that only look, and of a model that is built already; silence is not asked for."""
    monkeypatch.chdir(tmp_path)
    given = [str(small_network.path), SIZES[0]] if words in ("compile", "explain") else []
    with small_network.replayed():
        assert main(["export", str(small_network.path), SIZES[0], "--output=small"]) == 0
        capsys.readouterr()
        monkeypatch.setenv("OPBUILD_CACH", "elsewhere")
        assert main([*words.split(), *given]) == 0
    said = " ".join((capsys.readouterr().err + caplog.text).split())
    assert said.count("OPBUILD_CACH is set, and opbuild knows no such variable: did you mean OPBUILD_CACHE?") == 1
