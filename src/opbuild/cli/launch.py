"""``opbuild launch``: a script on several local ranks."""

from __future__ import annotations

import click

from opbuild.cli.option_values import OnePath, Whole
from opbuild.platform.paths import Path

MOST_RANKS = 1024


@click.command(context_settings={"allow_interspersed_args": False})  # what follows the script is the script's
@click.option("-n", "--num_ranks", metavar="N", type=Whole(1, MOST_RANKS), required=True,
              help="How many ranks to start.")  # fmt: skip
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
