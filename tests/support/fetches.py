"""Nodes that ask for their commands: requests of kind `commands`, and what they are answered with."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric import rsa
from uuid_utils.compat import uuid7

from tests.support.crypto import NodeKey, csr_of, spki_of
from tests.support.joins import Bench
from tests.support.renewals import Node
from watchword.handlers.crypto import hpke
from watchword.handlers.crypto.commands import FetchEvidence, read_command, signed_text
from watchword.handlers.crypto.hpke import DecryptionKey
from watchword.handlers.crypto.renewals import sign
from watchword.handlers.crypto.responses import read_response
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.commands import CommandOrder, send_command
from watchword.handlers.operators.standing import SeenNode
from watchword.handlers.rows import CommandRow
from watchword.handlers.store.connection import Database
from watchword.schemas.canonical import b64, length_prefixed
from watchword.schemas.commands import Command, Report, Reports
from watchword.schemas.ids import AttestorId, Role
from watchword.schemas.requests import Claims, JoinRequest, seal_info
from watchword.schemas.responses import JoinResponse

ADA = Actor("ada", "a test")
SECRET = b"the password of the backup is correct-horse"
"""What a command says, and nobody but its node may read."""


@dataclass
class Fetch:
    """One request for commands, and the key that opens its answer."""

    request: bytes
    reply: DecryptionKey = field(repr=False)


def fetch(  # noqa: PLR0913 - what may be wrong with it
    bench: Bench,
    node: Node,
    *,
    reports: Sequence[Report] = (),
    signs: NodeKey | None = None,
    csr_key: NodeKey | None = None,
    tbs_sha256: bytes | None = None,
    signed_id: str | None = None,
    signed_reports: Reports | None = None,
    payload: bytes | None = None,
    role: Role = "node",
    attestor: str = "command",
    state: bytes | None = None,
    reply_key: bytes | None = b"",
) -> Fetch:
    """Return a request for a node's commands; the options say what is wrong with it."""
    request_id, reply = str(uuid7()), hpke.generate()
    key = signs or node.key
    assert not isinstance(key, rsa.RSAPrivateKey)
    csr = csr_of(csr_key or node.key)
    named, said = tbs_sha256 or node.tbs_sha256, Reports(items=tuple(reports))
    text = signed_text(named, sha256(csr).digest(), signed_id or request_id, signed_reports or said)
    evidence = FetchEvidence(named, spki_of(key), said, sign(key, text)).encode()
    public = reply.public if reply_key == b"" else reply_key
    info = seal_info(
        version=1,
        kind="commands",
        request_id=request_id,
        attestor=AttestorId(attestor),
        role=role,
        encryption_key_id=bench.key_id,
        reply_key=public or b"",
        state=state,
        csr_sha256=sha256(csr).digest(),
    )
    plain = length_prefixed(evidence if payload is None else payload, Claims().write())
    request = JoinRequest(
        version=1,
        kind="commands",
        request_id=request_id,
        attestor=attestor,
        role=role,
        csr=b64(csr),
        encryption_key_id=bench.key_id,
        sealed=b64(hpke.seal(bench.seal_to, plain, info)),
        state=None if state is None else b64(state),
        reply_key=None if public is None else b64(public),
    ).write()
    return Fetch(request, reply)


async def told(bench: Bench, *fetches: Fetch) -> list[JoinResponse]:
    """Judge requests as one batch; return the answers, opened."""
    answers = await bench.engine.judge([bench.incoming(one.request) for one in fetches])
    return [
        read_response(answer.value, bench.signing, None, one.reply.private_bytes())
        for answer, one in zip(answers, fetches, strict=True)
    ]


async def asked(bench: Bench, node: Node, **changes: Any) -> list[Command]:  # noqa: ANN401
    """Return the commands that a node gets when it asks."""
    [answer] = await told(bench, fetch(bench, node, **changes))
    return commands_in(bench, answer)


def commands_in(bench: Bench, answer: JoinResponse) -> list[Command]:
    """Return the commands of an answer, whose signatures hold."""
    assert answer.commands is not None, answer
    return [read_command(item.encode(), bench.signing) for item in answer.commands.items]


async def sent(
    bench: Bench,
    node: Node,
    kind: str = "disk.wipe",
    payload: bytes = b"",
    *,
    actor: Actor = ADA,
    expires_in: timedelta = timedelta(days=1),
) -> CommandRow:
    """Send a command as an operator does."""
    database = Database(bench.dsn, application_name="test")
    try:
        order = CommandOrder(
            seen=SeenNode(UUID(node.id)), kind=kind, payload=payload, expires_in=expires_in
        )
        return await send_command(database, actor, order)
    finally:
        await database.close()


def report(command: Command | CommandRow, result: Any = "done", status: int | None = 0) -> Report:  # noqa: ANN401
    """Return what a node says of a command."""
    return Report(id=str(command.id), result=result, exit_status=status)


async def states(bench: Bench) -> list[tuple[str, str | None]]:
    """Return state and reason of each command, oldest first."""
    rows = await bench.fetch("SELECT state, reason FROM node_commands ORDER BY id")
    return [(row[0], row[1]) for row in rows]
