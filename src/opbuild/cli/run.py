"""``opbuild run`` and ``launch``: a script or a model, told apart by the file's ending; a script on several ranks."""

from __future__ import annotations

from typing import Any

import click

from opbuild.cli.options import (
    FOLDER,
    OnePath,
    Whole,
    WordValue,
    given_options,
    input_option,
    model_arguments,
    model_options,
    seed_option,
    value_option,
)
from opbuild.cli.picture import picture_options
from opbuild.errors import OptionError
from opbuild.platform.files.kinds import OFFLINE, ONNX, SCRIPT, kind_of, require_kind
from opbuild.platform.paths import Path

SCRIPT_ENDING, OFFLINE_ENDING = ".py", ".om"
BUILD_OPTIONS = ("cache_path", "workers", "forbid_compile", "remote")
"""Options that mean nothing for a model that is built already."""


class RunCommand(click.Command):
    """A command that leaves everything after a script to the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep click's hands off the arguments of a script."""
        first = 0
        while first < len(args) and args[first].partition("=")[0] == "--serve":
            first += 1 if "=" in args[first] else 2
        if first < len(args) and args[first].endswith(SCRIPT_ENDING):
            args = [*args[:first], "--", *args[first:]]
        return super().parse_args(ctx, args)


@click.command(cls=RunCommand)
@model_arguments("[SCRIPT.py|MODEL.onnx|MODEL.om]")
@click.argument("arguments", metavar="[ARGUMENTS...]", nargs=-1)
@input_option
@value_option("--output_dir", "DIR", "Write each output to DIR/<name>.npy.", OnePath(FOLDER, folder=True))
@value_option("--serve", "PACKAGE", "Let a script's import of it find opbuild's own.  [repeatable]",
              WordValue(("mindspore", "onnxruntime")), multiple=True)  # fmt: skip
@value_option("--runs", "N", "Timed calls after the first.", Whole(1), older="--repeat", default=10, show_default=True)
@seed_option
@picture_options
@model_options
def run(path: Path, arguments: tuple[str, ...], serve: tuple[str, ...], **options: Any) -> int:
    """Run a script or a model.

    SCRIPT.py runs with ARGUMENTS as Python would run it; 'import mindspore' finds opbuild's own, and so does
    'import onnxruntime' with '--serve onnxruntime', or where ONNX Runtime is not installed. The other options below are
    for models.

    MODEL.onnx is built, if it was not, and called with the given or random inputs; statistics of the outputs and the
    latency are printed. Random integers are 0 or 1, so that they are valid indices.

    MODEL.om, as 'opbuild export' writes it, is built already and runs in the same way.
    """
    if arguments and path.suffix != SCRIPT_ENDING:
        raise click.UsageError(f"Got unexpected extra argument{'s' * (len(arguments) > 1)} ({' '.join(arguments)}).")
    kind = _kind(path)
    if kind == SCRIPT:
        if given := given_options(options):
            raise OptionError(
                f"{given[0]} is for models, and {str(path)!r} is a script",
                "leave it out, or put what is the script's own behind its name",
            )
        from opbuild.cli.run_script import run_script

        return run_script(path, list(arguments), serve)
    if serve:
        raise OptionError(f"--serve is for scripts, and {str(path)!r} is a model", "leave it out")
    from opbuild.cli.run_model import run_model

    if kind == OFFLINE:
        build = {name: options.pop(name) for name in BUILD_OPTIONS}
        if given := given_options(build):
            raise OptionError(f"{given[0]} is for models to build, and {str(path)!r} is built", "leave it out")
    run_model(path, is_built=kind == OFFLINE, **options)
    return 0


def _kind(path: Path) -> str:
    """Return the kind of a file, by which it is run."""
    kinds = {SCRIPT_ENDING: SCRIPT, OFFLINE_ENDING: OFFLINE}
    wanted = kinds.get(path.suffix, ONNX)
    require_kind(path, wanted, SCRIPT, OFFLINE, ONNX)
    return kind_of(path) or wanted if wanted == ONNX else wanted


MOST_RANKS = 1024


@click.command(context_settings={"allow_interspersed_args": False})  # what follows the script is the script's
@value_option("-n --num_ranks", "N", "How many ranks to start.", Whole(1, MOST_RANKS), required=True)
@click.option(
    "--per_device_dirs", is_flag=True,
    help="Run rank k in device<k>/, which is made, so that it keeps device<k>/rank_<k>/kernel_meta.",
)  # fmt: skip
@click.argument("script", metavar="SCRIPT.py", type=OnePath("the path of a Python script"))
@click.argument("arguments", metavar="[ARGUMENTS...]", nargs=-1, type=click.UNPROCESSED)
def launch(num_ranks: int, per_device_dirs: bool, script: Path, arguments: tuple[str, ...]) -> int:
    """Run SCRIPT.py with ARGUMENTS on N ranks of this host, each a process as 'opbuild run' starts it.

    Each gets its RANK_ID, RANK_SIZE and DEVICE_ID; each line of output gets its rank. The ranks communicate and wait
    for each other (opbuild.mindspore.communication). When one fails all are ended, and the exit code is that of the
    first that failed. Cores are divided over the ranks unless OPBUILD_NUM_THREADS or OMP_NUM_THREADS is set.
    """
    from opbuild.cli.interrupt import INTERRUPTED, Interrupted
    from opbuild.config import inherited_environment
    from opbuild.ranks.launcher import RankJob
    from opbuild.ranks.launcher import launch as launch_job

    code = launch_job(RankJob(script, arguments, num_ranks, per_device_dirs, inherited_environment()))
    if code == INTERRUPTED:
        raise Interrupted
    return code
