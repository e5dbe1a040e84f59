"""``opbuild export`` and ``atc``: a model in, one offline model (``.om``) out; atc has ATC's defaults and messages."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import click
from rich.text import Text

from opbuild.cli.build_log import StorageWatch, build_log, make_warner, stored_in
from opbuild.cli.export_options import (
    ATC_DEFAULTS,
    BUILD,
    CHECK,
    EXPORT_DEFAULTS,
    SHOW,
    ExportRequest,
    export_options,
    in_atc_names,
    make_request,
)
from opbuild.cli.options import CommandLineError, new_file
from opbuild.cli.streams import echo, message_of, usage_error
from opbuild.cli.tables import output_console, plain_table, say, show_report, text_table
from opbuild.config import Config
from opbuild.errors import (
    BuildError,
    FileError,
    InputError,
    InvalidModelError,
    ModelError,
    OpbuildError,
    OptionError,
    RankError,
    ShapeError,
    TargetError,
    UnsupportedOperatorError,
)
from opbuild.frontend.input_shape import InputShapeError, split_shapes
from opbuild.offline.file import OfflineModel, read_offline
from opbuild.offline.format import GRAPH, LIBRARY, PLAN, PROGRAM, WEIGHTS
from opbuild.platform.files.trust import make_trust
from opbuild.platform.limits import unwritten
from opbuild.platform.packages import missing_package
from opbuild.platform.paths import Path
from opbuild.runtime.record_json import to_json
from opbuild.target.host import compared
from opbuild.text.plural import counted

SHOWN_SIGNATURES = 8
_KINDS = ((LIBRARY, "library"), (WEIGHTS, "weights"), (PLAN, "plans"), (PROGRAM, "tables for C"), (GRAPH, "graph"))


def show(path: Path) -> None:
    """Print the content of an offline model."""
    model = read_offline(path, trust=make_trust(Config.from_environment()))
    table = plain_table("", "", header=False)
    table.columns[1].overflow = "fold"
    for name, value in _rows(model):
        table.add_row(Text(name), Text(value))
    console = output_console()
    console.print(table)
    operators = [(name, ", ".join(nodes)) for name, nodes in model.build.get("operators", [])]
    if operators:
        console.print()
        console.print(text_table(("operator", "nodes"), operators))


def _rows(model: OfflineModel) -> list[tuple[str, str]]:
    served = [str(model.build["ranges"])] if model.build.get("ranges") else model.served
    signatures = served[:SHOWN_SIGNATURES]
    if len(served) > SHOWN_SIGNATURES:
        signatures.append(f"and {len(served) - SHOWN_SIGNATURES} more")
    if model.build.get("ranges"):
        signatures.append(f"stored whole, and run from C: {model.served[0]}")
    rows = [
        ("network", model.name),
        ("level", compared(model.level)),
        ("inputs", ", ".join(map(" ".join, model.inputs))),
        ("shapes", "\n".join(signatures)),
        ("outputs", ", ".join(model.outputs)),
        ("operators", str(len(model.build.get("operators", [])))),
    ]
    rows += [(name, str(model.build[name])) for name in ("opbuild", "compiler", "model") if model.build.get(name)]
    for kind, name in _KINDS:
        places = model.container.places.items()
        size = sum(length for (each, _), (_, length) in places if each == kind)
        if size:
            rows.append((name, f"{size} bytes"))
    return rows


def write_json(om: Path | None, model: Path | None, target: Path) -> None:
    """Write an offline model, or a model, as readable JSON; as ATC does, also a model that ``om`` names."""
    if om is not None and om.suffix == ".om":
        content = _describe(read_offline(om, trust=make_trust(Config.from_environment())))
    else:
        from opbuild.frontend.onnx_inspect import describe_model

        content = describe_model(str(om or model))
    write_report(content, "json", target)


def write_report(content: Mapping[str, Any], option: str, target: Path) -> None:
    """Write JSON for people into a file that an option names."""
    try:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        target.write_text(text, "utf-8", "backslashreplace")  # names of files may be no UTF-8
    except OSError as error:
        raise unwritten(
            f"--{option} is {str(target)!r}, which", error, "it must be a file that you may write"
        ) from error


def _describe(model: OfflineModel) -> dict[str, Any]:
    plans = [to_json(model.record(index)) for index in range(len(model.signatures))]
    return {
        "name": model.name,
        "target": model.level.name,
        "inputs": [{"name": name, "type": dtype} for name, dtype in model.inputs],
        "outputs": list(model.outputs),
        "signatures": model.served,
        "build": dict(model.build),
        "plans": plans,
    }


@click.command()
@export_options(EXPORT_DEFAULTS)
def export(**options: Any) -> None:
    """Build MODEL.onnx into one .om file, which runs without the compiler, in Python and from C.

    Operators come from the store that 'opbuild compile' and 'opbuild run' use too, and go there. --target builds for
    other machines than this one. Most options have the names and meanings of ATC, the compiler of Huawei's CANN.
    """
    carry_out(make_request(options, EXPORT_DEFAULTS))


def carry_out(request: ExportRequest) -> None:
    """Carry out a command line."""
    if request.mode == BUILD:
        _preview(request) if request.dry_run else _build(request)
    elif request.mode == CHECK:
        _check(request)
    elif request.mode == SHOW:
        show(cast("Path", request.om))
    else:
        write_json(request.om, request.model, cast("Path", request.json))


def make_config(request: ExportRequest) -> Config:
    """Return the settings of a build."""
    return Config.from_environment(**request.settings, atc=request.atc)


def _arguments(request: ExportRequest) -> dict[str, Any]:
    """Return the arguments that building, previewing and checking have in common."""
    fixed, ranges = split_shapes(request.input_shapes)
    return {
        "model": request.model,
        "target": request.target,
        "input_shapes": fixed or None,
        "variants": request.variants or None,
        "ranges": None if request.variants else ranges or None,
        "config": make_config(request),
    }


def _build(request: ExportRequest) -> None:
    from opbuild.offline.build import export as export_model

    arguments = _arguments(request)
    with build_log(request.log, explain=request.explain) as log:
        started = time.perf_counter()
        watch = StorageWatch(log)
        path = export_model(output=cast("Path", request.output), **arguments, observer=watch)
    log.finish(path, time.perf_counter() - started, watch.summary)
    log.tell(stored_in(arguments["config"], watch))
    watch.require_stored(request.strict)


def _preview(request: ExportRequest) -> None:
    from opbuild.offline.plan import preview

    report = preview(**_arguments(request), observer=make_warner(request.log))
    show_report(report, planned=True)
    counts = f"{counted(report.built, 'operator')} to build, {report.reused} to reuse"
    say(f"dry run: {counts}; nothing was built or written")


def _check(request: ExportRequest) -> None:
    """Check a model, write the result, and fail if an offline model cannot have one of its operators."""
    from opbuild.offline.plan import check

    if not request.dry_run:
        new_file("check_report", str(request.check_report), "the JSON file to write")
    checked = check(**_arguments(request), observer=make_warner(request.log))
    for node in checked.without_kernel:
        echo(f"{node.name}: {node.op_type}: {' '.join(node.remark.split())}")
    passed = len(checked.nodes) - len(checked.failed)
    echo(f"{counted(len(checked.nodes), 'operator')}: {passed} can be built, {len(checked.failed)} can not")
    if not request.dry_run:
        write_report(checked.to_json(), "check_report", request.check_report)
    if checked.failed:
        names = ", ".join(f"{node.name} ({node.op_type})" for node in checked.failed)
        raise UnsupportedOperatorError(
            f"{checked.name} cannot be built: {names}",
            "replace these operators in the model, or define them with @opbuild.operator",
        )


STARTED = "ATC start working now, please wait for a moment."
SUCCEEDED = "ATC run success, welcome to the next use."
FAILED = "ATC run failed, Please check the detail log, Try 'atc --help' for more information"

CODES: tuple[tuple[type[OpbuildError], str], ...] = (
    (InputShapeError, "E10002"),
    (OptionError, "E10001"),
    (FileError, "E10410"),
    (UnsupportedOperatorError, "E10501"),
    (ShapeError, "E11005"),
    (InvalidModelError, "E10059"),
    (ModelError, "E10055"),
    (InputError, "E10001"),
    (TargetError, "E10001"),
    (BuildError, "E10059"),
    (RankError, "E10059"),
)
"""ATC's code of each other error of opbuild; the first that fits counts."""

