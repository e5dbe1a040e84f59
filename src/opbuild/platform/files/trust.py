"""Trust: whose files are believed. Loading an object is running code, so who can write a file decides which runs.

A file counts if this process's user or root owns it and nobody else may write to it; a folder if that holds for it
and for every folder and symbolic link on the way to it, where those that only let each user remove what is his own
(the sticky bit, as ``/tmp`` has it) may be open to all. Modes and owner of a file are those of the descriptor that is
read, so they cannot change between the check and the reading. With a signing key, files must also be signed with it.

Sealed files are JSON that carries the digest of its own content and name, and if there is a key a signature of both.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.platform.digest import blake3_of, blake3_of_parts
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, field, replace
from opbuild.text.canonical import canonical_json

SETTING = "OPBUILD_TRUST_SHARED_CACHE=1"
"""What lets a cache be used that others can write to."""

SHORTEST_KEY = 16
"""Bytes of a signing key at least."""

OBJECT = 64 * 2**20
"""Bytes that an operator's object can have at most; they have some tens of kilobytes. Whoever reads a file looks first,
since one that grew (a sparse one takes no disk) would be read for minutes; nothing larger is written."""

RECORD = 16 * 2**20
"""An operator's ``.info`` or ``.json``; the source of a user's operator is in them."""

NETWORK = 256 * 2**20
"""The record of a stored network; some hundred bytes for each operator."""

MEMO = 16 * 2**20
"""What is only remembered: of models, files, weights and the compiler."""

LISTING = 256 * 2**20
"""The list of a bundle's files."""

ENTRY = {".o": OBJECT, ".info": RECORD, ".json": RECORD}
"""The files of an entry."""

_SIGNATURE, _CHECK = "signature", "check"
_ROOT = 0
_LINKS_AT_MOST = 40  # as Linux has it
_KEY_FILE = "file:"
_LONGEST_KEY = 65536


class UntrustedError(OSError):
    """A file that somebody else may write to, or owns."""


class SignatureError(ValueError):
    """A signature of another key, or none.

    Attributes:
        code: ``unsigned`` or ``wrong-signature``.
    """

    def __init__(self, code: str) -> None:
        super().__init__("it is not signed" if code == "unsigned" else "it is signed with another key, or was changed")
        self.code = code


