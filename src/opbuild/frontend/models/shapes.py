"""The shapes for which models are built or tuned: those given by names of inputs, and those recorded of each model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opbuild.errors import OpbuildError, OptionError
from opbuild.frontend.models.source import Model, ModelSource, open_model
from opbuild.platform.paths import Path

if TYPE_CHECKING:
    from opbuild.frontend.models.memory import ModelMemory
    from opbuild.frontend.models.recorded import RecordedSize

Given = dict[str, tuple[int, ...]]
"""Shapes by input name."""


def own_shapes(
    models: Sequence[Model], variants: Sequence[Given], memory: ModelMemory, recorded: Sequence[RecordedSize] = ()
) -> list[list[Given]]:
    """Return for each model the shapes of its own inputs of each variant, and as they were recorded, each choice once.

    Raises:
        OptionError: If a name is no model's input.
    """
    known, chosen, are_all_known = set[str](), list[list[Given]](), True
    for model in models:
        names, own = set[str](), list[Given]()
        try:
            source = open_model(model, memory)
            names = {name for name, *_ in source.declaration.inputs}
            own = _recorded_shapes(source, recorded) if recorded else []
        except OpbuildError:  # told where the network is built
            are_all_known = False
        asked = variants if own or variants else [{}]
        own += [{name: shape for name, shape in given.items() if name in names} for given in asked]
        chosen.append([each for number, each in enumerate(own) if each not in own[:number]])
        known |= names
    unknown = {name for given in variants for name in given} - known
    if unknown and are_all_known:
        message = f"shapes were given for {min(unknown)!r}, which is no input of any model"
        raise OptionError(message, "the inputs are " + (", ".join(sorted(map(repr, known))) or "none"))
    return chosen


def _recorded_shapes(source: ModelSource, recorded: Sequence[RecordedSize]) -> list[Given]:
    """Return the shapes that were recorded of a model, of those inputs that are not declared to have them."""
    declared = {name: shape for name, _, shape in source.declaration.inputs}
    digest, path = str(source.digest), source.path or Path("")
    own = [each.inputs for each in recorded if each.is_of(path, digest) and each.inputs.keys() == declared.keys()]
    return [{name: shape for name, shape in inputs.items() if shape != declared[name]} for inputs in own]
