"""Objects of a remote store: sealed by SHA-256 and, where there is a key, by a signature of that and of their place.

    opbuild/<formats>/operators/<optype>_<number>    one operator
    opbuild/<formats>/origins/<optype>_<number>      from which sources an operator was compiled, see ``store.hints``
    opbuild/<formats>/groups/<SHA-256 of keys>       several operators that a network needs, see ``groups``
    opbuild/<formats>/networks/<name>_<number>       one network, see ``manifest``
    opbuild/<formats>/answers/<name>_<number>        how networks of a model were tuned, see ``store.hints``
    opbuild/<formats>/blobs/<SHA-256>                bytes that a network names
    opbuild/<formats>/claims/                        see ``leases``
    opbuild/<formats>/bank                           what tuning found, see ``tuning_database``

Releases that would not understand each other's objects have folders of their own. What is sealed begins with a line,
``opbuild <SHA-256> <signature>``; blobs are only what their name says, and are asked for by what is sealed.

A folder obeys the rule of one's own store (``platform.files.trust``), unless what lies there is signed: what others
could have put or changed there is not read, and nothing is written there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from opbuild.kernel.key import KEY_FORMAT
from opbuild.kernel.networks import FORMAT as NETWORK_FORMAT
from opbuild.kernel.reason import Reason
from opbuild.platform.files.trust import SignatureError, Trust, UntrustedError, parse_json
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass
from opbuild.store.blobs import Data, Files
from opbuild.store.items import REFUSED, reason_of
from opbuild.store.remote.retry import SECONDS
from opbuild.store.remote.service import Service
from opbuild.store.remote.shared_folder import answer
from opbuild.text.canonical import canonical_json

FORMAT = 2
"""Raised whenever the meaning of what only remote stores hold changes."""

NAMESPACE = f"opbuild/{FORMAT}.{KEY_FORMAT}.{NETWORK_FORMAT}/"
OPERATORS, ORIGINS, GROUPS, NETWORKS, ANSWERS, BLOBS, CLAIMS = (
    f"{NAMESPACE}{name}/" for name in ("operators", "origins", "groups", "networks", "answers", "blobs", "claims")
)
TUNING_DATABASE = f"{NAMESPACE}bank"

_HEAD = re.compile(rb"opbuild ([0-9a-f]{64}) ([0-9a-f]{64}|-)\n")
_HEAD_BYTES = 139
"""What the first line has at most."""


def sha256_of(data: bytes | memoryview) -> str:
    """Return the SHA-256 of some bytes as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


