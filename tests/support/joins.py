"""A join service on a real database, and machines that ask it."""

import asyncio
import contextlib
import json
from base64 import b64decode
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
from cryptography.hazmat.primitives.asymmetric import ec
from uuid_utils.compat import uuid7

from tests.support.crypto import TRUST_DOMAIN, NodeKey, csr_of, jws_signer
from watchword.handlers.attestors.join_token.evidence import encode, new_token
from watchword.handlers.crypto import hpke
from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.ca_certificates import create_ca
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.crypto.jws import verify
from watchword.handlers.crypto.keysets import HeldKey
from watchword.handlers.crypto.responses import Answers
from watchword.handlers.crypto.sealing import UNSEALED, seal_evidence
from watchword.handlers.crypto.signer import LocalSigner, Signer
from watchword.handlers.crypto.state import StateSealer
from watchword.handlers.join.engine import Engine
from watchword.handlers.join.observer import Observer, Unobserved
from watchword.handlers.join.policy import JoinPolicy, Limits
from watchword.handlers.join.records import Answer, Incoming
from watchword.handlers.join.tracing import Tracing
from watchword.handlers.service import JoinClock, JoinEvents, JoinSeams, create_join_service
from watchword.handlers.store.author_roles import create_author_role
from watchword.handlers.store.connection import Database
from watchword.handlers.store.joins import PostgresJoinStore
from watchword.handlers.store.slots import SlotLimits
from watchword.schemas.canonical import b64
from watchword.schemas.ids import AttestorId, Role
from watchword.schemas.requests import Claims, JoinRequest
from watchword.schemas.responses import TYP_RESPONSE

ANYTHING = Limits(unrestricted_kinds=True)
KEY_ID = "e-1"


def keys(seed: int = 0) -> tuple[JoinCrypto, bytes, bytes, Authority]:
    """Return fresh crypto for a service: itself, what to seal to, what signs answers, and the CA."""
    del seed
    now = datetime.now(UTC)
    key, certificate = create_ca(TRUST_DOMAIN, now=now - timedelta(days=1))
    authority = Authority(key, [certificate], trust_domain=TRUST_DOMAIN)
    decryption = hpke.generate()
    held = HeldKey(KEY_ID, decryption, now - timedelta(days=1), now + timedelta(days=30))
    jws = jws_signer()
    crypto = JoinCrypto(
        trust_domain=TRUST_DOMAIN,
        decryption=[held],
        answers=Answers(jws),
        states=StateSealer({"c1": b"c" * 32}, "c1"),
        signer=LocalSigner(authority),
    )
    return crypto, decryption.public, jws.public, authority


@dataclass
class Machine:
    """A machine with a key, a CSR, and a way to seal evidence."""

    seal_to: bytes
    key: NodeKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    csr: bytes = b""
    key_id: str = KEY_ID
    """The name of the key that is sealed to."""

    def __post_init__(self) -> None:
        """Make the CSR."""
        self.csr = self.csr or csr_of(self.key)

    def request(
        self,
        payload: bytes,
        *,
        attestor: str = "",
        role: Role = "node",
        claims: Claims | None = None,
        state: bytes | None = None,
        reply_key: bytes | None = None,
        seal_role: Role | None = None,
        **changes: object,
    ) -> bytes:
        """Return the canonical bytes of a request; `changes` are made after sealing."""
        unsealed = JoinRequest(
            version=1,
            kind="join",
            request_id=str(uuid7()),
            attestor=attestor,
            role=seal_role or role,
            csr=b64(self.csr),
            encryption_key_id=self.key_id,
            sealed=UNSEALED,
            state=None if state is None else b64(state),
            reply_key=None if reply_key is None else b64(reply_key),
        )
        sealed = seal_evidence(unsealed, self.seal_to, payload, claims or b"")
        request = sealed.model_copy(update={"role": role})
        if changes:
            from watchword.schemas.canonical import canonical  # noqa: PLC0415

            return canonical({**request.model_dump(by_alias=True), **changes})
        return request.write()


@dataclass(frozen=True)
class TestToken:
    """A token in the database, with its secret."""

    __test__ = False

    id: str
    secret: bytes

    @property
    def payload(self) -> bytes:
        """The evidence that shows it."""
        return encode(self.id, self.secret)