INTERNAL = "E19999"


def code_of(error: OpbuildError) -> str:
    """Return ATC's code of an error."""
    if isinstance(error, CommandLineError):
        return error.code
    return next((code for kind, code in CODES if isinstance(error, kind)), INTERNAL)


class AtcCommand(click.Command):
    """A command that has ATC's messages on the standard output."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Say that the work begins, and read the options."""
        if {"-h", "--help"}.isdisjoint(args):
            echo(STARTED)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except OpbuildError as error:
            raise self._failed(error) from error
        except click.UsageError as error:
            command = f"{parent.command_path} {info_name}" if parent is not None else str(info_name)
            raise self._failed(usage_error(error, command), str) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and say how it ended."""
        try:
            super().invoke(ctx)
        except OpbuildError as error:
            raise self._failed(error) from error
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except Exception as error:
            missing = missing_package(error)
            if missing is not None:
                raise self._failed(missing) from error
            echo(f"{FAILED}\n{INTERNAL}: Internal Error! {type(error).__name__}: {' '.join(str(error).split())}")
            raise click.exceptions.Exit(1) from error
        echo(SUCCEEDED)

    def _failed(self, error: OpbuildError, spelled: Callable[[str], str] = in_atc_names) -> click.exceptions.Exit:
        """Write ATC's last line and the error below it."""
        hint = " ".join(error.command_hint.split())
        lines = [FAILED, f"{code_of(error)}: {message_of(error)}", *([f"        Solution: {hint}"] if hint else [])]
        echo(spelled("\n".join(lines)))
        return click.exceptions.Exit(error.exit_code)


@click.command(cls=AtcCommand)
@export_options(ATC_DEFAULTS)
def atc(**options: Any) -> None:
    """Build MODEL.onnx into one .om file, as ATC does, the command that compiles models for Huawei's NPUs.

    For scripts that call ATC; others use 'opbuild export', which has the same options. Here --framework, --output and
    --soc_version must be given, the cache is off unless --op_compiler_cache_mode turns it on, and messages are ATC's.
    ATC's options that decide nothing on a CPU are taken with the values that change nothing.
    """
    carry_out(make_request(options, ATC_DEFAULTS))
