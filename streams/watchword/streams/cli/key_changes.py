"""What `watchword keys prepare|activate|retire` do, for every kind of key."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

from watchword.handlers.crypto.camanifest import key_identifier_of, read_ca_manifest
from watchword.handlers.crypto.carotation import activate_ca, ca_rows, prepare_ca, retire_ca
from watchword.handlers.crypto.keyfiles import load_worker_keys
from watchword.handlers.crypto.keymanifest import KeyManifest
from watchword.handlers.crypto.keyrotation import (
    KeyRow,
    activate,
    locked,
    prepare,
    retire,
    worker_rows,
)
from watchword.handlers.crypto.keysets import read_trust_bundle
from watchword.handlers.errors import BadArgument, Conflict, SignatureBroken
from watchword.handlers.operators.keys import (
    Changed,
    Kind,
    Step,
    change_keys,
    check_held,
    count_valid,
)
from watchword.schemas.errors import SchemaError
from watchword.schemas.topics import TRUST_BUNDLE_KEY
from watchword.streams.cli.acting import Acting
from watchword.streams.published_trust import read_published
from watchword.streams.settings import Settings
from watchword.streams.wiring.authority_files import AuthorityFiles
from watchword.streams.wiring.connections import kafka_connection, open_database

T = TypeVar("T")
Change = Callable[[], tuple[T, Changed]]


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """The keys of a deployment, and who changes them."""

    settings: Settings
    options: Acting

    def rows(self) -> list[KeyRow]:
        """Return all keys; raises `ConfigRefused`."""
        return [
            *worker_rows(self.settings.keys.directory),
            *ca_rows(AuthorityFiles(self.settings).directory),
        ]

    async def prepare(self, kind: Kind, in_hsm: str | None) -> str:
        """Make the key that will follow the active one; return its name."""
        if in_hsm is not None and kind != "ca":
            message = "--in-hsm is for the CA: a worker holds its keys itself"
            raise BadArgument(message)

        def change() -> tuple[str, Changed]:
            now = datetime.now(UTC)
            if kind != "ca":
                with locked(self.settings.keys.directory):
                    kid = prepare(self.settings.keys.directory, kind, now=now)
                return kid, Changed(kid=kid)
            cas = AuthorityFiles(self.settings)
            domain = self._trust_domain(cas)
            with locked(cas.directory):
                made = None
                if in_hsm is not None:
                    made = partial(cas.made_in_token, in_hsm, domain, now)
                kid = prepare_ca(cas.directory, domain, now=now, made=made)
            return kid, Changed(kid=kid, in_hsm=in_hsm is not None)

        return await self._recorded(kind, "prepared", change)

    async def activate(self, kind: Kind, overlap: timedelta | None) -> tuple[str, str]:
        """Use the prepared key from now on; return its name, and that of the one which is retired."""
        await self._check_known(kind)

        def change() -> tuple[tuple[str, str], Changed]:
            now = datetime.now(UTC)
            if kind == "ca":
                cas = AuthorityFiles(self.settings)
                life = timedelta(seconds=self.settings.deployment.certificate_lifetime_s)
                with locked(cas.directory):
                    found = activate_ca(
                        cas.directory, cas.opened, now=now, certificate_life=overlap or life
                    )
            else:
                directory = self.settings.keys.directory
                with locked(directory):
                    found = activate(directory, kind, now=now, overlap=overlap)
            return found, Changed(kid=found[0], retired=found[1])

        return await self._recorded(kind, "activated", change)

    async def retire(self, kind: Kind, kid: str, *, is_compromised: bool) -> None:
        """Take a key away for good."""
        valid = await self._valid(kid) if kind == "ca" else None

        def change() -> tuple[None, Changed]:
            now = datetime.now(UTC)
            if kind == "ca":
                cas = AuthorityFiles(self.settings)
                with locked(cas.directory):
                    retire_ca(
                        cas.directory, kid, now=now, valid=valid, is_compromised=is_compromised
                    )
            else:
                with locked(self.settings.keys.directory):
                    retire(
                        self.settings.keys.directory,
                        kind,
                        kid,
                        now=now,
                        is_compromised=is_compromised,
                    )
            return None, Changed(kid=kid, compromised=is_compromised)

        await self._recorded(kind, "retired", change)

    async def _recorded(self, kind: Kind, step: Step, change: Change[T]) -> T:
        if self.settings.database.url is None:
            return change()[0]
        async with open_database(self.settings, "cli") as database:
            actor = self.options.actor(self.settings)
            return await change_keys(database, actor, kind, step, change)

    async def _check_known(self, kind: Kind) -> None:
        """Return only if workers, and agents where it is theirs to know, have the key that is to be activated."""
        prepared = [r.kid for r in self.rows() if (r.kind, r.state) == (kind, "prepared")]
        if not prepared:
            return  # whoever activates says so
        if kind != "ca" and self.settings.database.url is not None:
            async with open_database(self.settings, "cli") as database:
                await check_held(database, prepared[0])
        if kind in ("ca", "signing") and self.settings.kafka.bootstrap_servers is not None:
            await self._check_published(kind, prepared[0])

    async def _check_published(self, kind: Kind, kid: str) -> None:
        token = (await read_published(kafka_connection(self.settings))).get(TRUST_BUNDLE_KEY)
        keys = load_worker_keys(self.settings.keys.directory)
        try:
            bundle = None if token is None else read_trust_bundle(token, keys.signing.public)
        except (SignatureBroken, SchemaError):
            bundle = None
        if bundle is not None:
            if kind == "signing" and keys.handovers[-1] in bundle.handovers:
                return
            entries = read_ca_manifest(AuthorityFiles(self.settings).directory).authorities
            anchors = {one.kid: one.certificates[-1] for one in entries}
            if kind == "ca" and anchors[kid] in bundle.authorities:
                return
        message = f"agents have not been told of {kind} key {kid}: run `watchword trust publish`"
        raise Conflict(message)

    async def _valid(self, kid: str) -> int | None:
        if self.settings.database.url is None:
            return None
        entries = read_ca_manifest(AuthorityFiles(self.settings).directory).authorities
        found = next((one for one in entries if one.kid == kid), None)
        if found is None:
            return None
        async with open_database(self.settings, "cli") as database:
            return await count_valid(database, key_identifier_of(found.loaded()[0]))

    def _trust_domain(self, cas: AuthorityFiles) -> str:
        if self.settings.deployment.trust_domain is not None:
            return self.settings.deployment.trust_domain
        if cas.directory == self.settings.keys.directory:
            return KeyManifest.read(cas.directory).trust_domain
        return cas.opened(read_ca_manifest(cas.directory).active).trust_domain
