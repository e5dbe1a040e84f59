"""Networks for a class of devices: they take arrays that lie there, and write outputs into such, beside the host's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import InputError, OpbuildError, OutputError, RunError
from opbuild.graph.types import Array
from opbuild.platform.locks import lazy_property
from opbuild.runtime.binding import Runs
from opbuild.runtime.devices.arrays import DeviceArray, SharingDevice, in_order, overlaps
from opbuild.runtime.devices.device import Device, open_device
from opbuild.runtime.devices.kept import Kept, are_one
from opbuild.runtime.endpoint import as_input, dense, wrong_type
from opbuild.runtime.executor import Executor
from opbuild.runtime.network import Network, require_alike
from opbuild.runtime.reused import new_array

Make = Callable[[tuple[int, ...], np.dtype[Any]], Any]
"""Makes an object with memory on the device, given its shape and element type."""

_HINT = "give a dense array of the device that the network runs on, or one in the CPU's memory"


class DeviceNetwork(Network):
    """A network that is built for a class of devices.

    Args:
        device: The class.
        args: As of ``Network``.
        kwargs: As of ``Network``.
    """

    def __init__(self, device: str, *args: Any, **kwargs: Any) -> None:
        self._class = device
        super().__init__(*args, **kwargs)

    @lazy_property
    def _sharing(self) -> SharingDevice | None:
        """The device, if arrays of other libraries lie there."""
        device: Any = open_device(self._class)
        return device if isinstance(device, SharingDevice) else None

    def _run(self, values: Sequence[Any], given: Sequence[Any] = ()) -> list[Any]:
        device = self._sharing
        if device is None or all(each is None or type(each) is np.ndarray for each in (*values, *given)):
            return super()._run(values, given)
        arrays = self._found_inputs(values)
        if not any(isinstance(each, DeviceArray) for each in (*arrays, *given)):
            return super()._run(values, given)
        if any(isinstance(each, DeviceArray) for each in arrays):
            return self._run_onto(device, arrays, given, device.make)
        return self._run_there(device, self._bound(self._tensor_shapes(arrays)).executor, arrays, given)

    def call_on_device(
        self, values: Sequence[Any], make: Make, updates: Mapping[int, int] = MappingProxyType({})
    ) -> list[Any]:
        """Run the network, its outputs on the device.

        Args:
            values: A value for each input, in order.
            make: Makes the object of each output, which the device finds and which is the result.
            updates: Outputs that may be written where inputs lie, by their places; each is where it continues that
                input, and then that is the result.

        Raises:
            RunError: If the device has no memory that others see; and as a call does.
        """
        device = self._sharing
        if device is None:
            raise RunError(f"arrays on {self._class} cannot be shared", "leave the outputs on the host")
        arrays = self._found_inputs(values)
        given: Sequence[Any] = ()
        if updates:
            executor = self._bound(self._tensor_shapes(arrays)).executor
            kept = executor.kept if isinstance(executor, Executor) else {}
            given = [_updated(arrays, kept.get(place), updates.get(place)) for place in range(len(self._outputs))]
        results = self._run_onto(device, arrays, given, make)
        for place, target in enumerate(given):  # one that shares memory with another input comes by the host
            if target is not None and results[place] is not target:
                results[place] = self._copied(self._outputs[place], results[place], target)
        return [each.owner if isinstance(each, DeviceArray) else each for each in results]

    def _run_onto(self, device: SharingDevice, arrays: Sequence[Any], given: Sequence[Any], make: Make) -> list[Any]:
        """Return outputs, those that are not given in what is made for them."""
        executor = self._bound(self._tensor_shapes(arrays)).executor
        targets = [*given] or [None] * len(self._outputs)
        made: list[DeviceArray | None] = [None] * len(targets)
        if isinstance(executor, Executor):  # what is in segments tells no sizes before it runs
            for place, port in enumerate(executor.outputs):
                if targets[place] is None:
                    made[place] = self._make(make, port.type.shape, numpy_dtype(port.type.dtype))
        chosen = [own if target is None else target for target, own in zip(targets, made, strict=True)]
        results = self._run_there(device, executor, arrays, chosen)
        return [
            result if target is not None else self._brought(name, result, own, make)
            for name, result, target, own in zip(self._outputs, results, targets, made, strict=True)
        ]

    def _run_there(
        self, device: SharingDevice, executor: Runs, arrays: Sequence[Any], given: Sequence[Any]
    ) -> list[Any]:
        try:
            with in_order(device, (*arrays, *given)):
                return executor.run(*self._placed(executor, arrays, given))
        except MemoryError as error:
            raise self._memory_error(error) from error

    def _make(self, make: Make, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray | None:
        return None if dtype.hasobject else self._found(make(shape, dtype), "what is made for an output", OutputError)

    def _brought(self, name: str, result: Any, array: DeviceArray | None, make: Make) -> Any:
        """Return the object on the device that an output was made for, with the output in it."""
        if result is not array and isinstance(result, np.ndarray):
            array = self._make(make, result.shape, result.dtype) if array is None else array
            result = result if array is None else self._copied(name, result, array)
        return result.owner if isinstance(result, DeviceArray) else result

    def _found_inputs(self, values: Sequence[Any]) -> list[Any]:
        named = zip(values, self._dtypes, self._positions, strict=True)
        return [self._input(value, dtype, name) for value, dtype, name in named]

    def _input(self, value: Any, dtype: np.dtype[Any], name: str) -> Any:
        """Return an input where it lies: on the device, or an array of the host's."""
        found = None if dtype.hasobject else self._found(value, f"input {name!r}", InputError)
        if found is None:
            return dense(as_input(value, dtype, name))
        if found.dtype != dtype:
            raise wrong_type(name, value, str(getattr(value, "dtype", found.dtype)), dtype)
        return found

    def _found(self, value: Any, what: str, error: type[OpbuildError]) -> DeviceArray | None:
        """Return an array on the device; what lies there in another way is refused."""
        if type(value) is np.ndarray or self._sharing is None:
            return None
        try:
            return self._sharing.find(value)
        except ValueError as wrong:
            raise error(f"{what} cannot be copied on {self._class}: {wrong}", _HINT) from wrong

    def _placed(self, executor: Runs, arrays: Sequence[Any], given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return inputs and given outputs as a call takes them: on the device where only copies read or write them."""
        calls = executor.calls if isinstance(executor, Executor) else None
        copied: Mapping[int, str] = {} if calls is None else calls.copied
        kept = executor.kept if isinstance(executor, Executor) else {}
        inputs, outputs, everything = [], [], (*arrays, *given)
        for place, (array, dtype) in enumerate(zip(arrays, self._dtypes, strict=True)):
            stays = not isinstance(array, DeviceArray) or copied.get(place) == self._class
            inputs.append(array if stays else self._on_host(array, dtype))
        for place, array in enumerate(given):
            serves = not isinstance(array, DeviceArray) or (
                copied.get(len(arrays) + place) == self._class
                and _fits(array, executor, place)
                and not overlaps(array, _others(everything, array, kept.get(place)))
            )
            outputs.append(array if serves else None)
        return inputs, outputs

    def _on_host(self, array: DeviceArray, dtype: np.dtype[Any]) -> Array:
        made = new_array(array.shape, dtype)
        open_device(self._class).read(array.address, made)
        return made

    def _run_into(self, out: Mapping[str, Any], values: Sequence[Any]) -> list[Any]:
        results = super()._run_into(out, values)
        return [each.owner if isinstance(each, DeviceArray) else each for each in results]

    def _target(self, name: str, array: Any) -> Any:
        found = self._found(array, f"out of {name!r}", OutputError)
        if found is None:
            return super()._target(name, array)
        if not found.is_writeable:
            raise OutputError(f"out has a read-only array for output {name!r}", "give one that can be written to")
        return found

    def _copied(self, name: str, result: Any, array: Any) -> Any:
        device = self._sharing
        if not isinstance(array, DeviceArray) or device is None:
            return super()._copied(name, result, array)
        require_alike(name, result, array)
        with in_order(device, [array]):
            cast("Device", device).write(array.address, result)
        return array


def _updated(arrays: Sequence[Any], kept: Kept | None, place: int | None) -> DeviceArray | None:
    """Return the input that an output is written over; None if it cannot be."""
    if kept is None or kept.place != place:
        return None
    array = arrays[kept.place]
    return array if are_one(array, array) else None


def _others(arrays: Sequence[Any], array: DeviceArray, kept: Kept | None) -> Sequence[Any]:
    """Return the arrays that an output may not share memory with: not the input that it continues where that lies."""
    if kept is None or not are_one(arrays[kept.place], array):
        return arrays
    return [each for place, each in enumerate(arrays) if place != kept.place]


def _fits(array: DeviceArray, executor: Runs, place: int) -> bool:
    type_ = executor.outputs[place].type
    return array.shape == type_.shape and array.dtype == numpy_dtype(type_.dtype)
