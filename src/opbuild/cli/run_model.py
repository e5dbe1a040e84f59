"""Running a model from the command line: inputs from files or at random, statistics and latency out."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rich.table import Table
from rich.text import Text

from opbuild.cli.build_log import StorageWatch, stored_in
from opbuild.cli.picture import Picture
from opbuild.cli.progress import build_progress
from opbuild.cli.streams import echo
from opbuild.cli.tables import WHOLE_NAMES, Terminal, output_console, plain_table, say
from opbuild.config import CACHE_MODES, Config
from opbuild.dtypes import numpy_dtype
from opbuild.errors import FileError, InputError, OptionError, ShapeError
from opbuild.events import ignore
from opbuild.graph.types import TensorType
from opbuild.kernel.opdesc import FREE
from opbuild.platform.files.kinds import ARRAY, require_kind
from opbuild.platform.files.writing import unwritable_folder
from opbuild.platform.limits import unwritten
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple
from opbuild.runtime.profile import random_input
from opbuild.text.plural import counted

if TYPE_CHECKING:
    from opbuild.runtime.endpoint import Endpoint
    from opbuild.runtime.network import Network

Array = npt.NDArray[Any]

OUTPUT_HINT = "name a folder that you may write to"
INPUT_FORM = "give --input NAME=FILE.npy, once for each input that has data"


def run_model(
    path: Path,
    *,
    is_built: bool,
    inputs: tuple[str, ...],
    input_shapes: dict[str, tuple[int, ...]],
    output_dir: Path | None,
    runs: int,
    seed: int,
    report: Path | None = None,
    trace: Path | None = None,
    **settings: Any,
) -> None:
    """Load an offline model, or build a model if needed, call it, and print its outputs and how long it took.

    The options are those of the command; settings are ``Config.from_environment``'s.
    """
    if output_dir is not None and (problem := unwritable_folder(output_dir)):  # before anything is built
        raise OptionError(f"--output_dir is {str(output_dir)!r}, and {problem}", OUTPUT_HINT)
    given, picture = read_inputs(inputs), Picture(path, report, trace)
    config = Config.from_environment(**settings, op_compiler_cache_mode=CACHE_MODES[2] if is_built else None)
    ready = open_network(picture, config, given, input_shapes, seed, is_built=is_built)
    _show(ready, runs)
    if ready.place:
        say(ready.place, soft_wrap=True)
    if picture.is_wanted:
        picture.write(ready.network, config, ready.network.profile(ready.data, runs=runs))
    if output_dir is not None:
        write_outputs(ready.outputs, output_dir)


class ReadyNetwork(NamedTuple):
    """A network that is built or loaded, its first call, and the place of its operators, in words."""

    network: Network
    data: dict[str, Array]
    outputs: Mapping[str, Any]
    seconds: float
    place: str


def open_network(
    picture: Picture,
    config: Config,
    given: Mapping[str, Array],
    input_shapes: Mapping[str, tuple[int, ...]],
    seed: int,
    *,
    is_built: bool,
    is_called: Callable[[Network], bool] = lambda network: True,
    opens: bool = False,
) -> ReadyNetwork:
    """Load an offline model, or build a model, and call it once with given or random inputs, if ``is_called``.

    ``opens`` is as of ``compile_model``.
    """
    if is_built:
        from opbuild.offline.load import open_offline
    else:
        from opbuild.api import compile_model
    data: dict[str, Array] = {}
    outputs: Mapping[str, Any] = {}
    served = ""
    with ExitStack() as stack:
        observer = ignore if is_built else stack.enter_context(build_progress(Terminal(stderr=True)))
        watch, started = StorageWatch(picture.watching(observer)), time.perf_counter()
        if is_built:
            network, served = open_offline(picture.model, config)
            check_inputs(network.inputs, given, input_shapes, built=True)
        else:
            network = compile_model(
                picture.model, config.waiting(), input_shapes=input_shapes, observer=watch,
                check=lambda ports: check_inputs(ports, given, input_shapes), opens=opens,
            )  # fmt: skip
        if is_called(network):
            data = complete_inputs(ports_of(network), given, seed, input_shapes, served)
            outputs = network.run(data)
        seconds = time.perf_counter() - started
    picture.built()
    place = stored_in(config, watch) if network.report.built and not is_built else ""
    return ReadyNetwork(network, data, outputs, seconds, place)


def _show(ready: ReadyNetwork, runs: int) -> None:
    """Print statistics of the outputs, how long the first ones took, and the latency of further calls."""
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        ready.network.run(ready.data)
        seconds.append(time.perf_counter() - started)
    console = output_console()
    console.print(_statistics(ready.outputs, console.width))
    report = ready.network.report
    counts = f"{counted(report.built, 'operator')} built, {report.reused} reused"
    say(f"first outputs after {ready.seconds * 1e3:.1f} ms: {counts}")
    median, least = statistics.median(seconds) * 1e3, min(seconds) * 1e3
    say(f"latency: median {median:.3f} ms, least {least:.3f} ms, {counted(runs, 'call')}")


def read_inputs(options: tuple[str, ...]) -> dict[str, Array]:
    """Load the files of ``--input``: ``name=file.npy``, or ``file.npy`` for the only input, by the name ``""``."""
    arrays: dict[str, Array] = {}
    for option in options:
        name, separator, file = option.rpartition("=")
        if not file or (separator and not name):
            raise OptionError(f"--input is {option!r}", INPUT_FORM)
        if name in arrays:
            raise OptionError(f"--input gives {repr(name) if name else 'a file without a name'} twice", INPUT_FORM)
        try:
            require_kind(Path(file), ARRAY)
            arrays[name] = np.array(np.load(file, "r", allow_pickle=False))  # mapped: its size is the file's
        except FileError as error:
            raise OptionError(f"--input {option}: {error.message}", INPUT_FORM) from error
        except (OSError, ValueError, EOFError, OverflowError, TypeError, MemoryError) as error:
            raise OptionError(
                f"--input {option}: {file!r} is not {ARRAY} of numbers, or it is damaged",
                "save one: numpy.save(FILE, array)",
            ) from error
        if not isinstance(arrays[name], np.ndarray):
            raise OptionError(f"--input {option}: {file!r} holds several arrays", INPUT_FORM)
    if "" in arrays and len(arrays) > 1:
        raise OptionError("--input has a file without a name beside others", INPUT_FORM)
    return arrays


def ports_of(network: Network) -> Sequence[Endpoint]:
    """Return the inputs of a network, with the shapes that it is bound to, if it is."""
    return network.bound_inputs or network.inputs


def complete_inputs(
    ports: Sequence[Endpoint],
    given: Mapping[str, Array],
    seed: int,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    served: str = "",
) -> dict[str, Array]:
    """Return data for every input of a network: given arrays, of which ``""`` names the only one, or random numbers."""
    types = {port.name: port.type for port in ports}
    given = _named(ports, given)
    known = {name: shape for name, shape in (input_shapes or {}).items() if FREE not in shape}
    types.update({name: TensorType(types[name].dtype, shape) for name, shape in known.items()})
    require_shapes(ports, {*given, *known}, served)
    generator = np.random.default_rng(seed)
    return {name: given[name] if name in given else random_input(type_, generator) for name, type_ in types.items()}


def check_inputs(
    ports: Sequence[Endpoint],
    given: Mapping[str, Array],
    input_shapes: Mapping[str, tuple[int, ...]],
    *,
    built: bool = False,
) -> None:
    """Check the command line's data for the inputs of a network against the network's declaration."""
    names = [port.name for port in ports]
    own = f"its inputs are {', '.join(names)}" if names else "it has no inputs"
    for name in input_shapes:
        if name not in names:
            raise ShapeError(f"a shape was given for {name!r}, which is no input", own)
    arrays = _named(ports, given)
    for name in arrays:
        if not name:
            raise InputError(
                f"--input has a file without a name, and the network has {counted(len(names), 'input')}",
                f"{INPUT_FORM}; {own}",
            )
        if name not in names:
            raise InputError(f"the network has no input {name!r}", own)
    for port in ports:
        if port.name in arrays:
            _check_array(port, arrays[port.name], input_shapes.get(port.name), built=built)


def _check_array(port: Endpoint, array: Array, wanted: tuple[int, ...] | None, *, built: bool) -> None:
    name, type_ = port.name, port.type
    if array.dtype != numpy_dtype(type_.dtype):
        raise InputError(
            f"--input: the file for input {name!r} has element type {array.dtype}, the network needs {type_.dtype}",
            f"save it so: numpy.save(FILE, array.astype({type_.dtype!r}))",
        )
    shape = wanted or port.shape
    if shape is None:  # any rank
        return
    if len(shape) == array.ndim and all(one in (FREE, other) for one, other in zip(shape, array.shape, strict=True)):
        return
    shown = _open_text(shape)
    own = ",".join(map(str, array.shape))
    message = f"--input: the file for input {name!r} has shape [{own}], the network needs [{shown}]"
    if wanted is not None:
        raise InputError(message, "leave --shape out: the data has a shape; or give data of the shape named there")
    if len(shape) != array.ndim or built:
        raise InputError(message, "give data of this shape")
    raise InputError(message, f'the model fixes it; --shape "{name}:{own}" builds it for another shape')


def _open_text(shape: Sequence[int]) -> str:
    return ",".join("?" if extent == FREE else str(extent) for extent in shape)


def _named(ports: Sequence[Endpoint], given: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return arrays by the input's name, also the one of a file without a name."""
    return {ports[0].name: given[""]} if "" in given and len(ports) == 1 else given


