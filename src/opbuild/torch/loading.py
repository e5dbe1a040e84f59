"""Loading a saved module: its runner without Dynamo."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from opbuild.dtypes import numpy_dtype
from opbuild.errors import InputError, InvalidModelError
from opbuild.graph.types import DTYPES
from opbuild.platform.files.trust import make_trust
from opbuild.platform.paths import Path
from opbuild.torch.flat import TORCHS, Runner
from opbuild.torch.saved import REFUSED, Given, Saved, is_target, read_saved
from opbuild.torch.settings import read_settings
from opbuild.torch.tensors import to_tensor
from opbuild.torch.trees import spec_of


def load(
    path: str | os.PathLike[str],
    model: torch.nn.Module,
    *,
    options: Mapping[str, Any] | None = None,
    namespaces: Collection[str] = (),
) -> Loaded:
    """Load a file of ``save``. The file runs no code: it can only call torch's own operators, which compute results.

    The weights are those of ``model``, which need not be the ones that it was saved with: kernels do not depend on
    them. They are read again when they change.

    Args:
        path: The file.
        model: A module with the same parameters and buffers.
        options: The options of ``opbuild.compile``: ``cache_path``, ``num_threads``, ...
        namespaces: Whose operators the file may call beside torch's own: those of libraries that this process has
            imported, such as ``"torchvision"``, or has registered itself.

    Returns:
        What is called as the module is, for inference.

    Raises:
        FileError: If the file cannot be read.
        InvalidModelError: If it is no saved module, damaged, of another module, calls what it may not, is not signed,
            or others can write to it.
        OptionError: If an option is at fault.
    """
    trust = make_trust(read_settings(options).config)
    return Loaded(read_saved(Path(path), trust), model, options, namespaces)


class Loaded:
    """A saved module that is ready to call; results need no gradients. Any thread may call it.

    Args:
        saved: What was saved.
        model: The module whose weights it has.
        options: The options of ``opbuild.compile``.
        namespaces: Whose operators it may call beside torch's own.

    Raises:
        InvalidModelError: If the module is another one, or it calls what it may not.
        OptionError: If an option is at fault.
    """

    def __init__(
        self,
        saved: Saved,
        model: torch.nn.Module,
        options: Mapping[str, Any] | None = None,
        namespaces: Collection[str] = (),
    ) -> None:
        self._saved = saved
        self._run = Runner(saved.graph, read_settings(options), TORCHS.union(namespaces))
        try:
            self._arguments, self._returned = spec_of(saved.arguments), spec_of(saved.returned)
            _check_numbers(saved, self._arguments.num_leaves, self._returned.num_leaves)
            constants = {name: _constant(*each) for name, each in saved.constants.items()}
            self._sources = [_source(each, model, constants) for each in saved.given]
        except REFUSED as error:
            raise InvalidModelError(f"the saved module cannot be used: {error!s:.500}", "save it again") from error
        if model.training != saved.training:
            mode = "train" if saved.training else "eval"
            raise InvalidModelError(f"the module was saved in the mode of {mode}()", f"call {mode}() of this one")

    @property
    def report(self) -> Any:
        """The report of its graph: a ``Graph``."""
        return self._run.graph

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it.

        Args:
            args: What the module's ``forward`` takes.
            kwargs: The same by name.

        Raises:
            InputError: If an argument is not as it was saved for.
            ModelError, BuildError: If a part cannot be built.
            RunError: If one fails while it runs.
        """
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._arguments:
            raise InputError("the arguments have another structure than those it was saved with", "save it for these")
        check_leaves(self._saved, leaves)
        found = self._run(*(source(leaves) for source in self._sources))
        outputs = []
        for result, value in zip(self._saved.results, found, strict=True):
            if result.kind == "output":
                outputs.append(value)
                continue
            index = next(i for i, each in enumerate(self._saved.given) if is_target(each, result))
            _write(self._sources[index](leaves), value, result.name)
        try:
            return pytree.tree_unflatten(outputs, self._returned)
        except Exception as error:  # of a class of the process's own, which the file tells its fields
            raise InvalidModelError(f"the results cannot be made: {error!s:.500}", "save the module again") from error


