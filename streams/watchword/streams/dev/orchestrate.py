"""`watchword dev`: a whole deployment, a fleet that joins it, and what the world sees of it."""

import asyncio
import json
import os
import secrets
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from watchword.handlers.attestors.join_token.evidence import parse_token
from watchword.handlers.errors import Conflict
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.places import create_place, create_tenant
from watchword.handlers.operators.sessions import create_link
from watchword.handlers.operators.tokens import TokenOrder, create_token, revoke_token
from watchword.schemas.ids import ROOT
from watchword.schemas.topics import JOIN_REFUSED, NODE_EVENTS
from watchword.streams.dev.data_folder import DataFolder, attestor_tables
from watchword.streams.dev.deployment import Deployment, deployed
from watchword.streams.dev.errors import ServerFailed
from watchword.streams.dev.expectations import JOINED, Run, TokenUse
from watchword.streams.dev.machines import Fleet, Tokens, fleet_uses, plans
from watchword.streams.dev.stage import Stage
from watchword.streams.dev.topic_reader import TopicReader, reading
from watchword.streams.dev.verdict import TOPICS, judge

ACTOR = Actor("watchword dev", "a demonstration", "dev")

_TENANT, _POOL, _SITE = "acme", "gpu", "berlin"
_HAND_USES = 1000
_PATIENCE_S = 30.0
_SECOND_SIGNAL = {signal.SIGINT: 130, signal.SIGTERM: 143}


@dataclass(frozen=True, slots=True)
class DevOptions:
    """How to run. With `demo` nobody is waited for."""

    data: Path
    demo: bool = False
    attestors: Path | None = None
    """A file with the settings of attestors."""


async def run_dev(options: DevOptions) -> int:
    """Run until Ctrl-C (or, as a demonstration, to its end); return the exit status.

    0 says that every machine was told, and every topic and table shows, what was expected.

    Raises:
        BadArgument, ConfigRefused: the settings of attestors are not usable.
        ServerFailed: something did not start, or did not end well.
    """
    stage = Stage()
    folder = DataFolder(options.data.absolute())
    attestors = "" if options.attestors is None else attestor_tables(options.attestors)
    stage.step(f"everything is kept in {folder.root}")
    began = time.monotonic()
    with _interrupts() as interrupted:
        working = asyncio.create_task(_work(folder, stage, attestors, demo=options.demo))
        waiting = asyncio.create_task(interrupted.wait())
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            stage.line()
            stage.step("stopping; once more to end at once")
            working.cancel()
        waiting.cancel()
        try:
            status = await working
        except asyncio.CancelledError:
            # Somebody who watched has seen enough; a demonstration without an end has shown nothing.
            status = 1 if options.demo else 0
    stage.step("nothing is left running", time.monotonic() - began)
    return status


async def _work(folder: DataFolder, stage: Stage, attestors: str, *, demo: bool) -> int:
    async with deployed(folder, stage.step, attestors) as deployment:
        run = await _send_fleet(deployment, stage)
        began = time.monotonic()
        checks = await judge(
            deployment.kafka.bootstrap_servers, deployment.database_url, run, patience_s=_PATIENCE_S
        )
        stage.step("judged from topics and tables alone", time.monotonic() - began)
        stage.verdict(checks)
        joined = sum(machine.seen == JOINED for machine in run.machines)
        kept = all(check.kept for check in checks)
        stage.step(
            f"{joined} of {len(run.machines)} machines joined, the others were refused:"
            f" {'as expected' if kept else 'NOT as expected'}"
        )
        if not demo:
            _explain(deployment, stage, await _console_link(deployment))
            await _follow(deployment, stage)
        return 0 if kept else 1


async def _send_fleet(deployment: Deployment, stage: Stage) -> Run:
    """Make tokens, send the machines, and show what consumers of the topics see meanwhile."""
    await _make_places(deployment)
    tokens = await _make_tokens(deployment)
    wanted = plans(tokens)
    servers = deployment.kafka.bootstrap_servers
    async with reading(servers, TOPICS) as reader:
        starts = await reader.ends()
    fleet = Fleet(
        deployment.folder.agents / "fleet",
        gateway=deployment.gateway_url,
        kafka=deployment.kafka,
        pin=deployment.keys.pin,
        told=stage.told,
    )
    began = time.monotonic()
    async with reading(
        servers, (NODE_EVENTS, JOIN_REFUSED), {t: starts[t] for t in (NODE_EVENTS, JOIN_REFUSED)}
    ) as reader:
        showing = asyncio.create_task(_show(reader, stage))
        try:
            machines = await fleet.run(wanted)
        finally:
            showing.cancel()
            await asyncio.wait({showing})
        await _show_rest(reader, stage)
    stage.step(f"{len(machines)} machines have their answers", time.monotonic() - began)
    fleet_token, single = parse_token(tokens.fleet), parse_token(tokens.single)
    return Run(
        machines=machines,
        tokens=(TokenUse(fleet_token.id, 0), TokenUse(single.id, 0)),
        starts=starts,
        secrets=tuple(
            text.rpartition(".")[2].encode()
            for text in (tokens.fleet, tokens.single, tokens.revoked)
        ),
    )


