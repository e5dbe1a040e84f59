"""Address: where a remote store is, read from a URL that never holds a secret.

redis://host[:port][/database]      rediss:// with TLS
s3://bucket[/folder][?region=...&endpoint=...]
https://host[:port][/folder]        http://; only read
webdav://host[:port][/folder]       webdavs:// with TLS
file:///folder                      also its path, /folder or ~/folder
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from opbuild.errors import OptionError
from opbuild.platform.records import NamedTuple

SCHEMES = ("redis", "rediss", "s3", "https", "http", "webdav", "webdavs", "file")

FOLDER = "folder"
"""The service that is none: a folder."""

_FORMS = "redis://host, s3://bucket, https://host, webdav://host, file:///folder or the path of a folder from / or ~"
_QUERY = {"s3": {"region", "endpoint"}}
_CREDENTIALS = {
    "redis": "REDIS_USERNAME and REDIS_PASSWORD",
    "rediss": "REDIS_USERNAME and REDIS_PASSWORD",
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or another of the ways in which AWS finds them",
}
_REDIS_PORT = 6379


class Address(NamedTuple):
    """The address of a remote store.

    Attributes:
        url: The URL; it holds no secret.
        service: What OpenDAL calls the service, or ``FOLDER``.
        options: What OpenDAL must know of it, without secrets.
        host: The server, to ask whether anybody listens there; empty: a folder, or a service that many servers are.
        port: Its port.
    """

    url: str
    service: str
    options: Mapping[str, str]
    host: str = ""
    port: int = 0

    @property
    def is_written(self) -> bool:
        """Whether anything can be written there."""
        return self.service != "http"

    @property
    def is_encrypted(self) -> bool:
        """Whether connections to the host are encrypted."""
        return self.url.startswith(("https:", "webdavs:", "rediss:"))


def parse_address(name: str, text: str) -> Address:
    """Return the address in a URL or the path of a folder; errors say who named it.

    Raises:
        OptionError: If it is none of a remote store, or holds a user's name or a password, which is not shown.
    """
    text = text.strip()
    if text.startswith(("/", "~/")):
        text = f"file://{quote(os.path.expanduser(text))}"  # noqa: PTH111  no path yet
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise OptionError(f"{name} is {mask(text)!r}, which is no URL", f"it must be {_FORMS}") from None
    if parts.scheme not in SCHEMES:
        raise OptionError(f"{name} is {mask(text)!r}", f"it must be {_FORMS}")
    if parts.username is not None or parts.password is not None:
        where = _CREDENTIALS.get(parts.scheme, "~/.netrc")
        raise OptionError(f"{name} is {mask(text)!r}, with credentials in it", f"leave them out; they are in {where}")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = query.keys() - _QUERY.get(parts.scheme, set())
    if unknown or parts.fragment:
        raise OptionError(f"{name} is {mask(text)!r}, whose {min(unknown, default='fragment')!r} means nothing there",
                          f"it must be {_FORMS}")  # fmt: skip
    if bool(parts.hostname) == (parts.scheme == "file"):
        raise OptionError(f"{name} is {mask(text)!r}", f"it must be {_FORMS}")
    return _address(name, parts, port, query)


def _address(name: str, parts: SplitResult, port: int | None, query: Mapping[str, str]) -> Address:
    folder, scheme = unquote(parts.path) or "/", parts.scheme
    url = f"{scheme}://{parts.netloc}{parts.path}".rstrip("/")
    if scheme == "file":
        if "\0" in folder or not os.path.isabs(folder):  # noqa: PTH117  no path yet
            raise OptionError(f"{name} is {url!r}", "it must be file:// and the absolute path of a folder")
        return Address(url, FOLDER, {"root": folder})
    if scheme == "s3":
        return Address(url, "s3", {"bucket": str(parts.hostname), "root": folder, **query})
    if scheme in ("redis", "rediss"):
        database = folder.strip("/") or "0"
        if not re.fullmatch(r"[0-9]{1,4}", database):
            raise OptionError(f"{name} is {url!r}", "the path of redis:// is the number of a database, such as 0")
        host, number = str(parts.hostname), port or _REDIS_PORT
        endpoint = f"{scheme}://{_bracketed(host)}:{number}"
        return Address(url, "redis", {"endpoint": endpoint, "db": database, "root": "/"}, host, number)
    secure = scheme in ("https", "webdavs")
    endpoint = f"{'https' if secure else 'http'}://{parts.netloc}"
    service = "webdav" if scheme.startswith("webdav") else "http"
    options = {"endpoint": endpoint, "root": folder}
    return Address(url, service, options, str(parts.hostname), port or (443 if secure else 80))


def mask(text: str) -> str:
    """Return a text for people, without the credentials between ``://`` and ``@`` and without a query's values."""
    hidden = re.sub(r"(?<=://)[^/?#]*@", "***@", text.strip())
    return re.sub(r"(?<==)[^&]*", "***", hidden) if "?" in hidden else hidden


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
