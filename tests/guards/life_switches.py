"""What switches the guards of a node's life off: patches of a running interpreter, never loaded by production."""

import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Any
from uuid import UUID

from watchword.handlers.errors import Refused
from watchword.handlers.explain import moments, past, trace
from watchword.handlers.join import deciding, dispatching, holding, reclaim, renewing
from watchword.handlers.join.candidate import Refusal
from watchword.handlers.join.reading import Nodes
from watchword.handlers.operators import commands as operator_commands
from watchword.handlers.rows import NodeRow
from watchword.handlers.store import author_sql, purging, standing
from watchword.schemas.requests import RENEWAL_ATTESTOR
from watchword.streams.agent import command_journal, handler_folder


def _replace(owner: Any, name: str, value: object) -> None:  # noqa: ANN401 - a module or class
    """Put something else in a guard's place."""
    setattr(owner, name, value)


def second_keys_are_late() -> None:
    """Take a second key from one certificate for one that comes too late."""

    def steal(*_: object) -> Refusal:
        return Refusal(Refused(RENEWAL_ATTESTOR, "superseded"))

    _replace(deciding, "_steal", steal)


def renewals_are_believed() -> None:
    """Take any signature for the current certificate's key's."""

    def signed(*_: object) -> bool:
        return True

    _replace(holding, "_signed", signed)


def key_statements_are_believed() -> None:
    """Carry what a certificate says of its key on to any other key."""

    def proved(*_: object) -> bool:
        return True

    _replace(renewing.Renewals, "_is_proved", proved)


def versions_are_not_compared() -> None:
    """Take a node for unchanged as long as it is the same node."""

    def same(self: Any, other: object) -> bool:  # noqa: ANN401
        return isinstance(other, NodeRow) and self.id == other.id

    _replace(NodeRow, "__eq__", same)


def bans_wait_for_nobody() -> None:
    """Ban without waiting for the batches that run."""

    async def lock_bans(_: object) -> None:
        return None

    _replace(standing, "lock_bans", lock_bans)


def commands_are_checked_once() -> None:
    """Hand out whatever was sent, whatever has become of its node's certificate since."""

    def fault(*_: object, **__: object) -> None:
        return None

    _replace(dispatching, "_fault", fault)


def anything_may_be_sent() -> None:
    """Let every command wait for its node, whatever the certificate allows."""

    def permits(*_: object) -> bool:
        return True

    _replace(operator_commands, "permits", permits)


def reports_are_believed() -> None:
    """Take a node's word also of what it was never told."""

    def counts(_: object) -> bool:
        return True

    _replace(dispatching, "_counts", counts)


def commands_are_not_remembered() -> None:
    """Take each command for a new one, and its folder for nobody's."""

    def knows(*_: object) -> bool:
        return False

    def accept(self: Any, command: Any) -> Any:  # noqa: ANN401
        shutil.rmtree(self._folder / command.id, ignore_errors=True)
        return _accept(self, command)

    _accept: Any = command_journal.CommandJournal.accept
    _replace(command_journal.CommandJournal, "knows", knows)
    _replace(command_journal.CommandJournal, "accept", accept)


def handlers_may_be_anybodys() -> None:
    """Run handlers whoever can write to them."""

    def check(self: Any) -> Any:  # noqa: ANN401
        return self._folder.resolve()

    _replace(handler_folder.HandlerFolder, "check", check)


def named_certificates_are_read_once() -> None:
    """Take a certificate that an admission names for what some request of the batch saw of it."""

    async def shows(admission: Any, target: UUID, nodes: Nodes) -> bool:  # noqa: ANN401 - as an author's
        if admission.certificate is None:
            return False
        unnoted = Nodes(attrgetter("_loader")(nodes), set(), {})
        row = await unnoted.certificate(admission.certificate)
        return row is not None and row.node_id == target and row.is_current and not row.revoked

    _replace(reclaim, "_shows_its_certificate", shows)


def explanations_see_today() -> None:
    """Take rows as they are now for what they were."""

    def after(*_: object) -> list[object]:
        return []

    def touched_node(*_: object) -> bool:
        return False

    _replace(past.Tail, "after", after)
    _replace(past.Tail, "touched_node", touched_node)


def what_was_stamped_was_seen() -> None:
    """Take every transaction for committed at the time that it is stamped with."""
    _replace(moments, "_MOST_IN_DOUBT", 0)


def scratch_is_committed() -> None:
    """Keep what authors' statements do while somebody explains."""

    @asynccontextmanager
    async def transaction(self: Any) -> AsyncGenerator[author_sql.AuthorSql]:  # noqa: ANN401
        async with self._database.transaction() as connection:
            yield author_sql.AuthorSql(connection)

    _replace(author_sql.Scratch, "transaction", transaction)


def facts_are_shown_as_they_are() -> None:
    """Show bytes of an attestor's author in hexadecimal."""
    was = trace.shown

    def shown(value: object) -> object:
        return value.hex() if isinstance(value, bytes) else was(value)

    _replace(trace, "shown", shown)


def purges_forget_uses() -> None:
    """Take what a node used up away with the rest."""
    was = purging.purge

    async def purge(connection: Any, nodes: Any, *rest: Any) -> Any:  # noqa: ANN401 - as the store's
        await connection.execute(
            "DELETE FROM attestation_uses WHERE node_id = ANY($1::uuid[])", nodes
        )
        return await was(connection, nodes, *rest)

    _replace(purging, "purge", purge)


LIFE_SWITCHES: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        second_keys_are_late,
        renewals_are_believed,
        key_statements_are_believed,
        versions_are_not_compared,
        bans_wait_for_nobody,
        commands_are_checked_once,
        anything_may_be_sent,
        reports_are_believed,
        commands_are_not_remembered,
        handlers_may_be_anybodys,
        named_certificates_are_read_once,
        explanations_see_today,
        what_was_stamped_was_seen,
        scratch_is_committed,
        facts_are_shown_as_they_are,
        purges_forget_uses,
    )
}
