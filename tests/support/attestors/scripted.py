"""Attestors that do what the evidence says: every way to use the contract, and to break it.

The payload is a `Script` as JSON. One attestor of this kind admits whatever it is asked to, so it is
for tests alone.
"""

import asyncio
import contextlib
import json
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import Any, Literal

from tests.support.attestors.junk import junk
from watchword.handlers.attestor import (
    Admission,
    Challenge,
    Deferral,
    Evidence,
    JoinContext,
    Subject,
    refuser,
)
from watchword.handlers.attestors.join_token.verifier import JoinTokenAttestor
from watchword.handlers.join.policy import Limits
from watchword.schemas.ids import NodeId, Role, TenantId, TokenId
from watchword.schemas.reasons import JOIN_TOKEN, Reason

REASONS = (
    Reason("no", "WX0001", "low", "The script says no."),
    Reason("exhausted", "WX0002", "low", "A token that the script spends had no uses left."),
    Reason("taken", "WX0003", "low", "A subject that has to be free is bound."),
    Reason("gone", "WX0004", "low", "A node that has to live does not."),
    Reason("wrong-state", "WX0005", "low", "The state is not the one that was handed out."),
)

Way = Literal["admit", "refuse", "raise", "junk", "hang", "deaf", "exit", "challenge"]


def subject(name: str) -> bytes:
    """Return 32 bytes for a name."""
    return sha256(name.encode()).digest()


@dataclass(frozen=True)
class Script:
    """What a verification shall do. Names of subjects are hashed by `subject`."""

    way: Way = "admit"
    detail: str = ""
    """The reason to refuse with, or the kind of junk."""
    tenant: str = "acme"
    pool: str = "web"
    site: str | None = None
    role: str | None = None
    """Another role than the one that was asked for."""
    spend: tuple[str, ...] = ()
    name_token: bool = False
    """Whether the admission names the first token that it spends."""
    uses: tuple[tuple[str, int | None], ...] = ()
    """Names, and for how many seconds they are used up."""
    bind: str | None = None
    rekey: bool = False
    """Ask for the node that `bind` is bound to, if it is bound."""
    hardware_key: str | None = None
    subjects: tuple[tuple[str, str], ...] = ()
    kinds: tuple[str, ...] | None = None
    unless_bound: str | None = None
    """Refuse if this is bound."""
    only_if_live: str | None = None
    """Refuse unless the node that this is bound to is adopting or active."""
    rounds: int = 1
    """How many rounds until the script is played; before that, challenges with state."""
    hops: int = 0
    """How often the loop turns before the first read."""
    statements: tuple[str, ...] = ()
    """Raw SQL for attestors with `uses_tx`; `$1` is the SHA-256 of the CSR."""
    swallow: bool = False
    """Whether an error of raw SQL is caught."""

    def encode(self) -> bytes:
        """Return the payload."""
        return json.dumps(asdict(self)).encode()

    def but(self, **changes: Any) -> "Script":  # noqa: ANN401 - values of any field
        """Return the same script with changes."""
        return replace(self, **changes)


def decode(payload: bytes) -> Script:
    """Return the script of a payload."""
    said = json.loads(payload)
    for name in ("spend", "statements"):
        said[name] = tuple(said[name])
    for name in ("uses", "subjects"):
        said[name] = tuple(tuple(pair) for pair in said[name])
    if said["kinds"] is not None:
        said["kinds"] = tuple(said["kinds"])
    return Script(**said)


class Scripted:
    """Plays the script that a machine sends as evidence."""

    version = "1"
    reasons: tuple[Reason, ...] = REASONS

    def __init__(
        self,
        id: str = "scripted",  # noqa: A002 - the contract's name
        *,
        uses_tx: bool = False,
        roles: frozenset[Role] = frozenset(("node", "site")),
        limits: Limits | None = None,
    ) -> None:
        """Have an id, and perhaps raw SQL."""
        self.id = id
        self.uses_tx = uses_tx
        self.roles = roles
        self.refuse = refuser(id)
        self.limits = limits or Limits(unrestricted_kinds=True)
        self.calls = 0

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Play the script."""
        self.calls += 1
        script = decode(evidence.payload)
        for _ in range(script.hops):
            await asyncio.sleep(0)
        done = context.open_state()
        played = 0 if done is None else int(done)
        if played < script.rounds - 1:
            state = context.seal_state(str(played + 1).encode(), timedelta(minutes=5))
            return Challenge(b"again", state, context.now + timedelta(minutes=5))
        if played > script.rounds - 1:
            raise self.refuse("wrong-state")
        await self._run(script, context)
        await self._look(script, context)
        match script.way:
            case "refuse":
                raise self.refuse(script.detail or "no", tenant_id=TenantId(script.tenant))
            case "raise":
                message = "a bug of the script"
                raise KeyError(message)
            case "exit":
                raise SystemExit(3)
            case "junk":
                found: Admission = await junk(script.detail, self.refuse, context)
                return found
            case "hang":
                await asyncio.Event().wait()
            case "deaf":
                await deaf()
            case _:
                pass
        return await self._admission(script, context)

    async def _run(self, script: Script, context: JoinContext) -> None:
        for statement in script.statements:
            if context.tx is None:
                message = "no raw SQL here"
                raise RuntimeError(message)
            arguments = (context.csr_sha256,) if "$1" in statement else ()
            try:
                await context.tx.execute(statement, *arguments)
            except Exception:
                if not script.swallow:
                    raise

    async def _look(self, script: Script, context: JoinContext) -> None:
        for token_id in script.spend:
            token = await context.tokens.get(token_id)
            if token is None or token.uses_left <= 0:
                raise self.refuse("exhausted")
        if script.unless_bound is not None:
            owner = await context.bindings.get(subject(script.unless_bound))
            if owner is not None:
                raise self.refuse("taken")
        if script.only_if_live is not None:
            owner = await context.bindings.get(subject(script.only_if_live))
            node = None if owner is None else await context.nodes.get(owner)
            if node is None or node.state not in ("adopting", "active"):
                raise self.refuse("gone")

    async def _admission(self, script: Script, context: JoinContext) -> Admission:
        node_id: NodeId | None = None
        bind = None if script.bind is None else subject(script.bind)
        if bind is not None and script.rekey:
            node_id = await context.bindings.get(bind)
        for token_id in script.spend:
            context.spend(TokenId(token_id))
        for name, seconds in script.uses:
            expires = None if seconds is None else context.now + timedelta(seconds=seconds)
            context.use_once(subject(name), expires_at=expires)
        role: Any = script.role or context.role
        return Admission(
            tenant=TenantId(script.tenant),
            role=role,
            pool=script.pool,
            site=script.site,
            node_id=node_id,
            token_id=TokenId(script.spend[0]) if script.name_token else None,
            bind=bind,
            allowed_kinds=script.kinds,
            hardware_key=script.hardware_key,
            subjects=tuple(Subject(kind, value) for kind, value in script.subjects),
        )


class ScriptedToken(Scripted):
    """Plays scripts under the id `join-token`, and leaves real tokens to the real attestor."""

    reasons: tuple[Reason, ...] = (*REASONS, *JOIN_TOKEN)

    def __init__(self) -> None:
        """Have the built-in's id."""
        super().__init__("join-token")
        self._real = JoinTokenAttestor()

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Play a script, or look at a token."""
        if evidence.payload.startswith(b"{"):
            return await super().verify(evidence, context)
        return await self._real.verify(evidence, context)


async def deaf() -> None:
    """Wait for ever and swallow being cancelled twice; the third time ends it, so that a test can end."""
    for _ in range(2):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    await asyncio.Event().wait()
