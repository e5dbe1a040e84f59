"""Wheel: a model pack as a package that pip installs, and that opbuild finds by its entry point."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from opbuild.errors import OptionError
from opbuild.platform.records import NamedTuple
from opbuild.store.model_packs import GROUP, INSTALLED

_NAME = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z0-9_]*)-(?P<version>[0-9][A-Za-z0-9_.+!]*)"
    r"-(?P<python>[a-z0-9_.]+)-(?P<abi>[a-z0-9_.]+)-(?P<platform>[a-z0-9_.]+)\.whl"
)


class WheelName(NamedTuple):
    """The name of a wheel's file, which says its package and where that may be installed.

    Attributes:
        name: The package.
        version: Its version.
        python: Releases of Python, with dots between them; so do the following.
        abi: Interfaces of Python.
        platform: Systems and processors.
    """

    name: str
    version: str
    python: str
    abi: str
    platform: str

    @classmethod
    def parse(cls, file: str) -> WheelName:
        """Return the name of a file.

        Raises:
            OptionError: If wheels have no such names.
        """
        named = _NAME.fullmatch(file)
        if named is None:
            raise OptionError(f"{file!r} is no name of a wheel", "name it NAME-VERSION-py3-none-any.whl")
        return cls(**named.groupdict())

    def content(self, pack: bytes, models: str) -> bytes:
        """Return the bytes of a wheel that brings a model pack; equal packs give equal wheels.

        Args:
            pack: The bytes of the pack.
            models: What it is of, for people.
        """
        info = f"{self.name}-{self.version}.dist-info"
        tags = "".join(f"Tag: {each}\n" for each in self._tags())
        contents = {
            f"{self.name}/{INSTALLED}": pack,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\n"
            f"Summary: Kernels of {models} for opbuild\nRequires-Dist: opbuild\n".encode(),
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: opbuild\nRoot-Is-Purelib: true\n{tags}".encode(),
            f"{info}/entry_points.txt": f"[{GROUP}]\n{self.name} = {self.name}\n".encode(),
        }
        record = "".join(f"{path},{_digest(data)},{len(data)}\n" for path, data in contents.items())
        contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
        buffer = io.BytesIO()
        with ZipFile(buffer, "w") as archive:
            for path, data in contents.items():
                member = ZipInfo(path)
                member.external_attr = 0o644 << 16
                archive.writestr(member, data, None if data is pack else ZIP_DEFLATED)  # the pack is compressed
        return buffer.getvalue()

    def _tags(self) -> list[str]:
        pythons, abis, platforms = (each.split(".") for each in (self.python, self.abi, self.platform))
        return [f"{python}-{abi}-{platform}" for python in pythons for abi in abis for platform in platforms]


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