class Bench:
    """A service, its database and its keys."""

    def __init__(
        self, dsn: str, engine: Engine, seal_to: bytes, signing: bytes, authority: Authority
    ) -> None:
        """Hold them."""
        self.dsn = dsn
        self.engine = engine
        self.seal_to = seal_to
        self.signing = signing
        self.authority = authority
        self.key_id = KEY_ID
        self._offset = 0
        self._sql: asyncpg.Connection[asyncpg.Record] | None = None
        self._turn = asyncio.Lock()

    def machine(self) -> Machine:
        """Return a machine with a fresh key."""
        return Machine(self.seal_to, key_id=self.key_id)

    def incoming(self, request: bytes) -> Incoming:
        """Return the record of a request at the next offset."""
        self._offset += 1
        return Incoming(request, "join.requests", 0, self._offset)

    async def ask(self, *requests: bytes) -> list[dict[str, Any]]:
        """Judge the requests as one batch and return the verified answers."""
        answers = await self.engine.judge([self.incoming(r) for r in requests])
        return [self.read(answer) for answer in answers]

    def read(self, answer: Answer) -> dict[str, Any]:
        """Return the payload of a signed answer."""
        payload: dict[str, Any] = json.loads(
            verify(answer.value, self.signing, typ=TYP_RESPONSE, kid=None)
        )
        return payload

    async def fetch(self, query: str, *arguments: object) -> list[Any]:
        """Return rows of plain SQL."""
        async with self._turn:
            return list(await (await self._connection()).fetch(query, *arguments))

    async def run(self, script: str) -> None:
        """Run several statements."""
        async with self._turn:
            await (await self._connection()).execute(script)

    async def other(self) -> "asyncpg.Connection[asyncpg.Record]":
        """Return another connection, which the caller closes."""
        return await asyncpg.connect(self.dsn, server_settings={"search_path": "watchword"})

    async def _connection(self) -> "asyncpg.Connection[asyncpg.Record]":
        if self._sql is None or self._sql.is_closed():
            self._sql = await asyncpg.connect(
                self.dsn, server_settings={"search_path": "watchword", "application_name": "bench"}
            )
        return self._sql

    async def author_role(self, attestor: str, *tables: str) -> None:
        """Make the role of an attestor's own SQL, with all that can be done to these tables."""
        database = Database(self.dsn, application_name="watchword-test")
        try:
            role = await create_author_role(database, attestor)
        finally:
            await database.close()
        for table in tables:
            await self.run(f"GRANT ALL ON {table} TO {role}")

    async def close(self) -> None:
        """Close the connection of plain SQL."""
        if self._sql is not None:
            await self._sql.close()
            self._sql = None

    async def one(self, query: str, *arguments: object) -> Any:  # noqa: ANN401 - what the column holds
        """Return the first column of the first row."""
        rows = await self.fetch(query, *arguments)
        return rows[0][0] if rows else None

    async def advisory_waits(self) -> int:
        """Return how many wait for an advisory lock, such as that of bans."""
        count: int = await self.one(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return count

    async def token(  # noqa: PLR0913 - the columns of a token
        self,
        *,
        uses: int = 1,
        tenant: str = "acme",
        pool: str = "web",
        site: str | None = None,
        role: str = "node",
        expect: dict[str, str] | None = None,
        allow_reclaim: bool = False,
        expires_at: datetime | None = None,
        allowed_kinds: list[str] | None = None,
    ) -> TestToken:
        """Add a token by plain SQL."""
        token_id, text, digest = new_token()
        from watchword.handlers.attestors.join_token.evidence import parse_token  # noqa: PLC0415

        await self.place(tenant, pool, site)
        await self.fetch(
            "INSERT INTO tokens (id, secret_sha256, tenant, pool, site, role, uses_total, uses_left, expect, allow_reclaim,"
            " expires_at, allowed_kinds, created_by) VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, $9, $10, $11, 'test')",
            token_id, digest, tenant, pool, site, role, uses, json.dumps(expect or {}), allow_reclaim, expires_at, allowed_kinds,
        )  # fmt: skip
        return TestToken(token_id, parse_token(text).secret)

    async def place(self, tenant: str, pool: str, site: str | None = None) -> None:
        """Add a tenant with a pool and perhaps a site."""
        await self.fetch("INSERT INTO tenants (id) VALUES ($1) ON CONFLICT DO NOTHING", tenant)
        await self.fetch(
            "INSERT INTO pools (tenant, id) VALUES ($1, $2) ON CONFLICT DO NOTHING", tenant, pool
        )
        if site is not None:
            await self.fetch(
                "INSERT INTO sites (tenant, id) VALUES ($1, $2) ON CONFLICT DO NOTHING",
                tenant,
                site,
            )


@contextlib.asynccontextmanager
async def join_bench(  # noqa: PLR0913 - what a test may change
    dsn: str,
    *,
    attestors: Iterable[Any] = (),
    limits: SlotLimits | None = None,
    clock: JoinClock | None = None,
    signer: Callable[[Signer], Signer] = lambda signer: signer,
    before_commit: Callable[[], None] = lambda: None,
    crypto: tuple[JoinCrypto, bytes, bytes, Authority] | None = None,
    worker: str = "w0",
    observer: Observer | None = None,
    waiting_per_tenant: int = 1000,
    evicts_on_theft: bool = True,
    tracing: Tracing | None = None,
) -> AsyncGenerator[Bench]:
    """Give a service on this database; an attestor may return what its `limits` say, else anything."""
    made, seal_to, signing, authority = crypto or keys()
    made.signer = signer(made.signer)
    extra = list(attestors)
    store = PostgresJoinStore(
        Database(dsn, application_name="watchword-test"), limits or SlotLimits()
    )
    engine = create_join_service(
        store,
        clock or JoinClock(),
        JoinEvents(worker=worker),
        made,
        extra,
        JoinSeams(
            policy=JoinPolicy(
                {
                    AttestorId(a.id): getattr(a, "limits", ANYTHING)
                    for a in extra
                    if hasattr(a, "id")
                }
            ),
            before_commit=before_commit,
            observer=observer or Unobserved(),
            waiting_per_tenant=waiting_per_tenant,
            evicts_on_theft=evicts_on_theft,
            tracing=tracing,
        ),
    )
    bench = Bench(dsn, engine, seal_to, signing, authority)
    try:
        yield bench
    finally:
        await bench.close()
        await store.close()


def certificate_of(answer: dict[str, Any]) -> bytes:
    """Return the DER of the leaf in a `joined` answer."""
    return b64decode(answer["joined"]["chain"][0])


def code(answer: dict[str, Any]) -> str:
    """Return what a machine was told in a word."""
    return str((answer.get("failed") or {}).get("code") or answer["outcome"])
