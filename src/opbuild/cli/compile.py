"""``opbuild compile``: a model in, one offline model (``.om``) out."""

from __future__ import annotations

import time
from typing import Any, cast

import click

from opbuild.cli.build_log import build_log, make_warner
from opbuild.cli.compile_options import (
    BUILD,
    CHECK,
    COMPILE_DEFAULTS,
    SHOW,
    CompileRequest,
    compile_options,
    make_request,
)
from opbuild.cli.echoing import echo
from opbuild.cli.option_values import new_file
from opbuild.cli.strict import StorageWatch, stored_in
from opbuild.config import Config
from opbuild.errors import UnsupportedOperatorError
from opbuild.frontend.input_shape import split_shapes
from opbuild.platform.paths import Path
from opbuild.text.plural import counted


@click.command()
@compile_options(COMPILE_DEFAULTS)
def compile(**options: Any) -> None:  # noqa: A001  the command's name
    """Build MODEL.onnx into one .om file, which runs without the compiler, in Python and from C.

    Operators come from the store that 'opbuild build' and 'opbuild run' use too, and go there. --soc_version builds for
    other machines than this one. Options have the names and meanings of ATC, the compiler of Huawei's CANN.
    """
    carry_out(make_request(options, COMPILE_DEFAULTS))


def carry_out(request: CompileRequest) -> None:
    """Carry out a command line.

    Raises:
        OpbuildError: If it cannot be done.
    """
    if request.mode == BUILD:
        _preview(request) if request.dry_run else _build(request)
    elif request.mode == CHECK:
        _check(request)
    else:
        from opbuild.cli.show_offline import show, write_json

        if request.mode == SHOW:
            show(cast("Path", request.om))
        else:
            write_json(request.om, request.model, cast("Path", request.json))


def make_config(request: CompileRequest) -> Config:
    """Return the settings of a build.

    Raises:
        OptionError: If an option or a variable is at fault.
    """
    return Config.from_environment(**request.settings, atc=request.atc)


def _arguments(request: CompileRequest) -> dict[str, Any]:
    """Return the arguments that building, previewing and checking have in common."""
    fixed, ranges = split_shapes(request.input_shapes)
    return {
        "model": request.model,
        "soc_version": request.soc_version,
        "input_shapes": fixed or None,
        "variants": request.variants or None,
        "ranges": None if request.variants else ranges or None,
        "config": make_config(request),
    }


def _build(request: CompileRequest) -> None:
    from opbuild.offline.build import build_offline

    arguments = _arguments(request)
    with build_log(request.log, explain=request.explain) as log:
        started = time.perf_counter()
        watch = StorageWatch(log)
        path = build_offline(output=cast("Path", request.output), **arguments, observer=watch)
    log.finish(path, time.perf_counter() - started, watch.summary)
    log.tell(stored_in(arguments["config"], watch))
    watch.require_stored(request.strict)


def _preview(request: CompileRequest) -> None:
    from opbuild.cli.tables import say, show_report
    from opbuild.offline.preview import preview

    report = preview(**_arguments(request), observer=make_warner(request.log))
    show_report(report, planned=True)
    counts = f"{counted(report.built, 'operator')} to build, {report.reused} to reuse"
    say(f"dry run: {counts}; nothing was built or written")


def _check(request: CompileRequest) -> None:
    """Check a model, write the result, and fail if an offline model cannot have one of its operators."""
    from opbuild.cli.show_offline import write_report
    from opbuild.offline.check import check

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
