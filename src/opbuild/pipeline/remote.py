"""The remote store of one build; the requests of all builds of a process go through one service."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from opbuild.config import netrc_file, redis_credentials
from opbuild.events import Warned, log_warnings
from opbuild.kernel.entry import Entry
from opbuild.kernel.interfaces import Claim, NetworkStore
from opbuild.kernel.networks import Bytes, NetworkKey, StoredNetwork
from opbuild.kernel.reason import Reason
from opbuild.pipeline.setup import Setup
from opbuild.platform.files.trust import Trust
from opbuild.platform.locks import lazy_property, made_once
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass
from opbuild.store.claims import Flights
from opbuild.store.remote.address import Address, parse_address
from opbuild.store.remote.leases import Leases
from opbuild.store.remote.networks import RemoteNetworks, TieredNetworks, stored_weights
from opbuild.store.remote.objects import CLAIMS, TUNING_DATABASE, Objects
from opbuild.store.remote.operators import RemoteStore, mend_group, write_group
from opbuild.store.remote.service import Service, described
from opbuild.store.remote.uploads import UPLOAD_SECONDS, Uploads
from opbuild.store.weights import StoredWeights
from opbuild.text.plural import counted, verb

if TYPE_CHECKING:
    from opbuild.store.tuning_database import SharedTuningDatabase

TRANSFER_SECONDS = 30.0
"""How long commands wait for an answer."""


def open_remote(name: str, url: str, setup: Setup) -> Remote:
    """Return the remote store at a URL; nothing is asked of it yet.

    Raises:
        OptionError: If the URL is none of a remote store.
    """
    address = parse_address(name, url)
    writes, service = setup.config.remote_mode == "write", service_at(url.strip())
    if writes and not address.is_written and service.is_first_time("read-only"):
        text = f"the remote store {address.url} is only read: nothing can be written there"
        setup.observer(Warned(text, not_sent=1))
    return Remote(
        service,
        setup.trust,
        lambda text: setup.observer(Warned(text)),
        writes=writes and address.is_written,
        rank=setup.config.rank_id,
        checks=setup.config.remote_checks,
    )


def remote_for_transfer(url: str, setup: Setup, seconds: float = TRANSFER_SECONDS) -> Remote:
    """Return the remote store at a URL, as commands use it that do nothing else and wait longer.

    Raises:
        OptionError: If the URL is none of a remote store.
    """
    address = parse_address("URL", url)
    service = Service(address, credentials(address), seconds)
    return Remote(service, setup.trust, lambda text: setup.observer(Warned(text)), writes=True, reads_all=True)


@made_once
def service_at(url: str) -> Service:
    """Return this process's service at a URL, whose failures count for all builds.

    Raises:
        OptionError: If the URL is none of a remote store.
    """
    address = parse_address("the remote store", url)
    return Service(address, credentials(address))


def _uploads(service: Service) -> Uploads:
    return _uploads_of(service, os.getpid())


@made_once
def _uploads_of(service: Service, process: int) -> Uploads:
    """Return the uploads of a process: the threads of its parent's stayed there."""
    return Uploads(_log)


@made_once
def _sender(service: Service) -> Service:
    """Return the service through which uploads go: more patient, and given up by itself."""
    sender = Service(service.address, credentials(service.address), UPLOAD_SECONDS)
    sender.damaged, sender.mended = service.damaged, service.mended
    return sender


def _log(text: str) -> None:
    log_warnings(Warned(text))


def credentials(address: Address) -> dict[str, str]:
    """Return the settings that OpenDAL needs besides an address; for S3 it finds them itself, as AWS's programs do."""
    if address.service == "redis":
        return redis_credentials()
    if address.service in ("http", "webdav"):
        import netrc

        with contextlib.suppress(OSError, netrc.NetrcParseError):
            known = netrc.netrc(netrc_file()).authenticators(urlsplit(address.options["endpoint"]).hostname or "")
            if known is not None:
                return {"username": known[0], "password": known[2]}
    return {}


