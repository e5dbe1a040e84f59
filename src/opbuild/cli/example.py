"""``opbuild example``: a network to try opbuild with, where no model is at hand."""

from __future__ import annotations

import click

from opbuild.cli.options import TO_WRITE, Whole, value_option
from opbuild.cli.streams import echo
from opbuild.errors import OptionError
from opbuild.platform.limits import unwritten
from opbuild.platform.paths import Path
from opbuild.text.plural import close_to


@click.command()
@click.argument("name", required=False)
@value_option("-o --output", "FILE.onnx", "The file to write.", TO_WRITE, "NAME.onnx, here")
@value_option("--seed", "N", "Seed of the weights.", Whole(0), default=0, show_default=True)
def example(name: str | None, output: Path | None, seed: int) -> None:
    """Write an example network as an ONNX model; without NAME, list them.

    They are real structures with random weights: right for trying, measuring and comparing, not for recognising
    anything.
    """
    from opbuild.frontend.example_models import EXAMPLES

    if name is None:
        _show_list()
        return
    if name not in EXAMPLES:
        near = close_to(name, EXAMPLES)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(EXAMPLES)}"
        raise OptionError(f"there is no example {name!r}", hint)
    path = output if output is not None else Path(f"{name}.onnx")
    _write(name, path, seed)
    network = EXAMPLES[name]
    shape = ",".join(map(str, network.shape))
    echo(f"{path}: {name} with random weights, {network.megabytes} MB, input {network.input} float32[{shape}]")


def _show_list() -> None:
    """Print the names of the examples, with their sizes and inputs."""
    from opbuild.cli.tables import output_console, plain_table, say
    from opbuild.frontend.example_models import EXAMPLES

    table = plain_table("example", "MB", "input")
    table.columns[1].justify = "right"
    for name, each in EXAMPLES.items():
        table.add_row(name, str(each.megabytes), f"{each.input}: float32[{','.join(map(str, each.shape))}]")
    output_console().print(table)
    say("'opbuild example NAME -o model.onnx' writes one")


def _write(name: str, path: Path, seed: int) -> None:
    """Write an example whole or not at all; a file that is no example stays."""
    from opbuild.frontend.example_models import PRODUCER, example_model
    from opbuild.platform.files.private import publish

    try:
        if path.is_file() and PRODUCER.encode() not in _beginning(path):
            raise OptionError(f"{str(path)!r} is there, and no example network", "give another name: -o FILE.onnx")
        if path.is_dir():
            raise OptionError(f"{str(path)!r} is a folder", f"name a file in it: -o {path / f'{name}.onnx'}")
        if not path.parent.is_dir():
            raise OptionError(f"there is no folder {str(path.parent)!r}", f"make it: mkdir -p {path.parent}")
        publish(path, example_model(name, seed).SerializeToString())
    except OSError as error:
        raise unwritten(repr(str(path)), error, "give another place: -o FILE.onnx") from error


def _beginning(path: Path) -> bytes:
    """Return the first bytes of a file, where a model says who made it."""
    with path.open("rb") as file:
        return file.read(64)
