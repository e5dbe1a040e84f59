"""Looking at a stored network without knowing who asks for it: whether its files are what was written."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from opbuild.files.mapping import digest_file
from opbuild.files.most_bytes import NETWORK
from opbuild.files.trust import PRIVATE, SignatureError, Trust, UntrustedError
from opbuild.graph.types import TensorType
from opbuild.kernel.interfaces import Reason
from opbuild.platform.digest import fast
from opbuild.program import HostCall
from opbuild.runtime.image import size_and_digest, unseal
from opbuild.runtime.record_json import from_json


@dataclass(frozen=True)
class StoredNetwork:
    """A stored network, checked.

    Attributes:
        name: The files' name without suffix.
        network: The network's own name.
        target: The machine that it is for.
        files: Its files and the weights that it uses, as paths below the folder; the commit mark last.
    """

    name: str
    network: str
    target: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Description:
    """What a stored network says of itself.

    Attributes:
        network: The network's own name.
        target: The machine that it is for.
        num_threads: How many threads it was built for; 0 if it does not say.
        inputs: Name and type of each input.
        outputs: Name and type of each output.
        operators: Name of each operator, and the nodes that it computes.
        host: How many nodes of each type run on the host.
        weights: Digest and bytes of the packed weights that it maps.
    """

    network: str
    target: str
    num_threads: int
    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[tuple[str, TensorType], ...]
    operators: tuple[tuple[str, tuple[str, ...]], ...]
    host: Mapping[str, int]
    weights: Mapping[str, int]


ReadFile = Callable[[Path, int, Trust], bytes]
"""Returns the contents of a file that can have so many bytes at most, if it can be trusted."""


def _read_file(path: Path, most: int, trust: Trust) -> bytes:
    return trust.read(path, most)


def describe(folder: Path, name: str, trust: Trust = PRIVATE, read_file: ReadFile = _read_file) -> Description | Reason:
    """Return what a stored network's record says, without looking at its other files, or why it can not be read.

    Args:
        folder: The folder of networks.
        name: The network's name.
        trust: Whose files are believed.
        read_file: Reads the record.
    """
    file = f"{name}.json"
    try:
        content = unseal(read_file(folder / file, NETWORK, trust), file, trust)
        record = from_json(content["record"])
        threads = content["key"].get("num_threads")
        return Description(
            network=record.name,
            target=str(content["key"]["target"]),
            num_threads=threads if isinstance(threads, int) else 0,
            inputs=tuple((port.name, port.type) for port in record.inputs),
            outputs=tuple((port.name, port.type) for port in record.outputs),
            operators=tuple(
                (str(operator), tuple(map(str, nodes))) for operator, nodes, _ in record.notes.get("operators", ())
            ),
            host=Counter(step.node.op_type for step in record.steps if isinstance(step, HostCall)),
            weights={each.digest: each.nbytes for each in record.constants if each.digest},
        )
    except SignatureError as error:
        return Reason(error.code, str(error))
    except OSError as error:
        return Reason("unreadable", f".json can not be read: {error.strerror or error}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Reason("damaged", str(error))


def read(
    folder: Path,
    name: str,
    trust: Trust = PRIVATE,
    digest: Callable[[Path, Trust], str] = digest_file,
    read_file: ReadFile = _read_file,
) -> StoredNetwork | Reason:
    """Return a stored network whose every byte was checked, its weights included, or what is wrong with it.

    Args:
        folder: The folder of networks.
        name: The network's name.
        trust: Whose files are believed.
        digest: Returns the BLAKE3 of a file of weights; many networks may map one.
        read_file: Reads the other files.
    """
    try:
        digest_weight = partial(_digest, folder, trust, digest)
        return check(name, lambda file, most: read_file(folder / file, most, trust), digest_weight, trust)
    except FileNotFoundError as error:
        return Reason("incomplete", f"{Path(str(error.filename)).name} is missing")
    except UntrustedError as error:
        return Reason("untrusted", f"{Path(str(error.filename)).name} is not used: {error.strerror}")
    except OSError as error:
        code = "damaged" if error.errno == errno.EFBIG else "unreadable"
        return Reason(code, f"{Path(str(error.filename)).name} can not be read: {error.strerror or error}")


def check(
    name: str,
    read_file: Callable[[str, int], bytes | memoryview],
    digest_weight: Callable[[str, int], str],
    trust: Trust = PRIVATE,
) -> StoredNetwork | Reason:
    """Return a network whose files can be read by name, or what is wrong with it.

    Args:
        name: The network's name.
        read_file: Returns the contents of one of the network's files, which can have so many bytes at most.
        digest_weight: Returns the BLAKE3 of one of its weights, or nothing if it has another number of bytes.
        trust: What the network must be signed with.

    Raises:
        OSError: What ``read_file`` and ``digest_weight`` raise.
    """
    try:
        content = unseal(bytes(read_file(f"{name}.json", NETWORK)), f"{name}.json", trust)
        record = from_json(content["record"])
        target = str(content["key"]["target"])
        sizes = {suffix: size_and_digest(content[suffix[1:]]) for suffix in (".so", ".bin")}
    except SignatureError as error:
        return Reason(error.code, str(error))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return Reason("damaged", str(error))
    for suffix, expected in sizes.items():
        data = read_file(name + suffix, expected[0])
        if (len(data), fast(data)) != expected:
            return Reason("damaged", f"{suffix} is not what was written")
    weights = {f"weights/{each.digest}.bin": each.nbytes for each in record.constants if each.digest}
    for file, nbytes in weights.items():
        if digest_weight(file, nbytes) != Path(file).stem:
            return Reason("damaged", f"{file} is not what was written")
    return StoredNetwork(name, record.name, target, (*weights, f"{name}.so", f"{name}.bin", f"{name}.json"))


def _digest(folder: Path, trust: Trust, digest: Callable[[Path, Trust], str], file: str, nbytes: int) -> str:
    return digest(folder / file, trust) if (folder / file).stat().st_size == nbytes else ""
