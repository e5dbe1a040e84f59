"""Looking at a stored network without knowing who asks for it: whether its files are what was written."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from opbuild.digest import fast
from opbuild.kernel.interfaces import Reason
from opbuild.kernel.limits import NETWORK
from opbuild.kernel.trust import PRIVATE, SignatureError, Trust, UntrustedError
from opbuild.runtime.files import digest_file
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
        digest_weight = partial(_digest, folder, trust, digest)
        return check(name, lambda file, most: trust.read(folder / file, most), digest_weight, trust)
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
