"""The operator of a simulation: makes the places and tokens, approves its own machines, and retires some."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from watchword.handlers.errors import Conflict, Unavailable, WatchwordError
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.grants import Grant
from watchword.handlers.operators.places import create_place, create_tenant
from watchword.handlers.operators.requests import (
    MAX_PAGE,
    MAX_TOGETHER,
    Seen,
    approve,
    list_requests,
)
from watchword.handlers.operators.site_keys import SiteKeyOrder, add_site_key
from watchword.handlers.operators.standing import SeenNode, change_nodes
from watchword.handlers.operators.tokens import TokenOrder, create_token
from watchword.handlers.operators.tpms import enrol_tpms, set_policy
from watchword.handlers.store.approvals import RequestFilter
from watchword.handlers.store.connection import Database
from watchword.streams.simulator import software_tpm
from watchword.streams.simulator.attestor import POOL, TENANT
from watchword.streams.simulator.provers import DISCOVERY_KINDS, SITE, TOKEN_KINDS, TPM_KINDS

_log = structlog.get_logger(__name__)

_LOOK_S = 0.5


class SimulatedOperator:
    """Does by the functions of operators what a person does by commands; all of it is audited."""

    def __init__(self, database: Database, cluster: str) -> None:
        """Act in this database."""
        self._database = database
        self._actor = Actor("watchword simulate", "a simulation", cluster)
        self.known: set[bytes] = set()
        """SHA-256 of the CSRs of machines that are the simulation's: nobody else is approved."""

    async def make_places(self) -> None:
        """Make the tenant, its pool and its site, if they are not there from a run before."""
        with suppress(Conflict):
            await create_tenant(self._database, self._actor, TENANT, title="A simulation")
        with suppress(Conflict):
            await create_place(self._database, self._actor, "pool", TENANT, POOL)
        with suppress(Conflict):
            await create_place(self._database, self._actor, "site", TENANT, SITE)

    async def make_token(self, uses: int) -> str:
        """Return the text of a token for so many machines."""
        order = TokenOrder(
            tenant=TENANT,
            pool=POOL,
            uses=uses,
            expires_in=timedelta(days=1),
            allowed_kinds=TOKEN_KINDS,
        )
        return (await create_token(self._database, self._actor, order)).text

    async def trust_site(self, key: Ed25519PrivateKey) -> None:
        """Trust a site's agent that has this key."""
        order = SiteKeyOrder(
            tenant=TENANT,
            site=SITE,
            pool=POOL,
            public_key=key.public_key().public_bytes_raw(),
            allowed_kinds=DISCOVERY_KINDS,
            expires_in=timedelta(days=1),
        )
        await add_site_key(self._database, self._actor, order)

    async def set_tpm_policy(self) -> None:
        """Say what TPMs of the pool have to show."""
        await set_policy(self._database, self._actor, TENANT, POOL, software_tpm.POLICY)

    async def enrol_tpm(self, ek_sha256: bytes) -> None:
        """Let the TPM with this endorsement key join."""
        grant = Grant(tenant=TENANT, pool=POOL, allowed_kinds=TPM_KINDS)
        await enrol_tpms(self._database, self._actor, {ek_sha256: "a simulated TPM"}, grant)

    async def approve_for_ever(self) -> None:
        """Approve what waits, again and again."""
        while True:
            try:
                await self._approve()
            except Unavailable as error:
                _log.warning("cannot approve", error=str(error))
            await asyncio.sleep(_LOOK_S)

    async def _approve(self) -> None:
        wanted = RequestFilter(state="pending", tenant=TENANT)
        rows = await list_requests(self._database, wanted, limit=MAX_PAGE)
        seen = [
            Seen(UUID(str(row["id"])), int(row["version"]))
            for row in rows
            if bytes(row["csr_sha256"]) in self.known
        ]
        for at in range(0, len(seen), MAX_TOGETHER):
            try:
                await approve(self._database, self._actor, seen[at : at + MAX_TOGETHER])
            except Conflict:
                continue  # One has changed meanwhile; the next look sees it as it is.

    async def retire(self, node: str) -> str | None:
        """Retire a node; return why that was not possible."""
        try:
            await change_nodes(self._database, self._actor, "retire", [SeenNode(UUID(node))])
        except WatchwordError as error:
            return str(error)
        return None