@dataclass(frozen=True)
class Trust:
    """Whose files are believed.

    Attributes:
        shared: Whether files and folders count that others can write to.
        key: The signing key; empty: nothing is signed, and signatures are not looked at.
    """

    shared: bool = False
    key: bytes = field(default=b"", repr=False)

    def folder_problem(self, *folders: Path) -> str | None:
        """Return the reason that others could have put files into some folders (absolute); None: there is none."""
        if self.shared:
            return None
        user = os.geteuid()
        known: dict[str, str] = {}
        for folder in folders:
            for path, state in _leading_to(folder, known):
                if not stat.S_ISDIR(state.st_mode) and not stat.S_ISLNK(state.st_mode):
                    break  # nothing can lie there, and a device such as /dev/null is everybody's
                final = path == known.get(str(folder), "")
                problem = _other_writers(state, user, sticky_counts=not final)
                if problem:
                    where = path if final else f"{path}, on the way to {folder}"
                    return f"{problem} {where}, and who writes there decides what code runs here; {remedy(path, state)}"
        return None

    def check(self, state: os.stat_result, path: str | os.PathLike[str]) -> None:
        """Refuse an open file that is none, or that others can write to.

        Raises:
            UntrustedError: If others can write to it.
            OSError: If it is not a regular file.
        """
        if not stat.S_ISREG(state.st_mode):
            raise OSError(
                errno.EISDIR if stat.S_ISDIR(state.st_mode) else errno.EINVAL, "it is not a regular file", str(path)
            )
        if self.shared:
            return
        problem = _other_writers(state, os.geteuid())
        if problem:
            raise UntrustedError(errno.EPERM, f"{problem} it: {remedy(path, state)}", str(path))

    def open(self, path: str | os.PathLike[str], flags: int = 0) -> tuple[int, os.stat_result]:
        """Open a file for reading and return its descriptor and state; a pipe in its place makes nobody wait.

        Raises:
            UntrustedError: If others can write to it.
            OSError: If it cannot be opened or is not a regular file.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | flags)
        try:
            state = os.fstat(descriptor)
            self.check(state, path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, state

    def read(self, path: str | os.PathLike[str], most: int, flags: int = 0) -> bytes:
        """Return a file's contents.

        Raises:
            UntrustedError: If others can write to it.
            OSError: If it cannot be read, is not a regular file or has more bytes (``EFBIG``).
        """
        descriptor, state = self.open(path, flags)
        try:
            if state.st_size > most:
                message = f"it has {state.st_size} bytes, and can have {most} at most"
                raise OSError(errno.EFBIG, message, str(path))
            pieces = [os.read(descriptor, state.st_size + 1)]
            while pieces[-1]:
                pieces.append(os.read(descriptor, 65536))
        finally:
            os.close(descriptor)
        return b"".join(pieces)

    def sign(self, *parts: str) -> str:
        """Return the HMAC-SHA256 of some texts, in order, as 64 hexadecimal digits; empty without a key."""
        if not self.key:
            return ""
        import hmac  # loads OpenSSL, which most processes never need

        data = [part.encode(errors="surrogatepass") for part in parts]
        return hmac.digest(self.key, b"".join(len(part).to_bytes(8, "big") + part for part in data), "sha256").hex()

    def check_signature(self, signature: Any, *parts: str) -> None:
        """Compare a signature, in a time that does not depend on where it differs; without a key any will do.

        Raises:
            SignatureError: If there is none, or it is not the one that ``sign`` makes.
        """
        if not self.key:
            return
        import hmac

        if not isinstance(signature, str) or not signature:
            raise SignatureError("unsigned")
        if not hmac.compare_digest(signature.encode(errors="replace"), self.sign(*parts).encode()):
            raise SignatureError("wrong-signature")

    def signed(self, name: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return a JSON object with the signature of its other fields and a name, if there is a key."""
        plain = {field: value for field, value in content.items() if field != _SIGNATURE}
        return plain | {_SIGNATURE: self.sign(name, canonical_json(plain))} if self.key else plain

    def unsigned(self, name: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return a JSON object without its signature, compared if there is a key.

        Raises:
            SignatureError: If it is not signed with the key under this name.
        """
        plain = {field: value for field, value in content.items() if field != _SIGNATURE}
        if self.key:
            try:
                text = canonical_json(plain)
            except (ValueError, RecursionError):  # no JSON that anybody has signed
                raise SignatureError("wrong-signature") from None
            self.check_signature(content.get(_SIGNATURE), name, text)
        return plain

    def write_memo(self, path: Path, content: Mapping[str, Any]) -> bytes:
        """Return the bytes of a memo: a small file with a digest of its content and of its place, and signed.

        What is remembered of one thing is sound in itself under the name of another, too; only the place tells.
        """
        checked = {**content, _CHECK: _check(path, content)}
        return json.dumps(self.signed(_place(path), checked)).encode()

    def read_memo(self, path: Path) -> dict[str, Any]:
        """Return the content that ``write_memo`` put into a file.

        Raises:
            OSError: If it cannot be read or others can write to it.
            ValueError: If it is no JSON object, damaged, written for another place, or not signed.
        """
        return self.parse_memo(path, self.read(path, MEMO))

    def parse_memo(self, path: Path, data: bytes | memoryview) -> dict[str, Any]:
        """Return the content that ``write_memo`` was given for a file.

        Raises:
            ValueError: As ``read_memo``.
        """
        stored = parse_json(bytes(data))
        if not isinstance(stored, dict):
            raise ValueError(f"{path.name} is no JSON object")
        content = self.unsigned(_place(path), stored)
        if content.pop(_CHECK, None) != _check(path, content):
            raise ValueError(f"{path.name} is damaged, or was written for another place")
        return content


PRIVATE = Trust()
"""What is believed unless somebody says otherwise."""


def make_trust(config: Config) -> Trust:
    """Return the trust that settings ask for.

    Raises:
        OptionError: If the signing key cannot be read or is too short; the message does not show it.
    """
    text = config.signing_key
    return Trust(config.trust_shared_cache, _signing_key(text) if text else b"")


def trusted(config: Config) -> tuple[Config, Trust]:
    """Return settings that leave a folder alone to which others can write, with a warning, and whose files count.

    What lies elsewhere is used all the same: the pack, and the remote store.

    Raises:
        OptionError: See ``make_trust``.
    """
    trust = make_trust(config)
    weights = config.network_meta / "weights"
    problem = trust.folder_problem(config.kernel_meta, config.network_meta, weights) if config.uses_cache else None
    if problem is None:
        return config, trust
    warnings = (*config.warnings, f"the cache is not used: {problem}")
    return replace(config, folder_problem=problem, warnings=warnings), trust


def parse_json(data: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: If it is none; also if it is nested too deeply, or has numbers that are not finite, which JSON has
            not and Python reads.
    """
    try:
        return json.loads(data, parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is no number of JSON")
    return number


def _place(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _check(path: Path, content: Mapping[str, Any]) -> str:
    return blake3_of(canonical_json([_place(path), dict(content)]).encode())


def remedy(path: str | os.PathLike[str], state: os.stat_result) -> str:
    """Return the remedy for a file or folder that others can write to."""
    user = os.geteuid()
    command = "chmod go-w" if state.st_uid in (_ROOT, user) else f"chown {user}"
    return f"'{command} {path}' mends it, or set {SETTING} if you trust them"


def _signing_key(text: str) -> bytes:
    hint = f"give at least {SHORTEST_KEY} bytes, or file:PATH of a file of yours that holds them"
    key = text.encode(errors="surrogateescape")
    if text.startswith(_KEY_FILE):
        path = text[len(_KEY_FILE) :]
        try:
            key = PRIVATE.read(path, _LONGEST_KEY).strip()
        except (OSError, ValueError) as error:
            what = getattr(error, "strerror", None) or error
            raise OptionError(f"the file of OPBUILD_SIGNING_KEY, {path!r}, cannot be used: {what}", hint) from None
    if not SHORTEST_KEY <= len(key) <= _LONGEST_KEY:
        raise OptionError(f"OPBUILD_SIGNING_KEY has {len(key)} bytes", hint)
    return key


def _other_writers(state: os.stat_result, user: int, *, sticky_counts: bool = False) -> str:
    """Return the others who may write to a file or folder, or the empty text.

    A group may write if nobody else is in it: root's, or the user's own, which has the user's number where each user
    has a group.
    """
    if state.st_uid not in (_ROOT, user):
        return f"user {state.st_uid} owns"
    mode = state.st_mode
    if stat.S_ISLNK(mode) or (sticky_counts and mode & stat.S_ISVTX):
        return ""
    if mode & stat.S_IWOTH:
        return "everybody may write to"
    if mode & stat.S_IWGRP and state.st_gid not in (_ROOT, user):
        return f"group {state.st_gid} may write to"
    return ""


def _leading_to(folder: Path, known: dict[str, str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every folder and symbolic link that leads to a folder, as far as they exist.

    Args:
        folder: The folder.
        known: Where folders end that were followed before; added to.
    """
    start = known.get(str(folder.parent))
    here, left = (start, [folder.name]) if start else ("/", str(folder).split("/")[::-1])
    if not start:
        yield here, os.lstat(here)
    links = 0
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = here.rpartition("/")[0] or "/"
            continue
        path = here.rstrip("/") + "/" + name
        try:
            state = os.lstat(path)
            target = str(Path(path).readlink()) if stat.S_ISLNK(state.st_mode) else None
        except OSError:
            return
        if target is None:
            here = path
            if not left:
                known[str(folder)] = here
        else:
            links += 1
            if links > _LINKS_AT_MOST:
                return
            here = "/" if target.startswith("/") else here
            left += target.split("/")[::-1]
        yield path, state


_HEAD, _MIDDLE, _TAIL = b'{"blake3":"', b'","content":', b"}\n"
_SIGNED_HEAD, _SIGNED_TAIL = b',"signature":"', b'"}\n'
_SEAL_DIGITS = 64


def seal(content: Mapping[str, Any], name: str, trust: Trust = PRIVATE) -> bytes:
    """Return the bytes of a sealed file.

    Args:
        content: What to store.
        name: The file's name: what is sound under one name is not under another, whose content it is not.
        trust: What it is signed with.
    """
    return seal_text(canonical_json(dict(content)).encode(), name, trust)


def seal_text(body: bytes, name: str, trust: Trust = PRIVATE) -> bytes:
    """Return the bytes of a sealed file, for a content that is JSON's text already."""
    digest = _sealed_digest(name, body)
    return _HEAD + digest.encode() + _MIDDLE + body + _end(trust.sign("sealed", name, digest))


def unseal(data: bytes, name: str, trust: Trust = PRIVATE) -> Any:
    """Return the content that ``seal`` wrote into the file of this name.

    Raises:
        SignatureError: If there is a key, and it is not signed with it under this name.
        ValueError: If it is damaged, or was written under another name.
    """
    start, end, signature = len(_HEAD) + _SEAL_DIGITS + len(_MIDDLE), -len(_TAIL), ""
    if data.endswith(_SIGNED_TAIL):  # a content is an object, and ends with another sign
        digits = len(data) - len(_SIGNED_TAIL) - _SEAL_DIGITS
        end, signature = digits - len(_SIGNED_HEAD), data[digits : digits + _SEAL_DIGITS].decode(errors="replace")
    body = data[start:end]
    digest = _sealed_digest(name, body) if data.startswith(_HEAD) else ""
    if data[:start] != _HEAD + digest.encode() + _MIDDLE or data[end:] != _end(signature):
        raise ValueError("its record is damaged, or was written for another file")
    trust.check_signature(signature, "sealed", name, digest)
    return parse_json(body)


def _sealed_digest(name: str, body: bytes) -> str:
    return blake3_of_parts([name.encode(errors="surrogateescape"), b"\n", body])


def _end(signature: str) -> bytes:
    return _SIGNED_HEAD + signature.encode(errors="replace") + _SIGNED_TAIL if signature else _TAIL
