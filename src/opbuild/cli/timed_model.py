"""Building or loading a model to time its calls, for ``opbuild profile`` and ``opbuild report``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from opbuild.cli.option_values import Whole
from opbuild.cli.options import option_group
from opbuild.cli.picture import Picture
from opbuild.cli.progress import build_progress
from opbuild.cli.run_model import check_inputs, complete_inputs, ports_of, read_inputs
from opbuild.cli.terminal import Terminal
from opbuild.config import Config
from opbuild.events import ignore
from opbuild.files.kinds import OFFLINE, ONNX, kind_of, require_kind

if TYPE_CHECKING:
    from opbuild.runtime.network import Network
    from opbuild.runtime.profile import Profile

data_options = option_group(
    click.option("--input", "inputs", metavar="NAME=FILE.npy", multiple=True,
                 help="Data of one input; the others get random numbers.  [repeatable]"),
    click.option("--runs", metavar="N", type=Whole(1), default=10, show_default=True,
                 help="Timed runs; the median counts."),
    click.option("--seed", metavar="N", type=Whole(0), default=0, show_default=True,
                 help="Seed of the random inputs."),
)  # fmt: skip
"""What a network is timed with."""


def built_and_timed(
    picture: Picture,
    *,
    inputs: tuple[str, ...],
    input_shapes: dict[str, tuple[int, ...]],
    runs: int,
    seed: int,
    timed: bool,
    **settings: Any,
) -> tuple[Network, Config, Profile | None]:
    """Build a model or load an offline one, and time its calls if that is wanted.

    Args:
        picture: Has the model's file, and records the build.
        inputs: As ``read_inputs`` takes them.
        input_shapes: Shapes of inputs by name.
        runs: Timed runs.
        seed: Seed of the random inputs.
        timed: Whether to time the calls.
        settings: Arguments of ``Config.from_environment``.

    Raises:
        OpbuildError: If the model cannot be built, loaded or run.
    """
    model = picture.model
    require_kind(model, OFFLINE if model.suffix == ".om" else ONNX, OFFLINE, ONNX)
    given, config, served = read_inputs(inputs), Config.from_environment(**settings), ""
    if (kind_of(model) or ONNX) == OFFLINE:
        from opbuild.offline.load import open_offline

        picture.watching(ignore)
        network, served = open_offline(model, config)
        check_inputs(network.inputs, given, input_shapes, built=True)
    else:
        from opbuild.api import compile_model

        with build_progress(Terminal(stderr=True)) as observer:
            network = compile_model(
                model, config, input_shapes=input_shapes, observer=picture.watching(observer),
                check=lambda ports: check_inputs(ports, given, input_shapes),
            )  # fmt: skip
    data = None
    if timed or not network.bound_inputs or network.report.breaks:
        data = complete_inputs(ports_of(network), given, seed, input_shapes, served)
        network.run(data)  # builds what is not bound until values are there: sizes that are open, and later segments
    picture.built()
    return network, config, network.profile(data, runs=runs) if timed else None
