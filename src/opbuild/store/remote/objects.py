"""Objects of a remote store: sealed by SHA-256 and, where there is a key, by a signature of that and of their place.

    opbuild/<formats>/operators/<optype>_<number>    one operator
    opbuild/<formats>/origins/<optype>_<number>      from which sources an operator was compiled, see ``store.origins``
    opbuild/<formats>/groups/<SHA-256 of keys>       several operators that a network needs, see ``groups``
    opbuild/<formats>/networks/<name>_<number>       one network, see ``manifest``
    opbuild/<formats>/blobs/<SHA-256>                bytes that a network names
    opbuild/<formats>/claims/                        see ``leases``
    opbuild/<formats>/bank                           what tuning found, see ``banks``

Releases that would not understand each other's objects have folders of their own. What is sealed begins with a line,
``opbuild <SHA-256> <signature>``; blobs are only what their name says, and are asked for by what is sealed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from opbuild.files.trust import SignatureError, Trust
from opbuild.kernel.key import KEY_FORMAT
from opbuild.kernel.networks import FORMAT as NETWORK_FORMAT
from opbuild.kernel.reason import Reason
from opbuild.store.remote.service import Service

FORMAT = 2
"""Raised whenever the meaning of what only remote stores hold changes."""

NAMESPACE = f"opbuild/{FORMAT}.{KEY_FORMAT}.{NETWORK_FORMAT}/"
OPERATORS, ORIGINS, GROUPS, NETWORKS, BLOBS, CLAIMS = (
    f"{NAMESPACE}{name}/" for name in ("operators", "origins", "groups", "networks", "blobs", "claims")
)
BANK = f"{NAMESPACE}bank"

_HEAD = re.compile(rb"opbuild ([0-9a-f]{64}) ([0-9a-f]{64}|-)\n")
_HEAD_BYTES = 139
"""What the first line has at most."""


def sha256_of(data: bytes | memoryview) -> str:
    """Return the SHA-256 of some bytes as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


class Objects:
    """What a remote store holds, checked before anybody sees it. Threads may share it.

    Args:
        service: The store.
        trust: What objects are signed with.
        tell: Told once in a process why the store is not used, where it fails.
    """

    def __init__(self, service: Service, trust: Trust, tell: Callable[[str], None] = lambda text: None) -> None:
        self.service = service
        self._trust = trust
        self._tell = tell

    def get(self, path: str, most: int) -> bytes | Reason:
        """Return what was sealed, or why not: ``absent``, ``refused``, ``slow``, ``damaged`` or a signature's code.

        Args:
            path: Where it is.
            most: Bytes that it can have.
        """
        data = self.service.read(path, most + _HEAD_BYTES)
        if isinstance(data, Reason):
            return self._failed(data)
        head = _HEAD.match(data)
        body = data[head.end() :] if head else b""
        if head is None or head[1].decode() != sha256_of(body):
            return self._distrusted(Reason("damaged", "it is not what was written"))
        signature = head[2].decode()
        try:
            self._trust.check_signature("" if signature == "-" else signature, "remote", path, head[1].decode())
        except SignatureError as error:
            return self._distrusted(Reason(error.code, str(error)))
        self.service.reading.succeeded()
        return body

    def put(self, path: str, body: bytes) -> Reason | None:
        """Seal and write an object, replacing one that is there; return None, or why not."""
        digest = sha256_of(body)
        head = f"opbuild {digest} {self._trust.sign('remote', path, digest) or '-'}\n"
        problem = self.service.write(path, head.encode() + body)
        return problem and self._failed(problem)

    def get_blob(self, digest: str, nbytes: int) -> bytes | Reason:
        """Return a blob, or why not."""
        data = self.service.read(BLOBS + digest, nbytes)
        if isinstance(data, Reason):
            return self._failed(data)
        if sha256_of(data) != digest:
            return self._distrusted(Reason("damaged", "it is not what was written"))
        self.service.reading.succeeded()
        return data

    def put_blob(self, digest: str, data: bytes | memoryview) -> Reason | None:
        """Write a blob unless it is there; return None, or why not."""
        there = self.service.exists(BLOBS + digest)
        problem = None if there is True else self.service.write(BLOBS + digest, data)
        return problem and self._failed(problem)

    def _distrusted(self, reason: Reason) -> Reason:
        self.service.distrust(reason)
        return self._failed(reason)

    def _failed(self, reason: Reason) -> Reason:
        warning = self.service.take_warning()
        if warning is not None:
            self._tell(warning)
        return reason
