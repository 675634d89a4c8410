"""The keys of a deployment over the years: changed as operators change them, beside a model of what each is still good for."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest
from cryptography import x509

from tests.support.crypto import TRUST_DOMAIN
from tests.support.joins import Bench
from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.belief import Belief, believe
from watchword.handlers.crypto.camanifest import key_identifier_of, read_ca_manifest
from watchword.handlers.crypto.carotation import (
    activate_ca,
    ca_rows,
    file_authority,
    issuing_authorities,
    prepare_ca,
    retire_ca,
)
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.crypto.keyfiles import create_keys, load_worker_keys
from watchword.handlers.crypto.keyrotation import (
    KeyRow,
    WorkerKind,
    activate,
    prepare,
    retire,
    worker_rows,
)
from watchword.handlers.crypto.responses import Question
from watchword.handlers.crypto.signer import LocalSigner
from watchword.handlers.errors import Conflict, SignatureBroken
from watchword.schemas.canonical import b64, unb64
from watchword.schemas.times import parse_rfc3339

Kind = Literal["signing", "decryption", "challenge", "ca"]
KINDS: tuple[Kind, ...] = ("signing", "decryption", "challenge", "ca")

_NEEDED_H: dict[Kind, int] = {"signing": 2, "decryption": 24 + 24, "challenge": 1, "ca": 48}
"""For how many hours a key is needed after its successor was activated."""
_MOST = 6
"""Keys of a kind that this machine lets there be; a deployment has sixteen at most."""


class _Issuers(LocalSigner):
    """Issues with the active CA and knows the certificates of all, as the signer's process does."""

    def __init__(self, authorities: list[Authority]) -> None:
        """Take the active one first."""
        super().__init__(authorities[0])
        self._all = tuple(der for one in authorities for der in one.chain)

    async def chain(self) -> tuple[bytes, ...]:
        """See `Signer.chain`."""
        return self._all


@dataclass
class Held:
    """What the model knows of a key."""

    state: str
    needed_h: int | None = None
    """Of a retired one: until when something may need it, on the model's clock."""
    token: bytes | None = field(repr=False, default=None)
    """Of one that has signed: something that it signed."""