def require_shapes(ports: Sequence[Endpoint], given: Collection[str] = (), served: str = "") -> None:
    """Check that the shape of every input is known, from the model, an option or its data."""
    for port in ports:
        name, shape = port.name, port.shape
        if name in given or (shape is not None and FREE not in shape):
            continue
        shown = "..." if shape is None else _open_text(shape)
        how = "the dimensions" if shape is None else "numbers for each ?"
        raise OptionError(
            f"input {name!r} may have any rank" if shape is None else f"input {name!r} has the open shape [{shown}]",
            f'give {how}: --shape "{name}:{shown}", or data: --input "{name}=FILE.npy"'
            + (f"; the file serves {served}" if served else ""),
        )


def write_outputs(outputs: Mapping[str, Any], folder: Path) -> None:
    """Write arrays as ``<name>.npy``, and say where; letters that cannot be in a file's name become ``_``."""
    taken: set[str] = set()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for index, (name, array) in enumerate(outputs.items()):
            file = re.sub(r"[^\w.-]+", "_", name).strip(".")[:200] or "output"
            if file in taken:
                file = f"{file}_{index}"
            taken.add(file)
            echo(f"{name} is in {_written(array, folder / file)}")
    except OSError as error:
        raise unwritten(f"--output_dir is {str(folder)!r}, which", error, OUTPUT_HINT) from error