@dataclass(frozen=True)
class Remote:
    """A remote store as one build uses it.

    Attributes:
        service: Where it is.
        trust: What its objects are signed with.
        tell: Told once in a process why it is not used, where it fails.
        writes: Whether what is built is written to it.
        rank: This process's rank, for claims.
        checks: Whether uploads read what is there first, and what one's own store has is looked for there, too.
        reads_all: Whether damage does not end reading, and what is written is read first: so do commands.
    """

    service: Service
    trust: Trust
    tell: Callable[[str], None]
    writes: bool = False
    rank: int = 0
    checks: bool = False
    reads_all: bool = False

    @property
    def objects(self) -> Objects:
        """The objects of the remote store."""
        return Objects(self.service, self.trust, self.tell, checks=self.reads_all)

    @lazy_property
    def operators(self) -> RemoteStore:
        """Its operators; a holder of a claim asks again at once, and learns the last holder's entries."""
        if self.writes:
            return RemoteStore(self.objects, 0.0, self.claims, self._offer_group)
        return RemoteStore(self.objects)

    @lazy_property
    def _sent(self) -> Objects:
        """Its objects as uploads write them."""
        return Objects(_sender(self.service), self.trust, _log, checks=self.checks)

    @lazy_property
    def networks(self) -> RemoteNetworks:
        """Its networks."""
        return RemoteNetworks(self.objects)

    @lazy_property
    def tuning_database(self) -> SharedTuningDatabase:
        """The tuning database of the remote store; few have one."""
        from opbuild.store.tuning_database import SharedTuningDatabase

        return SharedTuningDatabase(self.objects, TUNING_DATABASE, self.trust)

    def take_tuning_records(self, path: Path) -> None:
        """Add the tuning records of others to the database in a file, once in a process."""
        if self.service.is_first_time(f"tuning database {path}") and isinstance(
            found := self.tuning_database.take(path), Reason
        ):
            self.tell(f"the remote tuning database {self.service.address.url} is not used: {described(found)}")

    @lazy_property
    def claims(self) -> Leases:
        """The claims of a fleet."""
        return Leases(self.service, CLAIMS, self.rank)

    def below(
        self,
        networks: NetworkStore,
        weights: StoredWeights,
        filled: Callable[[], None],
        turns: Flights | None,
        found: Callable[[StoredNetwork], None],
    ) -> TieredNetworks:
        """Return one's own networks with this store below them.

        Args:
            networks: One's own.
            weights: One's own.
            filled: Called when something came from below.
            turns: Which process of this host fetches what several lack; None: each does.
            found: Told of one's own networks that are to be there, too.
        """

        def check(key: NetworkKey, network: StoredNetwork) -> None:
            def send(sent: Objects) -> str | None:
                own = stored_weights(weights, network)  # without sound ones it is put together again, and comes then
                return None if own is None else RemoteNetworks(sent).publish(key, network, own)

            if self.writes and self.service.is_first_time(f"network {key.stem}"):
                found(network)
                self._write_in_background(send)

        known = check if self.checks else None
        return TieredNetworks(networks, weights, self.networks, self.offer_network, filled, turns, known)

    def after_uploads(self, then: Callable[[], None]) -> None:
        """Call a function once everything that was offered so far is written, or given up."""
        _uploads(self.service).add(then)

    def wait_for_uploads(self) -> Warned | None:
        """Wait until every upload is written, or given up; return the message on those that are not."""
        failed = _uploads(self.service).wait()
        where, mended = f"the remote store {self.service.address.url}", len(self.service.mended)
        if failed:
            what = f"{counted(len(failed), 'object')} {verb(len(failed), 'was', 'were')}"
            return Warned(f"{what} not written to {where}: {failed[0]}; 'opbuild push' sends what is missing there",
                          not_sent=len(failed))  # fmt: skip
        if left := len(self.service.damaged) - mended:
            what = f"{counted(left, 'object')} {verb(left, 'is', 'are')} damaged in {where}, and not written by this"
            return Warned(f"{what}; 'opbuild cache check --repair' removes what is damaged", not_sent=left)
        if mended and self.checks:
            return Warned(f"{counted(mended, 'object')} {verb(mended, 'was', 'were')} damaged in {where}, and "
                          f"{verb(mended, 'is', 'are')} written again")  # fmt: skip
        return None

    def check_operator(self, entry: Entry) -> None:
        """Write one's own operator in the background, unless it is there and sound."""
        if self.writes and self.service.is_first_time(f"operator {entry.name}"):
            self._write_in_background(lambda sent: RemoteStore(sent).publish(entry))

    def check_group(self, entries: Sequence[Entry]) -> None:
        """Write the group of all operators of a network in the background, if it is there and damaged."""
        self._write_in_background(lambda sent: mend_group(sent, entries))

    def offer_operator(self, entry: Entry) -> None:
        """Write an operator in the background, unless nothing is written."""
        if self.writes:
            self._write_in_background(lambda sent: RemoteStore(sent).publish(entry))
            self.operators.built(entry)

    def _offer_group(self, name: str, entries: Sequence[Entry], claim: Claim | None) -> None:
        """Write operators that a network needs as one object, in the background."""
        self._write_in_background(lambda sent: write_group(sent, name, entries, claim))

    def offer_network(self, key: NetworkKey, network: StoredNetwork, weights: Mapping[str, Bytes]) -> None:
        """Write a network in the background, unless nothing is written."""
        self._write_in_background(lambda sent: RemoteNetworks(sent).publish(key, network, weights))

    def _write_in_background(self, write: Callable[[Objects], Reason | str | None]) -> None:
        """Write something in the background, after earlier writes, unless nothing is written."""

        def written() -> str | None:
            problem = write(self._sent)
            return described(problem) if isinstance(problem, Reason) else problem

        if self.writes:
            _uploads(self.service).add(written)