class LifeKeys:
    """A folder of keys, who uses them, and an agent that fetches what is published after each change."""

    def __init__(self, folder: Path, life: timedelta) -> None:
        """Make the keys; `life` is a certificate's."""
        self.folder = folder
        self._life = life
        keys = create_keys(folder, TRUST_DOMAIN, datetime.now(UTC))
        self._pin = keys.pin
        self.crypto: JoinCrypto = keys.join_crypto(self._issuers())
        self.known: dict[tuple[Kind, str], Held] = {
            (kind, row.kid): Held(row.state) for kind in KINDS for row in self._rows(kind)
        }
        self.belief = self._fetched(None, datetime.now(UTC))

    def for_bench(self) -> tuple[JoinCrypto, bytes, bytes, Authority]:
        """Return what a bench is made with."""
        return self.crypto, b"", b"", self._authorities()[0]

    def use(self, bench: Bench) -> None:
        """Let the machines of a bench seal to what is published now, and verify with what is believed."""
        newest = max(self.belief.key_set.encryption, key=lambda key: parse_rfc3339(key.not_before))
        bench.seal_to, bench.key_id = unb64(newest.public), newest.kid
        bench.signing = unb64(self.belief.key_set.signing.public)

    # What an operator does

    def change(self, nth: int, hours: int, valid: dict[bytes, int]) -> str:
        """Do the next thing with a kind of keys, and return what it was.

        `valid` is how many certificates of each CA are good, by its key's identifier. What may not be done is tried
        as well, and has to be refused.
        """
        kind: Kind = KINDS[nth % len(KINDS)]
        draw, now = nth // len(KINDS), datetime.now(UTC) + timedelta(hours=hours)
        mine = {kid: held for (of, kid), held in self.known.items() if of == kind}
        waiting = [kid for kid, held in mine.items() if held.state == "prepared"]
        retired = [kid for kid, held in mine.items() if held.state == "retired"]
        if retired and (draw % 3 == 0 or len(mine) >= _MOST):
            return self._retire(kind, retired[0], hours, now, valid, is_compromised=draw % 2 == 0)
        if not waiting:
            return self._prepare(kind, now)
        with pytest.raises(Conflict):
            self._prepare(kind, now)
        if draw % 5 == 1:
            return self._retire(kind, waiting[0], hours, now, valid, is_compromised=False)
        return self._activate(kind, waiting[0], hours, now)

    def replace_compromised(self, nth: int, hours: int) -> str:
        """Go on with another key at once, and take the active one away: somebody else has it."""
        kind: Kind = KINDS[nth % len(KINDS)]
        now = datetime.now(UTC) + timedelta(hours=hours)
        mine = {kid: held.state for (of, kid), held in self.known.items() if of == kind}
        if "prepared" not in mine.values():
            self._prepare(kind, now)
        (kid,) = (one for (of, one), held in self.known.items() if (of, held.state) == (kind, "prepared"))  # fmt: skip
        (old,) = (one for one, state in mine.items() if state == "active")
        self._activate(kind, kid, hours, now)
        return self._retire(kind, old, hours, now, {}, is_compromised=True)

    def _prepare(self, kind: Kind, now: datetime) -> str:
        if kind == "ca":
            kid = prepare_ca(self.folder, TRUST_DOMAIN, now=now)
        else:
            kid = prepare(self.folder, kind, now=now)
        self.known[kind, kid] = Held("prepared")
        self._take_over(now)
        return f"{kind} prepared"

    def _activate(self, kind: Kind, kid: str, hours: int, now: datetime) -> str:
        token = self.crypto.answers.refused(Question(b"\0" * 32), now)
        if kind == "ca":
            done = activate_ca(
                self.folder, file_authority(self.folder), now=now, certificate_life=self._life
            )
        else:
            done = activate(self.folder, kind, now=now)
        assert done[0] == kid
        old = self.known[kind, done[1]]
        assert old.state == "active"
        self.known[kind, kid].state = "active"
        old.state, old.needed_h = "retired", hours + _NEEDED_H[kind]
        if kind == "signing":
            old.token = token
        self._take_over(now)
        return f"{kind} activated"

    def _retire(
        self,
        kind: Kind,
        kid: str,
        hours: int,
        now: datetime,
        valid: dict[bytes, int],
        *,
        is_compromised: bool,
    ) -> str:
        held = self.known[kind, kid]
        is_needed = held.needed_h is not None and hours < held.needed_h
        good = valid.get(self._identifier(kid), 0) if kind == "ca" else 0
        if held.state == "retired" and not is_needed:
            assert good == 0, "a CA that is needed no more has good certificates"

        def work() -> None:
            if kind == "ca":
                retire_ca(self.folder, kid, now=now, valid=good, is_compromised=is_compromised)
            else:
                retire(self.folder, kind, kid, now=now, is_compromised=is_compromised)

        if (is_needed or good) and not is_compromised:
            with pytest.raises(Conflict):
                work()
            return "needed key kept"
        work()
        del self.known[kind, kid]
        self._take_over(now)
        return "key compromised" if is_needed else "key retired"

    # Who uses them

    def _take_over(self, now: datetime) -> None:
        """Load what has changed as workers and the signer do, and fetch it as agents do."""
        keys = load_worker_keys(self.folder)
        self.crypto.take_over(keys.decryption, keys.signing, keys.states)
        self.crypto.signer = self._issuers()
        self.belief = self._fetched(self.belief, now)

    def _fetched(self, before: Belief | None, now: datetime) -> Belief:
        """Return what an agent believes; one that has only the first pin comes to the same."""
        keys = load_worker_keys(self.folder)
        key_set, bundle = keys.key_set(now), keys.trust_bundle(now)
        found = believe(self._pin, key_set, bundle, before=before)
        assert believe(self._pin, key_set, bundle).key_set == found.key_set
        return found

    def opens(self, kid: str, hours: int) -> bool:
        """Tell whether what was sealed to a key can be opened."""
        held = self.known.get(("decryption", kid))
        return held is not None and (held.needed_h is None or hours < held.needed_h)

    @property
    def active_challenge(self) -> str:
        """The key that seals states now."""
        (kid,) = (
            kid for (kind, kid), held in self.known.items() if (kind, held.state) == ("challenge", "active")
        )  # fmt: skip
        return kid

    def issued_by_active(self, leaf: bytes) -> None:
        """Fail unless a new certificate is the active CA's."""
        certificate = x509.load_der_x509_certificate(leaf)
        certificate.verify_directly_issued_by(
            x509.load_der_x509_certificate(self._authorities()[0].chain[0])
        )

    def knows_issuer(self, leaf: x509.Certificate) -> bool:
        """Tell whether the CA of a certificate is there yet."""
        found = [x509.load_der_x509_certificate(one.chain[0]) for one in self._authorities()]
        return any(one.subject == leaf.issuer for one in found)

    def valid_keys(self) -> list[bytes]:
        """Return the key identifiers of all CAs."""
        return [self._identifier(kid) for kind, kid in self.known if kind == "ca"]

    def check(self, hours: int) -> None:
        """Fail unless files, publication and the agent's belief are as the model has them."""
        rows = {(kind, row.kid): row.state for kind in KINDS for row in self._rows(kind)}
        assert rows == {name: held.state for name, held in self.known.items()}
        said = self.belief.key_set
        active = [kid for (kind, kid), held in self.known.items() if (kind, held.state) == ("signing", "active")]  # fmt: skip
        assert [said.signing.kid] == active
        assert self.belief.bundle is not None
        cas = {b64(one.chain[-1]) for one in self._authorities()}
        assert cas <= set(self.belief.bundle.authorities)
        now = datetime.now(UTC) + timedelta(hours=hours)
        for (kind, _), held in self.known.items():
            if kind == "signing" and held.token is not None and held.needed_h is not None:
                if hours < held.needed_h:
                    self.belief.key_for(held.token, now)
                else:
                    with pytest.raises(SignatureBroken):
                        self.belief.key_for(held.token, now)

    def _rows(self, kind: Kind) -> list[KeyRow]:
        if kind == "ca":
            return ca_rows(self.folder)
        wanted: WorkerKind = kind
        return [row for row in worker_rows(self.folder) if row.kind == wanted]

    def _authorities(self) -> list[Authority]:
        return issuing_authorities(self.folder, file_authority(self.folder))

    def _issuers(self) -> LocalSigner:
        return _Issuers(self._authorities())

    def _identifier(self, kid: str) -> bytes:
        entries = read_ca_manifest(self.folder).authorities
        return key_identifier_of(next(one for one in entries if one.kid == kid).loaded()[0])
