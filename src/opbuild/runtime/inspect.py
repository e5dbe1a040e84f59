"""Looking at a stored network without knowing who asks for it: whether its files are what was written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from opbuild.digest import fast
from opbuild.kernel.interfaces import Reason
from opbuild.kernel.trust import PRIVATE, SignatureError, Trust, UntrustedError
from opbuild.runtime.files import digest_file
from opbuild.runtime.image import unseal
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


def read(
    folder: Path, name: str, trust: Trust = PRIVATE, digest: Callable[[Path, Trust], str] = digest_file
) -> StoredNetwork | Reason:
    """Return a stored network whose every byte was checked, its weights included, or what is wrong with it.

    Args:
        folder: The folder of networks.
        name: The network's name.
        trust: Whose files are believed.
        digest: Returns the BLAKE3 of a file of weights; many networks may map one.
    """
    try:
        return check(name, lambda file: trust.read(folder / file), lambda file: digest(folder / file, trust), trust)
    except FileNotFoundError as error:
        return Reason("incomplete", f"{Path(str(error.filename)).name} is missing")
    except UntrustedError as error:
        return Reason("untrusted", f"{Path(str(error.filename)).name} is not used: {error.strerror}")
    except OSError as error:
        return Reason("unreadable", f"{Path(str(error.filename)).name} can not be read: {error.strerror or error}")


def check(
    name: str,
    read_file: Callable[[str], bytes | memoryview],
    digest_weight: Callable[[str], str],
    trust: Trust = PRIVATE,
) -> StoredNetwork | Reason:
    """Return a network whose files can be read by name, or what is wrong with it.

    Args:
        name: The network's name.
        read_file: Returns the contents of one of the network's files.
        digest_weight: Returns the BLAKE3 of one of its weights.
        trust: What the network must be signed with.

    Raises:
        OSError: What ``read_file`` and ``digest_weight`` raise.
    """
    try:
        content = unseal(bytes(read_file(f"{name}.json")), name, trust)
        record = from_json(content["record"])
        target = str(content["key"]["target"])
        sizes = {".so": tuple(content["so"]), ".bin": tuple(content["bin"])}
    except SignatureError as error:
        return Reason(error.code, str(error))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return Reason("damaged", str(error))
    for suffix, expected in sizes.items():
        data = read_file(name + suffix)
        if (len(data), fast(data)) != expected:
            return Reason("damaged", f"{suffix} is not what was written")
    weights = dict.fromkeys(f"weights/{constant.digest}.bin" for constant in record.constants if constant.digest)
    for file in weights:
        if digest_weight(file) != Path(file).stem:
            return Reason("damaged", f"{file} is not what was written")
    return StoredNetwork(name, record.name, target, (*weights, f"{name}.so", f"{name}.bin", f"{name}.json"))
