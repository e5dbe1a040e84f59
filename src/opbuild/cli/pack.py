"""``opbuild pack``: the kernels of one's own models in one file, and what such a file has."""

from __future__ import annotations

import time
from typing import Any

import click

from opbuild.cli.build_log import StorageWatch
from opbuild.cli.options import (
    CORES,
    TO_WRITE,
    OnePath,
    Whole,
    cache_options,
    json_option,
    levels_option,
    print_json,
    remote_option,
    require_writable,
    sizes_option,
    value_option,
)
from opbuild.cli.recorded import recorded_models, recorded_option
from opbuild.cli.tables import Terminal, say
from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.platform.paths import Path
from opbuild.text.plural import counted, size

_USAGE = "opbuild pack MODEL.onnx... -o my.pack"


@click.command()
@click.argument("paths", metavar="MODEL.onnx...", nargs=-1, type=OnePath("the path of a file"))
@value_option(
    "-o --output", "FILE", "The file to write: my.pack, or a wheel, such as my_models-1.0-py3-none-any.whl.", TO_WRITE
)
@value_option("--show", "FILE", "Say what a file that was made so has, and make none.", OnePath("the path of a file"))
@sizes_option()
@recorded_option
@click.option(
    "--stored",
    is_flag=True,
    help="Also all kernels that the cache has, of whatever ran with it: networks of torch, segments that data led to.",
)
@levels_option()
@click.option("--all", "with_released", is_flag=True, help="Also the kernels that the release's pack has.")
@cache_options
@value_option("--workers", "N", "Operators compiled at once.", Whole(1), CORES)
@remote_option
@json_option
def pack(
    paths: tuple[Path, ...],
    output: Path | None,
    show: Path | None,
    shapes: list[dict[str, Any]],
    recorded: Path | None,
    targets: list[str] | None,
    *,
    stored: bool,
    with_released: bool,
    as_json: bool,
    **place: Any,
) -> None:
    """Build the kernels that models need into one file, from which first starts take them.

    OPBUILD_PACK=my.pack names the file where the models start; a wheel is found once it is installed. Kernels that the
    release's pack has are left out. What is stored already is not compiled again, and what is compiled stays in your
    store, too.
    """
    config = Config.from_environment(**place)
    if show is not None:
        _show(show, config, as_json=as_json)
        return
    models, sizes = ((), []) if stored and not paths and recorded is None else recorded_models(paths, recorded, _USAGE)
    if output is None:
        raise OptionError("the file to write is missing", f"name it: {_USAGE}")
    require_writable("the model pack", output, models)
    from opbuild.cli.progress import build_progress
    from opbuild.offline.packing import pack_models

    started = time.perf_counter()
    with build_progress(Terminal(stderr=True)) as observer:
        made = pack_models(
            models,
            output,
            config,
            shapes,
            targets,
            recorded=sizes,
            with_stored=stored,
            with_released=with_released,
            observer=StorageWatch(observer),
        )
    if as_json:
        levels = {
            each.target: {"kernels": len(each.jobs), "left_out": each.released, "compiled": each.built}
            for each in made.targets
        }
        print_json({"pack": str(output), "bytes": made.nbytes, "models": list(map(str, models)), "levels": levels})
        return
    for each in made.targets:
        left = f", {each.released} left out that the release's pack has" if each.released else ""
        say(f"{each.target}: {counted(len(each.jobs), 'kernel')}, {each.built} compiled now{left}")
    count = sum(len(each.jobs) for each in made.targets)
    made_of = [counted(len(models), "model")] if models else []
    made_of += [f"the cache {config.cache_folder}"] if stored else []
    what = f"{counted(count, 'kernel')} of {' and '.join(made_of)}"
    say(f"{what} in {output}, {size(made.nbytes)}, in {time.perf_counter() - started:.2f} s", soft_wrap=True)


def _show(path: Path, config: Config, *, as_json: bool) -> None:
    """Print the targets of a model pack, with the kernels of each family."""
    from opbuild.platform.files.trust import make_trust
    from opbuild.store.model_packs import opened

    archive = opened(path, str(path), make_trust(config))
    if archive.problem is not None:
        raise archive.problem
    targets = {name: [file for each in archive.packs(name) for file in each.files()] for name in archive.targets()}
    if as_json:
        counts = {name: {file.family: len(file) for file in files} for name, files in targets.items()}
        print_json({"pack": str(path), **archive.about, "levels": counts})
        return
    models = ", ".join(archive.about.get("models", ()))
    say(f"{path}: made by opbuild {archive.about.get('opbuild')} of {models}", soft_wrap=True)
    for name, files in targets.items():
        compilers = ", ".join(sorted({f"{file.compiler.name} {file.compiler.version}" for file in files}))
        say(f"{name}: {counted(sum(map(len, files)), 'kernel')}, by {compilers}")
        for file in files:
            say(f"  {file.family:<24} {len(file):>6}")
