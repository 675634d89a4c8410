"""The join service as a worker has it, on a database of its own, with a clock that can be set forward."""

import contextlib
import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from watchword.handlers.attestor import Attestor, AttestorId, Role, TokenId
from watchword.handlers.attestors.join_token.evidence import encode, parse_token
from watchword.handlers.crypto import hpke
from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.ca_certificates import create_ca
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.crypto.jws import JwsSigner, verify
from watchword.handlers.crypto.keysets import HeldKey
from watchword.handlers.crypto.responses import Answers
from watchword.handlers.crypto.signer import LocalSigner
from watchword.handlers.crypto.state import StateSealer
from watchword.handlers.definition import brings_sql
from watchword.handlers.errors import Conflict
from watchword.handlers.join.engine import Engine
from watchword.handlers.join.policy import JoinPolicy, Limits
from watchword.handlers.join.records import Answer, Incoming
from watchword.handlers.operators import places, requests, tokens
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.requests import Seen
from watchword.handlers.operators.tokens import TokenOrder
from watchword.handlers.service import JoinClock, JoinEvents, JoinSeams, create_join_service
from watchword.handlers.store.approvals import RequestFilter
from watchword.handlers.store.author_roles import create_author_role
from watchword.handlers.store.connection import Database
from watchword.handlers.store.joins import PostgresJoinStore
from watchword.handlers.store.plugin_migrations import migrate_plugin
from watchword.handlers.store.slots import SlotLimits
from watchword.handlers.testkit.machine import Machine
from watchword.schemas.responses import TYP_RESPONSE, JoinResponse

ANYTHING = Limits(unrestricted_kinds=True)
"""What an attestor may return unless a test says otherwise."""

TRUST_DOMAIN = "testkit.example"

_KEY_ID = "e-testkit"
_OPERATOR = Actor("testkit", "a test")
_CA_LIFE = timedelta(days=400)

_OUR_BOOKS = frozenset(
    [
        "attempts",
        "inbox",
        "journal_parked",
        "judging",
        "relay_cursors",
        "refusal_slots",
        "refusal_windows",
        "keeper_cursors",
        "leases",
        "migrations",
    ]
)
"""Tables of the service's own work, which every request may touch."""


@dataclass(frozen=True)
class TestToken:
    """A join token, and the evidence that shows it to `join-token`."""

    __test__ = False

    id: TokenId
    text: str = field(repr=False)

    @property
    def payload(self) -> bytes:
        """The evidence that shows it."""
        secret = parse_token(self.text)
        return encode(secret.id, secret.secret)


@dataclass(frozen=True)
class Event:
    """A domain event as it goes out: `node.joined` and the like."""

    type: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Refusal:
    """A refusal as the security team sees it. The tenant is `root` unless the evidence authenticated one."""

    attestor: str
    reason: str
    tenant: str
    csr_sha256: bytes | None


