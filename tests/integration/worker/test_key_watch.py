"""Workers take changed keys without a restart, and tell which they have."""

import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.crypto import TRUST_DOMAIN
from watchword.handlers.crypto import hpke
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.crypto.jws import unverified_kid
from watchword.handlers.crypto.keyfiles import create_keys, load_authority
from watchword.handlers.crypto.keyrotation import activate, prepare
from watchword.handlers.crypto.responses import Question
from watchword.handlers.crypto.signer import LocalSigner
from watchword.handlers.errors import Conflict
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.keys import Changed, change_keys, check_held
from watchword.handlers.store.connection import Database
from watchword.streams.worker.key_watch import KeyWatch

pytestmark = pytest.mark.postgres

NOW = datetime.now(UTC)
ADA = Actor("ada", "a test")


@dataclass
class Worker:
    """A worker's keys, as far as they go."""

    folder: Path
    database: Database
    crypto: JoinCrypto
    watch: KeyWatch

    def signs_with(self) -> str:
        return unverified_kid(self.crypto.answers.refused(Question(b"\0" * 32), NOW))


@pytest.fixture
async def worker(database: str, tmp_path: Path) -> AsyncGenerator[Worker]:
    folder = tmp_path / "keys"
    keys = create_keys(folder, TRUST_DOMAIN, NOW)
    opened = Database(database, application_name="test")
    crypto = keys.join_crypto(LocalSigner(load_authority(folder)))
    watch = KeyWatch(folder, keys, crypto, opened, holder="w-1")
    await watch.look()
    yield Worker(folder, opened, crypto, watch)
    await opened.close()


async def test_a_changed_folder_is_loaded_and_told(worker: Worker) -> None:
    """A rotation must not be an outage, and nobody should have to know how many workers there are."""
    signing = prepare(worker.folder, "signing", now=NOW)
    decryption = prepare(worker.folder, "decryption", now=NOW)
    with pytest.raises(Conflict, match="w-1"):
        await check_held(worker.database, signing)

    await worker.watch.look()
    await check_held(worker.database, signing)
    await check_held(worker.database, decryption)
    first = worker.signs_with()
    assert first != signing
    activate(worker.folder, "signing", now=NOW)
    await worker.watch.look()
    assert worker.signs_with() == signing

    await worker.watch.leave()
    await check_held(worker.database, "a key of nobody")


async def test_keys_that_cannot_be_used_change_nothing(worker: Worker) -> None:
    """A worker that has lost its keys would answer nobody; the ones before are still good."""
    before = worker.signs_with()
    kid = prepare(worker.folder, "decryption", now=NOW)
    (worker.folder / "decryption" / f"{kid}.pem").chmod(0o644)
    await worker.watch.look()
    assert worker.signs_with() == before
    with pytest.raises(Conflict):
        await check_held(worker.database, kid)

    (worker.folder / "decryption" / f"{kid}.pem").chmod(0o600)
    os.utime(worker.folder / "keys.json")
    await worker.watch.look()
    await check_held(worker.database, kid)


async def test_a_worker_opens_what_is_sealed_to_a_key_that_is_only_prepared(
    worker: Worker,
) -> None:
    """Whoever activates it and whoever loads it are not the same moment."""
    kid = prepare(worker.folder, "decryption", now=NOW)
    await worker.watch.look()
    held = worker.crypto._decryption[kid]

    sealed = hpke.seal(held.key.public, b"x", b"")
    assert worker.crypto.unseal(kid, sealed, b"", NOW) == b"x"


async def test_a_change_is_in_audit_log_and_journal_with_who_and_why(worker: Worker) -> None:
    """A key that changed and nobody knows why is what an attack looks like."""
    await change_keys(
        worker.database,
        ADA,
        "signing",
        "prepared",
        lambda: (None, Changed(kid=prepare(worker.folder, "signing", now=NOW))),
    )
    async with worker.database.transaction() as connection:
        audit = await connection.fetchrow("SELECT who, action, why, detail FROM audit_log")
        told = await connection.fetchrow(
            "SELECT topic, convert_from(value, 'UTF8') AS value FROM journal WHERE type = 'trust.rotated'"
        )

    assert audit is not None
    assert (audit["who"], audit["action"], audit["why"]) == ("ada", "trust.rotated", "a test")
    assert told is not None
    assert told["topic"] == "node.events"
    assert '"who":"ada"' in told["value"]
    assert "PRIVATE" not in told["value"]


async def test_a_change_that_is_refused_leaves_no_record(worker: Worker) -> None:
    def wrong() -> tuple[None, Changed]:
        kid, _ = activate(worker.folder, "signing", now=NOW)
        return None, Changed(kid=kid)

    with pytest.raises(Conflict):
        await change_keys(worker.database, ADA, "signing", "activated", wrong)

    async with worker.database.transaction() as connection:
        assert await connection.fetchval("SELECT count(*) FROM audit_log") == 0
