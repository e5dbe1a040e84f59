"""The graph that ``torch.compile(...).aot_compile`` stores, and loads again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._functorch._aot_autograd.schemas import OutputType

from opbuild.errors import InvalidModelError, UnsupportedOperatorError
from opbuild.platform.files.trust import seal, unseal
from opbuild.torch.flat import Flat, Runner
from opbuild.torch.saved import REFUSED
from opbuild.torch.settings import read_settings

try:
    from torch._dynamo.aot_compile_types import SerializableCallable
except ImportError:  # torch 2.9 has it elsewhere
    from torch._dynamo.aot_compile import SerializableCallable  # type: ignore[attr-defined]  # not of this torch

_FORM = "opbuild torch graph 1"

_FORCED = "force_autograd_cache"
"""A setting that torch 2.9 does not have."""

_PLAIN = {OutputType.non_alias, OutputType.unsafe_view_alias, OutputType.custom_function_view}
"""Outputs that are returned as they were computed."""


def is_ahead_of_time() -> bool:
    """Return whether torch asks for a callable that can be stored."""
    config: Any = torch._functorch.config
    return bool(config.bundled_autograd_cache and getattr(config, _FORCED, True))


class Storable(SerializableCallable):
    """Runs a graph of Dynamo's, and can be stored: programs as JSON, no weights.

    Args:
        run: Runs it.
        flat: The same as data; empty if the graph was left to torch.
        inputs: How many inputs the graph has.
        options: Options of the back end.

    Raises:
        UnsupportedOperatorError: If it cannot be stored.
    """

    def __init__(self, run: Callable[..., Any], flat: Sequence[Flat], inputs: int, options: Mapping[str, Any]) -> None:
        if not flat:
            raise _unsupported("that needs gradients")
        if len(flat[0].inputs) != inputs:
            raise _unsupported("with inputs that share memory")
        self._run, self._flat, self._options = run, flat[0], options

    def __call__(self, *args: Any) -> Any:
        """Run the graph.

        Args:
            args: Its inputs; weights are among them.

        Raises:
            ModelError, BuildError: If a part cannot be built.
            RunError: If one fails while it runs.
        """
        return self._run(*args)

    @classmethod
    def serialize_compile_artifacts(cls, fn: Any) -> bytes:
        """Return a graph and its options as JSON that carries its digest.

        Raises:
            UnsupportedOperatorError: If an option is of a kind that cannot be stored.
        """
        options = {name: str(each) if hasattr(each, "__fspath__") else each for name, each in fn._options.items()}
        try:
            return seal({"graph": fn._flat.to_json(), "options": options}, _FORM)
        except (TypeError, ValueError) as error:
            raise UnsupportedOperatorError(f"the options cannot be stored: {error}", "give plain values") from error

    @classmethod
    def deserialize_compile_artifacts(cls, data: bytes) -> Storable:
        """Return the stored graph, ready to run.

        Raises:
            InvalidModelError: If it is damaged, or calls what this torch does not have.
            OptionError: If an option is at fault.
        """
        try:
            content = unseal(data, _FORM)
            flat, options = Flat.from_json(content["graph"]), dict(content["options"])
        except REFUSED as error:
            raise InvalidModelError(f"this is no stored graph: {error!s:.500}", "compile it again") from error
        run = Runner(flat, read_settings(options), None)  # torch's pickle has run before it
        return cls(run, [flat], len(flat.inputs), options)


def without_own_cache() -> AbstractContextManager[Any]:
    """Return a context in which torch stores nothing of the graph itself: for that it needs Inductor's result."""
    config: Any = torch._functorch.config
    names = [name for name in ("bundled_autograd_cache", _FORCED) if hasattr(config, name)]
    found: AbstractContextManager[Any] = config.patch(dict.fromkeys(names, False))
    return found


def require_host(device: str) -> None:
    """Check that a graph computes on the CPU: what is stored says nothing of devices.

    Raises:
        UnsupportedOperatorError: If it computes elsewhere.
    """
    if device != "cpu":
        raise _unsupported(f"on {device}")


def require_plain(metadata: Any) -> None:
    """Check that nothing is to be done around a graph, which is not stored.

    Raises:
        UnsupportedOperatorError: If something is.
    """
    if metadata is None or metadata.mutated_inp_runtime_indices:
        raise _unsupported("that writes to its inputs")
    if any(each.output_type not in _PLAIN for each in metadata.output_info):
        raise _unsupported("with outputs that are inputs or views of them")


def _unsupported(what: str) -> UnsupportedOperatorError:
    hint = "call it under torch.no_grad() and use opbuild.torch.save, or plain torch.compile"
    return UnsupportedOperatorError(f"a graph {what} cannot be stored ahead of time", hint)
