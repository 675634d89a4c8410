"""What switches the guards of attestors off: patches of a running interpreter, never loaded by production."""

from collections.abc import Callable, Sequence
from typing import Any

from watchword.handlers import attestor, definition, hardware_ids
from watchword.handlers.attestors.cloud_iid import cms
from watchword.handlers.attestors.discovery import verifier as discovery
from watchword.handlers.attestors.image import verifier as image
from watchword.handlers.attestors.x509pop import chain
from watchword.handlers.attestors.x509pop import verifier as x509pop
from watchword.handlers.crypto import jws
from watchword.handlers.errors import SignatureBroken
from watchword.handlers.join import attempts, concluding, deciding, lane, patience
from watchword.handlers.store import joins, plugin_migrations


def _replace(owner: Any, name: str, value: object) -> None:  # noqa: ANN401 - a module or class
    """Put something else in a guard's place."""
    setattr(owner, name, value)


def chains_may_be_any_graph() -> None:
    """Give the path builder whatever certificates came."""

    def named_path(leaf: object, intermediates: Sequence[Any], authorities: object) -> list[Any]:
        del leaf, authorities
        return list(intermediates)

    _replace(chain, "named_path", named_path)


def possession_is_believed() -> None:
    """Take any signature for the certificate's key's."""

    def holds(*_: object) -> bool:
        return True

    _replace(x509pop, "_holds", holds)


def certificates_bind_to_nobody() -> None:
    """Let a certificate's key have any number of nodes."""
    real: Any = x509pop.X509PopAttestor._operators

    async def operators(*arguments: Any) -> Any:  # noqa: ANN401 - as they came
        from dataclasses import replace  # noqa: PLC0415

        return replace(await real(*arguments), bind=None)

    _replace(x509pop.X509PopAttestor, "_operators", operators)


def images_are_enough_alone() -> None:
    """Take every second fact for the one that is none."""
    real: Any = image.ImageAttestor.verify

    async def verify(self: Any, evidence: Any, context: Any) -> Any:  # noqa: ANN401 - as they came
        found = await real(self, evidence, context)
        return getattr(found, "grant", found)

    _replace(image.ImageAttestor, "verify", verify)


def assertions_are_believed() -> None:
    """Read an assertion whoever signed it."""

    def verify(token: bytes, public: bytes, *, typ: str, kid: str | None) -> bytes:
        del public, typ, kid
        if token.count(b".") != 2:
            raise SignatureBroken
        return jws.unverified_payload(token)

    class Believing:
        unverified_kid = staticmethod(jws.unverified_kid)

    _replace(Believing, "verify", staticmethod(verify))
    _replace(discovery, "jws", Believing)


def clouds_are_believed() -> None:
    """Take any signature of a CMS for its cloud's."""

    def verify(*_: object, **__: object) -> None:
        return None

    _replace(cms, "verify", verify)


def uses_are_not_kept() -> None:
    """Let everything be used again and again."""

    def use_once(*_: object, **__: object) -> None:
        return None

    _replace(attestor.JoinContext, "use_once", use_once)


def every_uuid_identifies() -> None:
    """Take placeholders for names of machines."""

    def identifying(text: str | None) -> str | None:
        return None if text is None else hardware_ids.canonical_uuid(text)

    _replace(discovery, "identifying_uuid", identifying)
    _replace(image, "identifying_uuid", identifying)


def living_nodes_are_nobodys() -> None:
    """Look at no other node that has a machine's names."""

    def is_doubtful(known: discovery._Known) -> bool:
        return known.ramdisk is None

    _replace(discovery._Known, "is_doubtful", property(is_doubtful))


def anchors_are_read_once() -> None:
    """Settle by what verifiers read before there was a lock."""

    def is_as_read(*_: object) -> bool:
        return True

    _replace(deciding.World, "is_as_read", is_as_read)


def proofs_need_not_be_carried() -> None:
    """Take whatever an attestor makes of what another one said."""

    def fault_in_proof(*_: object) -> None:
        return None

    _replace(concluding, "fault_in_proof", fault_in_proof)


def authors_speak_as_we_do() -> None:
    """Run an attestor's own SQL with the worker's role."""

    async def raw(self: Any, statement: str, arguments: Any, *, role: str, rows: bool) -> Any:  # noqa: ANN401
        del role
        found = await self.connection.fetch(statement, *arguments)
        return found if rows else "OK"

    _replace(joins.JoinSession, "raw", raw)


def nobody_counts_attempts() -> None:
    """Judge a request with which workers have ended as often as it comes."""

    async def begin_alone(self: Any, candidate: Any) -> bool:  # noqa: ANN401 - as they came
        del self, candidate
        return True

    _replace(attempts.Attempts, "begin_alone", begin_alone)


def suspects_are_judged_together() -> None:
    """Judge requests with which a worker may have ended like all others."""

    async def split(self: Any, candidates: Sequence[Any]) -> tuple[list[Any], list[Any]]:  # noqa: ANN401
        del self
        return list(candidates), []

    _replace(attempts.Attempts, "split", split)


def suspicion_stays() -> None:
    """Count an attempt also if the verification did no harm."""

    async def verified(self: Any, candidates: object) -> None:  # noqa: ANN401 - as they came
        del self, candidates

    _replace(attempts.Attempts, "verified", verified)


def attestors_never_rest() -> None:
    """Ask an attestor however often it was late."""

    def rests(*_: object) -> bool:
        return False

    _replace(patience.Patience, "rests", rests)


def stalls_are_the_authors() -> None:
    """Take every statement that was cut off for a slow one."""

    async def answered(_: object) -> None:
        return

    _replace(lane.LaneTransaction, "answered", answered)


def every_verification_has_a_place() -> None:
    """Run as many verifications of an attestor as there are."""

    def in_place(self: Any, attestor: str, work: Any, *_: object) -> Any:  # noqa: ANN401
        del self, attestor
        return work

    _replace(patience.Patience, "_in_place", in_place)


def attestors_are_taken_as_they_are() -> None:
    """Find no fault in an attestor."""

    def faults_of(found: object) -> list[str]:
        del found
        return []

    _replace(definition, "faults_of", faults_of)


def migrations_make_what_they_like() -> None:
    """Take whatever an attestor's migration has made, under whatever name."""
    _replace(plugin_migrations, "_MADE", "SELECT 1 WHERE false AND $1::text = $2::text")


ATTESTOR_SWITCHES: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        chains_may_be_any_graph,
        possession_is_believed,
        certificates_bind_to_nobody,
        images_are_enough_alone,
        assertions_are_believed,
        clouds_are_believed,
        uses_are_not_kept,
        every_uuid_identifies,
        living_nodes_are_nobodys,
        anchors_are_read_once,
        proofs_need_not_be_carried,
        authors_speak_as_we_do,
        nobody_counts_attempts,
        suspects_are_judged_together,
        suspicion_stays,
        attestors_never_rest,
        stalls_are_the_authors,
        every_verification_has_a_place,
        attestors_are_taken_as_they_are,
        migrations_make_what_they_like,
    )
}