class ServiceUnderTest:
    """A join service with its database, keys and clock."""

    def __init__(
        self, dsn: str, attestors: Sequence[Attestor], limits: Mapping[str, Limits]
    ) -> None:
        """Take a migrated database. See `service_on`."""
        self.dsn = dsn
        self.database = Database(dsn, application_name="watchword-testkit")
        self.attestors = list(attestors)
        self._limits = {AttestorId(one.id): ANYTHING for one in attestors}
        self._limits |= {AttestorId(name): value for name, value in limits.items()}
        # The clock may be set forward a year: keys that end before would make other refusals.
        now = datetime.now(UTC)
        decryption = hpke.generate()
        self._seal_to = decryption.public
        self._answers = JwsSigner("s-testkit", Ed25519PrivateKey.generate())
        key, certificate = create_ca(TRUST_DOMAIN, now=now - timedelta(days=1))
        self._crypto = JoinCrypto(
            trust_domain=TRUST_DOMAIN,
            decryption=[HeldKey(_KEY_ID, decryption, now - timedelta(days=1), now + _CA_LIFE)],
            answers=Answers(self._answers),
            states=StateSealer({"c1": sha256(decryption.public).digest()}, "c1"),
            signer=LocalSigner(Authority(key, [certificate], trust_domain=TRUST_DOMAIN)),
        )
        self._offset = 0
        self._shift = timedelta(0)
        self._store, self._engine = self._opened()

    def _opened(self) -> tuple[PostgresJoinStore, Engine]:
        store = PostgresJoinStore(
            Database(self.dsn, application_name="watchword-testkit"),
            SlotLimits(),
        )
        engine = create_join_service(
            store,
            JoinClock(),
            JoinEvents(worker="testkit"),
            self._crypto,
            self.attestors,
            JoinSeams(policy=JoinPolicy(self._limits)),
        )
        return store, engine

    async def close(self) -> None:
        """Close every connection."""
        await self._store.close()
        await self.database.close()

    async def replace(self, attestor: Attestor) -> None:
        """Put an attestor in the place of the one that has its id."""
        self.attestors = [attestor if one.id == attestor.id else one for one in self.attestors]
        await self._store.close()
        self._store, self._engine = self._opened()

    # Machines

    def machine(self) -> Machine:
        """Return a machine with a fresh key."""
        return Machine(self._seal_to, _KEY_ID)

    async def ask(self, *asked: bytes) -> list[JoinResponse]:
        """Have requests judged as one batch, and return their answers, whose signatures were checked."""
        incoming: list[Incoming] = []
        for request in asked:
            self._offset += 1
            incoming.append(Incoming(request, "join.requests", 0, self._offset))
        return [self._read(answer) for answer in await self._engine.judge(incoming)]

    def _read(self, answer: Answer) -> JoinResponse:
        payload = verify(answer.value, self._answers.public, typ=TYP_RESPONSE, kid=None)
        return JoinResponse.model_validate(json.loads(payload), by_alias=True, by_name=False)

    # The clock

    async def now(self) -> datetime:
        """Return the time that judges: the database's, with what was set forward."""
        [(now,)] = await self.fetch("SELECT watchword.now()")
        found: datetime = now
        return found

    async def advance(self, by: timedelta) -> None:
        """Set the clock of the service forward, for good; it runs on from there. At most a year in all."""
        self._shift += by
        name = (await self.fetch("SELECT quote_ident(current_database())"))[0][0]
        seconds = f"{self._shift.total_seconds():.3f} seconds"
        await self.execute(f"ALTER DATABASE {name} SET watchword.clock_shift = '{seconds}'")
        # A setting of a database is for sessions that begin after it.
        await self.close()
        self.database = Database(self.dsn, application_name="watchword-testkit")
        self._store, self._engine = self._opened()

    # What operators do

    async def place(self, tenant: str, pool: str, site: str | None = None) -> None:
        """Add a tenant with a pool, and perhaps a site; what there is already stays."""
        with contextlib.suppress(Conflict):
            await places.create_tenant(self.database, _OPERATOR, tenant)
        with contextlib.suppress(Conflict):
            await places.create_place(self.database, _OPERATOR, "pool", tenant, pool)
        if site is not None:
            with contextlib.suppress(Conflict):
                await places.create_place(self.database, _OPERATOR, "site", tenant, site)

    async def token(  # noqa: PLR0913 - what a token says
        self,
        *,
        tenant: str = "acme",
        pool: str = "web",
        site: str | None = None,
        role: Role = "node",
        uses: int = 1,
        expires_in: timedelta | None = timedelta(days=1),
        expect: dict[str, str] | None = None,
        allow_reclaim: bool = False,
        allowed_kinds: tuple[str, ...] | None = (),
    ) -> TestToken:
        """Make a join token, and the place that it is for."""
        await self.place(tenant, pool, site)
        order = TokenOrder(
            tenant=tenant,
            pool=pool,
            site=site,
            role=role,
            uses=uses,
            expires_in=expires_in,
            expect=expect or {},
            allow_reclaim=allow_reclaim,
            allowed_kinds=allowed_kinds,
        )
        created = await tokens.create_token(self.database, _OPERATOR, order)
        return TestToken(TokenId(created.row["id"]), created.text)

    async def approve_all(self) -> int:
        """Approve every join that waits, as an operator who has looked at each; return how many."""
        return await self._decide(approve=True)

    async def reject_all(self) -> int:
        """Reject every join that waits; return how many."""
        return await self._decide(approve=False)

    async def _decide(self, *, approve: bool) -> int:
        waiting = await requests.list_requests(self.database, RequestFilter(state="pending"))
        seen = [Seen(row["id"], row["version"]) for row in waiting]
        if seen:
            decide = requests.approve if approve else requests.reject
            await decide(self.database, _OPERATOR, seen)
        return len(seen)

    # What is seen afterwards

    async def fetch(self, query: str, *arguments: object) -> list[Any]:
        """Return the rows of plain SQL, in a transaction of its own."""
        async with self.database.transaction() as connection:
            return list(await connection.fetch(query, *arguments))

    async def execute(self, script: str) -> None:
        """Run statements of plain SQL, in a transaction of their own."""
        async with self.database.transaction() as connection:
            await connection.execute(script)

    async def last_seq(self) -> int:
        """Return where the journal ends now; `events` begins behind it."""
        return int((await self.fetch("SELECT coalesce(max(seq), 0) FROM journal"))[0][0])

    async def events(self, *, after: int = 0) -> list[Event]:
        """Return domain events in order, those behind a place in the journal alone."""
        rows = await self.fetch(
            "SELECT type, value FROM journal WHERE class = 'domain' AND seq > $1 ORDER BY seq",
            after,
        )
        return [Event(row["type"], json.loads(row["value"])) for row in rows]

    async def refusals(self, *, csr_sha256: bytes | None = None) -> list[Refusal]:
        """Return refusals in order, of one CSR or of all."""
        rows = await self.fetch(
            "SELECT attestor, reason, tenant, csr_sha256 FROM refusals WHERE type = 'refused'"
            " AND ($1::bytea IS NULL OR csr_sha256 = $1) ORDER BY id",
            csr_sha256,
        )
        return [Refusal(*row) for row in rows]

    async def fingerprint(self) -> dict[str, str]:
        """Return a digest of each table that nothing but an admission or a deferral may change.

        Attestors' own tables are among them; refusals, and the service's own books, are not.
        """
        names = await self.fetch(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = 'watchword' AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
            " ORDER BY 1"
        )
        found: dict[str, str] = {}
        for (name,) in names:
            if name in _OUR_BOOKS or name == "refusals":
                continue
            where = " WHERE class = 'domain'" if name == "journal" else ""
            rows = await self.fetch(
                "SELECT coalesce(md5(string_agg(line, ',' ORDER BY line)), '') FROM"  # noqa: S608 - a name from the catalogue
                f' (SELECT t::text AS line FROM watchword."{name}" t{where}) AS lines'
            )
            found[name] = rows[0][0]
        return found


@contextlib.asynccontextmanager
async def service_on(
    dsn: str, attestors: Iterable[Attestor] = (), limits: Mapping[str, Limits] | None = None
) -> AsyncGenerator[ServiceUnderTest]:
    """Give a join service with these attestors on a migrated database that nobody else uses.

    The migrations of an attestor's own `package` are applied first, and who brings SQL has its role.

    Without `limits` of its id an attestor may return anything.

    Raises:
        ConfigRefused: an attestor is not usable.
    """
    wanted = list(attestors)
    for one in wanted:
        if package := getattr(one, "package", None):
            await migrate_plugin(dsn, one.id, package)
        if brings_sql(one):
            database = Database(dsn, application_name="watchword-testkit")
            try:
                await create_author_role(database, one.id)
            finally:
                await database.close()
    service = ServiceUnderTest(dsn, wanted, limits or {})
    try:
        yield service
    finally:
        await service.close()