@dataclass(eq=False, repr=False)
class Objects:
    """The objects of a remote store, checked before anybody sees them. Threads may share it.

    Attributes:
        service: The store.
        trust: What objects are signed with.
        tell: Told once in a process why the store is not used, where it fails.
        checks: Whether what is written is read first, and left if it is the same; then damage ends nothing.
    """

    service: Service
    trust: Trust
    tell: Callable[[str], None] = lambda text: None
    checks: bool = False

    def __post_init__(self) -> None:
        self._problems: dict[str, Reason | None] = {}

    def get(self, name: str, most: int) -> bytes | Reason:
        """Return the sealed bytes, or why there are none.

        Codes of the reason are ``absent``, ``refused``, ``slow``, ``damaged``, ``untrusted`` or a signature's.
        """
        data = self._read(name, most + _HEAD_BYTES)
        if isinstance(data, Reason):
            return data
        head = _HEAD.match(data)
        body = data[head.end() :] if head else b""
        if head is None or head[1].decode() != sha256_of(body):
            return self.damaged(name, Reason("damaged", "it is not what was written"))
        signature = head[2].decode()
        try:
            self.trust.check_signature("" if signature == "-" else signature, "remote", name, head[1].decode())
        except SignatureError as error:
            return self._distrusted(Reason(error.code, str(error)))
        self.service.reading.succeeded()
        return body

    def put(self, files: Files) -> Reason | None:
        """Seal and write objects, replacing those that are there; return None, or why not."""
        return next(filter(None, (self._put(path, bytes(body)) for path, body in files)), None)

    def names(self, folder: str = "", at_most: int | None = None) -> tuple[str, ...] | Reason:
        """Return the names in a folder, or why they cannot be listed or nothing there is read."""
        return self.problem(folder) or self.service.names(folder, at_most)

    def delete(self, *names: str) -> Reason | None:
        """Remove objects if they are there; return None, or why not."""
        return self.service.delete(*names)

    def _put(self, path: str, body: bytes) -> Reason | None:
        if self.checks and self.get(path, len(body)) == body:
            return None
        digest = sha256_of(body)
        head = f"opbuild {digest} {self.trust.sign('remote', path, digest) or '-'}\n"
        return self._write(path, head.encode() + body)

    def get_blob(self, digest: str, nbytes: int) -> bytes | Reason:
        """Return a blob, or why not."""
        data = self._read(BLOBS + digest, nbytes)
        if isinstance(data, Reason):
            return data
        if sha256_of(data) != digest:
            return self.damaged(BLOBS + digest, Reason("damaged", "it is not what was written"))
        self.service.reading.succeeded()
        return data

    def put_blob(self, digest: str, data: bytes | memoryview) -> Reason | None:
        """Write a blob unless it is there; return None, or why not."""
        return None if self._has_blob(digest, len(data)) else self._write(BLOBS + digest, data)

    def _has_blob(self, digest: str, nbytes: int) -> bool:
        """Return whether a blob is there: of its size, as long as this process found all sound that it read."""
        if self.checks:
            return isinstance(self.get_blob(digest, nbytes), bytes)
        return not self.service.damaged and self.service.size(BLOBS + digest) == nbytes

    def damaged(self, path: str, reason: Reason) -> Reason:
        """Take note that an object was damaged, which who may write then writes again; return why."""
        self.service.damaged.add(path)
        return reason if self.checks else self._distrusted(reason)

    def problem(self, path: str) -> Reason | None:
        """Return the reason that nothing is read or written beside an object: others could have changed it."""
        if not self.service.folder or self.trust.key or self.trust.shared:
            return None
        folder = f"{self.service.folder}/{path}".rpartition("/")[0]
        if folder not in self._problems:
            self._problems[folder] = self._judge_folder(folder)
        return self._problems[folder]

    @property
    def _patience(self) -> float:
        return max(SECONDS, self.service.seconds)

    def _judge_folder(self, folder: str) -> Reason | None:
        """Judge a folder: on storage that does not answer any more that takes for ever."""
        place = Path(os.path.abspath(folder))
        problem = answer(lambda: self.trust.folder_problem(place), self._patience)
        if isinstance(problem, str):
            return Reason("untrusted", f"{problem}, or sign what lies there ({_KEY})")
        return problem

    def _read(self, path: str, most: int) -> bytes | Reason:
        data = self._problem(path) or self.service.get(path, most)
        if isinstance(data, Reason):
            return self.damaged(path, data) if data.code == "damaged" else self._failed(data)
        if self.service.folder and not self.trust.key:
            state = answer(Path(self.service.folder, path).stat, self._patience)
            try:
                if not isinstance(state, Reason):
                    self.trust.check(state, path)
            except UntrustedError as error:
                return self._distrusted(reason_of(error, path))
        return bytes(data)

    def _write(self, path: str, data: Data) -> Reason | None:
        problem = self._problem(path) or self.service.put([(path, data)])
        if problem is None and path in self.service.damaged:
            self.service.mended.add(path)
        return problem and self._failed(problem)

    def _problem(self, path: str) -> Reason | None:
        problem = self.problem(path)
        if problem is not None:
            self.service.warn_of(problem)
        return problem

    def _distrusted(self, reason: Reason) -> Reason:
        self.service.distrust(reason)
        return self._failed(reason)

    def _failed(self, reason: Reason) -> Reason:
        warning = self.service.take_warning()
        if warning is not None:
            self.tell(warning)
        return reason


class SealedMemos:
    """Memos of a remote store, each an object in a folder, which ends with a slash."""

    def __init__(self, objects: Objects, folder: str) -> None:
        self._objects, self._folder = objects, folder

    def read(self, name: str) -> Mapping[str, Any]:
        """Return the content of a memo."""
        body = self._objects.get(self._folder + name, _MEMO)
        with contextlib.suppress(*REFUSED):
            return {} if isinstance(body, Reason) else dict(parse_json(body))
        return {}

    def write(self, name: str, content: Mapping[str, Any]) -> Reason | None:
        """Remember something; of two writers at once one is lost, which costs a compile or a lowering."""
        return self._objects.put([(self._folder + name, canonical_json(dict(content)).encode())])


_MEMO = 2**22
_KEY = "OPBUILD_SIGNING_KEY"
