"""What operators do meanwhile, and rows that are old enough to go.

Nothing that machines do in an hour is old enough to be pruned: so old rows and old partitions are planted, for no
request and with nothing in them that anybody reads, and have to be gone in the end.
"""

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.faults.faults.fault import NotHit, Scale
from tests.faults.faults.relays import pause
from tests.faults.processes.deployment import Deployment, current_encryption
from tests.faults.processes.fleet import CommandFailed
from tests.faults.processes.postgres import ROLE
from tests.faults.schedule import Say

_AGE_DAYS = 40
_MARK = "soak:planted"
_ROWS = 6000
"""More than the keeper prunes in one statement."""
_CONFLICT = 4
"""The exit status of a command that comes too late."""
_TABLES = ("refusals", "journal_refusal")


@dataclass(slots=True)
class Upkeep:
    """Rotates keys, moves shards and plants what is old, each every so often."""

    deployment: Deployment
    say: Say
    every_s: float
    rotate_every_s: float
    """Longer: of one kind there may be 16 keys, and none is deleted while a request may need it."""
    rotated_at: float = 0.0
    rotations: int = 0
    moves: int = 0
    planted: int = 0
    partitions: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])

    async def run(self) -> None:
        """Do one of these after the other until cancelled."""
        while True:
            for work in (self.plant, self._rotate, self._move):
                begun = time.monotonic()
                try:
                    await work()
                except Exception as error:  # noqa: BLE001 - told at the end, where it fails the run
                    self.problems.append(f"{work.__name__.strip('_')}: {error!r}")
                    self.say(self.problems[-1])
                await asyncio.sleep(max(0.0, self.every_s - (time.monotonic() - begun)))

    async def plant(self) -> None:
        """Add answers and uses from before their retention, and an old day of refusals."""
        run = self.deployment.postgres.run
        await run(
            "INSERT INTO watchword.inbox (digest, outcome, reason, at) "
            "SELECT sha256(gen_random_uuid()::text::bytea), 2, $1, watchword.now() - interval '4 days' FROM generate_series(1, $2::int)",
            _MARK,
            _ROWS,
        )
        await run(
            "INSERT INTO watchword.attestation_uses (attestor, subject, node_id, expires_at) "
            "SELECT $1, sha256(gen_random_uuid()::text::bytea), gen_random_uuid(), watchword.now() - interval '4 days' FROM generate_series(1, $2::int)",
            _MARK,
            _ROWS,
        )
        self.planted += 2 * _ROWS
        day = datetime.now(UTC) - timedelta(days=_AGE_DAYS + len(self.partitions))
        for table in _TABLES:
            name = f"{table}_{day:%Y%m%d}"
            # At once: a keeper that saw it before it was attached would take it for one that somebody has detached, and
            # drop it. It is no superuser, so what it drops must be its own.
            await run(
                "DO $$ BEGIN "
                f"CREATE TABLE watchword.{name} (LIKE watchword.{table} "
                "INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES); "
                f"ALTER TABLE watchword.{name} OWNER TO {ROLE}; "
                f"ALTER TABLE watchword.{table} ATTACH PARTITION watchword.{name} "
                f"FOR VALUES FROM ('{day:%Y-%m-%d} 00:00+00') TO ('{day + timedelta(days=1):%Y-%m-%d} 00:00+00'); "
                "END $$"
            )
            self.partitions.append(name)

    async def left(self) -> tuple[int, int]:
        """Return how many planted rows, and how many planted partitions, are still there."""
        run = self.deployment.postgres.run
        rows = await run(
            "SELECT (SELECT count(*) FROM watchword.inbox WHERE reason = $1) "
            "+ (SELECT count(*) FROM watchword.attestation_uses WHERE attestor = $1)",
            _MARK,
        )
        tables = await run(
            "SELECT count(*) FROM pg_class WHERE relnamespace = 'watchword'::regnamespace AND relname = ANY($1)",
            self.partitions,
        )
        return int(rows[0][0]), int(tables[0][0])

    async def _rotate(self) -> None:
        """Change the key that evidence is sealed to, and the one that keeps challenges; machines take the new one."""
        if time.monotonic() < self.rotated_at + self.rotate_every_s:
            return
        self.rotated_at = time.monotonic()
        command = self.deployment.fleet.command
        for kind in ("decryption", "challenge"):
            try:
                await asyncio.to_thread(command, "keys", "prepare", kind)
            except CommandFailed as error:
                if error.status != _CONFLICT:
                    raise
                # One is prepared already: of the beginning, or of a try before.
            # Each worker has to have it first: the command refuses until then.
            await self._activate(kind)
        await asyncio.to_thread(command, "trust", "publish")
        self.deployment.load.supplies.encryption = await current_encryption(self.deployment)
        self.rotations += 1

    async def _activate(self, kind: str) -> None:
        deadline = time.monotonic() + 60.0
        while True:
            try:
                await asyncio.to_thread(self.deployment.fleet.command, "keys", "activate", kind)
            except CommandFailed:
                if time.monotonic() >= deadline:
                    raise
                await asyncio.sleep(2.0)
            else:
                return

    async def _move(self) -> None:
        """Have a relay's shards go to the others, and come back."""
        try:
            self.moves += await pause(self.deployment, Scale())
        except NotHit as error:
            self.say(str(error))