def check_leaves(saved: Saved, leaves: Sequence[Any]) -> None:
    """Check the leaves of a call's arguments.

    Raises:
        InputError: If one is not as the module was saved for.
    """
    extents: dict[str, int] = {}
    for given in saved.given:
        if given.leaf < 0:
            continue
        value = leaves[given.leaf]
        problem = _problem(given, value, saved.ranges, extents)
        if problem:
            raise InputError(f"{given.name}: {problem}", "save the module for such arguments, or use torch.compile")


def _problem(given: Given, value: Any, ranges: Mapping[str, Sequence[int | None]], extents: dict[str, int]) -> str:
    if given.kind == "fixed":
        same = type(value) is type(given.value) and value == given.value
        return "" if same else f"it is {value!r}, but was saved for {given.value!r}"
    if given.kind == "number":
        found: Sequence[int] = (value,) if type(value) is int else ()
    elif not isinstance(value, torch.Tensor) or value.device.type != "cpu" or value.layout is not torch.strided:
        return f"a tensor on the CPU is needed, not {type(value).__name__}"
    elif str(value.dtype) != f"torch.{given.dtype}":
        return f"it is of {value.dtype}, but was saved for {given.dtype}"
    else:
        found = value.shape
    pairs = zip(found, given.shape, strict=False)
    fits = len(found) == len(given.shape) and all(_fits(*pair, ranges, extents) for pair in pairs)
    return "" if fits else f"it is {list(found)}, but was saved for {list(given.shape)}"


def _fits(extent: int, wanted: int | str, ranges: Mapping[str, Sequence[int | None]], extents: dict[str, int]) -> bool:
    if isinstance(wanted, int):
        return extent == wanted
    least, most = ranges[wanted]
    is_within = (least is None or extent >= least) and (most is None or extent <= most)
    return is_within and extents.setdefault(wanted, extent) == extent


def _check_numbers(saved: Saved, arguments: int, outputs: int) -> None:
    """Raise ``ValueError`` unless arguments and results have as many leaves as the graph takes and gives."""
    if sorted(each.leaf for each in saved.given if each.leaf >= 0) != list(range(arguments)):
        raise ValueError("its arguments have other leaves than its graph")
    if sum(each.kind == "output" for each in saved.results) != outputs:
        raise ValueError("its results have other leaves than its graph")


def _write(target: torch.Tensor, value: Any, name: str) -> None:
    if not isinstance(value, torch.Tensor) or value.shape != target.shape:
        raise InvalidModelError(f"what is written to {name!r:.200} does not fit it", "save the module again")
    with torch.no_grad():
        target.copy_(value)


def _constant(dtype: str, shape: Sequence[int], text: str) -> torch.Tensor:
    if dtype not in DTYPES:
        raise ValueError(f"a constant is of {dtype!r:.200}")
    array = np.frombuffer(bytearray(base64.b64decode(text, validate=True)), numpy_dtype(dtype)).reshape(shape)
    return to_tensor(array, range(array.ndim))


def _source(
    given: Given, model: torch.nn.Module, constants: Mapping[str, torch.Tensor]
) -> Callable[[Sequence[Any]], Any]:
    """Return a getter of the value of an input for the leaves of a call; it is an error if the module lacks it."""
    if given.leaf >= 0:
        leaf = given.leaf
        return lambda leaves: leaves[leaf]
    if given.kind == "constant":
        value = constants[given.name]
        return lambda _: value
    *path, name = given.name.split(".")
    owner: Any = model
    for each in path:  # in its table of modules: a file's names are asked for as nothing else
        owner = owner._modules.get(each)
        if owner is None:
            raise LookupError(f"the module has no {'.'.join(path)}")
    table: Any = owner._parameters if name in owner._parameters else owner._buffers
    tensor = table.get(name)
    if tensor is None:
        raise LookupError(f"the module has no {given.name}")
    if str(tensor.dtype) != f"torch.{given.dtype}" or tuple(tensor.shape) != tuple(given.shape):
        raise ValueError(f"{given.name} is {tensor.dtype} {list(tensor.shape)}, not {given.dtype} {list(given.shape)}")
    return lambda _: table[name]  # asked for at each call, because a module's parameter may be set to another tensor
