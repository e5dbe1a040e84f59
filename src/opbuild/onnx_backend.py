"""opbuild as a backend of ONNX: the interface of ``onnx.backend.base``, which ONNX's own tests and other tools call.

``opbuild.onnx_backend.prepare(model).run(inputs)`` builds a model and runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from opbuild.api import Network, compile  # noqa: A004
from opbuild.errors import InputError, OptionError
from opbuild.text.plural import counted, verb

__all__ = ["OpbuildBackend", "PreparedModel", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]


class PreparedModel(BackendRep):
    """A model that is ready to run.

    Attributes:
        network: The network that runs it, whose report tells which operators have kernels.
    """

    def __init__(self, network: Network) -> None:
        self.network = network

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Run the model.

        Args:
            inputs: A sequence of arrays in the order of the model's inputs, a mapping from their names, or one array.

        Returns:
            The outputs in the model's order, which can also be had by name.

        Raises:
            InputError: If the arrays do not fit the inputs.
            RunError, ModelError, BuildError: As a network's call does.
        """
        names = [output.name for output in self.network.outputs]
        results = self.network.run(None, self._by_name(inputs))
        return namedtupledict("Outputs", names)(*results)

    def _by_name(self, inputs: Any) -> Mapping[str, Any]:
        if isinstance(inputs, Mapping):
            return {name: _array(value) for name, value in inputs.items()}
        single = isinstance(inputs, (np.ndarray, np.generic, onnx.TensorProto)) or not isinstance(inputs, Sequence)
        values = [inputs] if single else list(inputs)
        expected = [each.name for each in self.network.inputs]
        if len(values) != len(expected):
            raise _wrong_number(len(values), expected)
        return dict(zip(expected, map(_array, values), strict=True))


class OpbuildBackend(Backend):
    """The backend's class, as ``onnx.backend.test.BackendTest`` takes it."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> bool:
        """Return whether the model can be read and the device is there; a build tells the rest."""
        return cls.supports_device(device) and bool(model.opset_import)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether a device, such as ``CPU`` or ``CPU:0``, is there."""
        return device.partition(":")[0] == "CPU"

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> PreparedModel:
        """Build a model.

        Args:
            model: The model.
            device: ``CPU``.
            options: What ``opbuild.compile`` takes.

        Raises:
            OptionError: If the device is another one, or an option is at fault.
            ModelError, BuildError: As ``opbuild.compile`` does.
        """
        if not cls.supports_device(device):
            raise OptionError(f"opbuild has no device {device!r}", "its device is 'CPU'")
        return PreparedModel(compile(model, **options))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        """Build a model and run it once; arguments and errors are those of ``prepare`` and ``PreparedModel.run``."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        """Run one operator.

        Args:
            node: The operator.
            inputs: A sequence of arrays, one for each name that the node reads, or a mapping from these names.
            device: ``CPU``.
            outputs_info: Not needed: element types and shapes are inferred.
            options: What ``opbuild.compile`` takes, and ``opset_version`` (default the newest that is known).

        Raises:
            InputError: If there are more or fewer arrays than the node reads.
            ModelError, OptionError, BuildError: As ``prepare``.
        """
        names = list(dict.fromkeys(name for name in node.input if name))
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(names):
                raise _wrong_number(len(inputs), names)
            inputs = dict(zip(names, inputs, strict=True))
        arrays = {name: _array(inputs[name]) for name in names}
        versions = {node.domain: int(options.pop("opset_version", _newest(node.domain)))}
        graph = helper.make_graph(
            [node],
            node.name or node.op_type,
            [_declared(name, array) for name, array in arrays.items()],
            [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        )
        imported = [helper.make_opsetid(domain, version) for domain, version in ({"": _newest("")} | versions).items()]
        model = helper.make_model(graph, opset_imports=imported)
        return cls.run_model(model, arrays, device, **options)


def _wrong_number(count: int, names: Sequence[str]) -> InputError:
    given = f"{counted(count, 'array')} {verb(count, 'was', 'were')} given"
    return InputError(given, f"the inputs are {', '.join(names) or 'none'}")


def _newest(domain: str) -> int:
    """Return the newest version of a domain's operators that the onnx package knows; 1 if it knows none."""
    return max((each.since_version for each in onnx.defs.get_all_schemas() if each.domain == domain), default=1)


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _declared(name: str, array: Any) -> onnx.ValueInfoProto:
    dtype = np.asarray(array).dtype
    kind = onnx.TensorProto.STRING if dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(dtype)
    return helper.make_tensor_value_info(name, kind, np.shape(array))


is_compatible = OpbuildBackend.is_compatible
prepare = OpbuildBackend.prepare
run_model = OpbuildBackend.run_model
run_node = OpbuildBackend.run_node
supports_device = OpbuildBackend.supports_device