async def _make_places(deployment: Deployment) -> None:
    database = deployment.database
    # A run before this one may have made them.
    with suppress(Conflict):
        await create_tenant(database, ACTOR, _TENANT, title="A tenant for trying out")
    with suppress(Conflict):
        await create_place(database, ACTOR, "pool", _TENANT, _POOL)
    with suppress(Conflict):
        await create_place(database, ACTOR, "site", _TENANT, _SITE)


async def _make_tokens(deployment: Deployment) -> Tokens:
    database = deployment.database

    async def make(uses: int, expires_in: timedelta = timedelta(hours=1)) -> str:
        order = TokenOrder(
            tenant=_TENANT,
            pool=_POOL,
            site=_SITE,
            uses=uses,
            expires_in=expires_in,
            allowed_kinds=("inventory.refresh", "logs.collect", "diag.*"),
        )
        return (await create_token(database, ACTOR, order)).text

    counted = fleet_uses(Tokens("fleet", "single", "revoked"))
    tokens = Tokens(fleet=await make(counted), single=await make(1), revoked=await make(1))
    await revoke_token(database, ACTOR, parse_token(tokens.revoked).id)
    by_hand = await make(_HAND_USES, timedelta(days=7))
    deployment.folder.write_private(deployment.folder.token, f"{by_hand}\n")
    return tokens


async def _show(reader: TopicReader, stage: Stage) -> None:
    while True:
        for record in await reader.read():
            stage.event(json.loads(record.value or b"{}"))


async def _show_rest(reader: TopicReader, stage: Stage) -> None:
    for record in await reader.read_to_the_end(within_s=_PATIENCE_S):
        stage.event(json.loads(record.value or b"{}"))


async def _console_link(deployment: Deployment) -> str:
    """Return an address that lets one person into the console, once."""
    secret = await create_link(
        deployment.database,
        ACTOR,
        who="you",
        scope=ROOT,
        role="admin",
        expires_in=timedelta(hours=12),
    )
    return f"{deployment.console_url}/sign-in?link={secret}"


def _explain(deployment: Deployment, stage: Stage, console_link: str) -> None:
    """Say what is where, and how to join one more machine by hand."""
    folder, program = deployment.folder, _program()
    state = folder.agents / f"by-hand-{secrets.token_hex(3)}"
    for line in (
        "",
        f"console        {console_link}",
        "               lets one person in, once; for another:",
        f"               {program} operators link YOUR-NAME --role admin --config {folder.config}",
        f"gateway        {deployment.gateway_url}",
        f"Kafka          {deployment.kafka.bootstrap_servers}",
        f"PostgreSQL     its URL is in {folder.database_url}",
        f"configuration  {folder.config}",
        f"logs           {folder.logs}",
        f"pin            {deployment.keys.pin}",
        "",
        "Join one more machine, in another terminal:",
        "",
        f"  {program} agent bootstrap --state {state} --gateway {deployment.gateway_url} \\",
        f"    --pin {deployment.keys.pin}",
        f"  {program} agent join --state {state} --gateway {deployment.gateway_url} \\",
        f"    --token-file {folder.token}",
        "",
        "Look around:",
        "",
        f"  {program} nodes list --config {folder.config}",
        f"  {program} refusals list --config {folder.config}",
        f"  {program} doctor --config {folder.config}",
        "",
        "Events appear here as they happen. Ctrl-C stops everything.",
        "",
    ):
        stage.line(line)


def _program() -> str:
    """Return how this program is called: by its name where a shell finds it, else by its place."""
    called, known = Path(sys.argv[0]), shutil.which("watchword")
    if called.name != "watchword" or (known and Path(known).resolve() == called.resolve()):
        return "watchword"
    return shlex.quote(str(called))


async def _follow(deployment: Deployment, stage: Stage) -> None:
    """Show events until somebody stops us, or a process ends by itself."""
    async with reading(deployment.kafka.bootstrap_servers, (NODE_EVENTS, JOIN_REFUSED)) as reader:
        while not (dead := deployment.children.dead()):
            for record in await reader.read():
                stage.event(json.loads(record.value or b"{}"))
    message = f"{dead[0].name} has ended by itself:\n{dead[0].log}"
    raise ServerFailed(message)


@contextmanager
def _interrupts() -> Generator[asyncio.Event]:
    """Yield an event that Ctrl-C and SIGTERM set; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()

    def interrupt(number: signal.Signals) -> None:
        if interrupted.is_set():
            # The servers and processes are tied to ours, and end with it.
            os._exit(_SECOND_SIGNAL[number])
        interrupted.set()

    for number in _SECOND_SIGNAL:
        loop.add_signal_handler(number, interrupt, number)
    try:
        yield interrupted
    finally:
        for number in _SECOND_SIGNAL:
            loop.remove_signal_handler(number)
