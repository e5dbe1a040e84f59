"""Offline models: a model built into one file, for this machine or another."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

from opbuild.arguments import RangesGiven, ShapesGiven, as_ranges, as_shapes, as_variants, checks_arguments
from opbuild.config import Config
from opbuild.errors import BuildError, OptionError, UnsupportedOperatorError
from opbuild.events import WRITING, Observer, working
from opbuild.frontend.models.source import Model
from opbuild.graph.types import Graph
from opbuild.offline.file import PackedWeights, write_offline
from opbuild.offline.plan import FilePlan, plan_file, set_up_file
from opbuild.offline.ranges import range_sections
from opbuild.pipeline.setup import Setup
from opbuild.pipeline.stages import Assembled, require_portable
from opbuild.platform.files.writing import same_file, unwritable
from opbuild.platform.limits import names_limits, unwritten
from opbuild.platform.paths import Path
from opbuild.platform.records import replace
from opbuild.report import Clock
from opbuild.runtime.weights import Packer
from opbuild.session import Session
from opbuild.version import __version__

SUFFIX = ".om"


@checks_arguments
@names_limits(BuildError, "the network cannot be built")
def export(
    model: Model | Graph,
    output: str | os.PathLike[str],
    *,
    target: str = "host",
    input_shapes: ShapesGiven | None = None,
    variants: Sequence[ShapesGiven] | None = None,
    ranges: RangesGiven | None = None,
    config: Config | None = None,
    observer: Observer | None = None,
) -> Path:
    """Build a model and write it as one file, which runs where neither the compiler nor the model's reader is.

    Args:
        model: A path, the bytes of a file, an ``onnx.ModelProto``, or a graph.
        output: The file to write; ``.om`` is added if it is not there. It is written whole or not at all.
        target: The level to build for: ``host``, or one such as ``x86-64-v3``.
        input_shapes: Shapes by input name, where the model leaves them open or another is wanted.
        variants: Several input signatures for one file, each the shapes that differ from ``input_shapes``. They share
            operators, library and equal weights; a call picks by the shapes of its inputs.
        ranges: Shapes by input name in which an extent may be a least and a greatest one, the latter -1 for no limit,
            or -1 for any of at least 1; None is the same as -1. The file serves every size in them. Not with
            ``variants``.
        config: Settings; None reads the environment.
        observer: Told what happens, from threads of the build too.

    Returns:
        The file.

    Raises:
        ModelError: If the model is at fault, a shape is open, or an operator runs only where onnx is installed.
        OptionError: If an argument is at fault, or the file cannot be written.
        BuildError: If an operator cannot be built, the network not linked, or the disk is full.
    """
    path = _named(Path(output))
    _check_output(path, model)
    setup = set_up_file(target, config, observer)
    session = Session(setup)
    with session.preparing(None if isinstance(model, Graph) else model):
        plan = plan_file(
            model,
            session,
            input_shapes=as_shapes(input_shapes),
            variants=as_variants(variants),
            ranges=as_ranges(ranges),
        )
        if plan.source is not None:
            plan.source.forget()
        require_portable(plan.needed.host.values())
        with session.builder() as builder:
            networks = session.build(plan.needed, builder, Packer(), Clock())
    plan.require_unchanged()
    if networks[0].built.compiled:
        session.stores.age()
    try:
        _write(path, plan, networks, setup)
    except ValueError as error:
        raise UnsupportedOperatorError(
            f"the network cannot be stored: {error}", "use opbuild.compile", command="use opbuild compile"
        ) from error
    except OSError as error:
        raise unwritten(repr(str(path)), error, "name another file") from error
    return path


def build_offline(
    model: Model | Graph, output: str | os.PathLike[str], *, soc_version: str = "host", **options: Any
) -> Path:
    """Write a model as one file, as ``export`` does, whose older name this is."""
    warnings.warn("opbuild.build_offline is an older name of opbuild.export", DeprecationWarning, stacklevel=2)
    return export(model, output, target=soc_version, **options)


def _named(output: Path) -> Path:
    """Return the file to write, with its suffix."""
    if output.name in ("", ".."):
        raise OptionError(f"output is {str(output)!r}, a folder", f"name a file: {str(output / 'model.om')!r}")
    return output if output.suffix == SUFFIX else output.with_name(output.name + SUFFIX)


def _check_output(path: Path, model: Model | Graph) -> None:
    """Refuse a place where no file can be written, and the model itself, before anything is built."""
    if isinstance(model, (str, os.PathLike)) and same_file(model, path):
        raise OptionError(f"output is {str(path)!r}, which is the model", "name another file to write")
    if problem := unwritable(path):
        raise OptionError(f"output is {str(path)!r}, and {problem}", "name a file in a folder that you may write to")


def _write(path: Path, plan: FilePlan, networks: Sequence[Assembled], setup: Setup) -> None:
    """Write networks that share their kernels; equal weights once."""
    built, weights, ranges = networks[0].built, PackedWeights(), plan.ranges
    breaks = ranges.breaks if ranges else (None,) * len(networks)
    records = [
        replace(each.record, constants=weights.place(each.constants.arrays), follows=follows)
        for each, follows in zip(networks, breaks, strict=False)
    ]
    more = [*range_sections(ranges, networks[len(breaks) :], plan.needed.kernels, weights)] if ranges else []
    write_offline(
        path,
        name=plan.needed.name,
        level=setup.level,
        records=records,
        library=built.code,
        weights=weights,
        build={
            "opbuild": __version__,
            "model": plan.digest,
            "compiler": setup.compiler.name + " " + setup.compiler.version(),
            "operators": [[operator.name, list(operator.nodes)] for operator in built.operators.values()],
            "ranges": ranges.sizes.text() if ranges and ranges.sizes else "",
            "parts": list(plan.waits),
        },
        outputs=plan.outputs,
        more=more,
        trust=setup.trust,
        watch=working(setup.observer, WRITING),
    )