def _written(value: Any, path: Path) -> str:
    """Write an output, a sequence as JSON, and return the file's name."""
    if isinstance(value, list):
        plain = [each.tolist() if isinstance(each, np.ndarray) else each for each in value]
        Path(f"{path}.json").write_text(json.dumps(plain), encoding="utf-8")
        return f"{path}.json"
    data = BytesIO()  # where a file takes less, numpy does not say why
    np.save(data, value.astype(str) if value.dtype == object else value)
    Path(f"{path}.npy").write_bytes(data.getvalue())
    return f"{path}.npy"


_FIGURES: dict[str, Callable[[Array], Any]] = {"min": np.min, "mean": np.mean, "max": np.max, "std": np.std}


def _statistics(outputs: Mapping[str, Any], width: int) -> Table:
    """Return a table of outputs; in a narrow terminal their least and greatest values are all that has room."""
    figures = _FIGURES if width >= WHOLE_NAMES else {name: _FIGURES[name] for name in ("min", "max")}
    table = plain_table("output", "type")
    for column in table.columns:
        column.overflow = "fold"
        column.min_width = 4
    for name in (*figures, "not finite"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, array in outputs.items():
        numbers = _numbers(array)
        finite = numbers[np.isfinite(numbers)]
        shown = [f"{f(finite):.4g}" if finite.size else "-" for f in figures.values()]
        table.add_row(Text(name), Text(_kind(array)), *shown, str(numbers.size - finite.size))
    return table


def _numbers(value: Any) -> Array:
    """Return the numbers in an output, none of a text."""
    if isinstance(value, dict):
        return _numbers(list(value.values()))
    if isinstance(value, list):
        return np.concatenate([np.zeros(0), *map(_numbers, value)])
    array = np.asarray(value)
    return array.astype(np.float64).ravel() if array.dtype.kind in "biufV" else np.zeros(0)


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"sequence[{len(value)}]"
    if value is None:
        return "nothing"
    return f"{'text' if value.dtype == object else value.dtype}[{','.join(map(str, value.shape))}]"
