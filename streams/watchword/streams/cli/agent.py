"""`watchword agent bootstrap|join|run|renew|status|tpm`: what runs on the joining machine.

It imports no server part. Secrets come from files or from standard input, never from the arguments,
which everybody on the machine can read.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from watchword.handlers.attestors.tpm.names import ek_sha256
from watchword.handlers.attestors.tpm.structures import read_public_2b
from watchword.handlers.errors import BadArgument, ConfigRefused
from watchword.schemas.traceparent import TRACEPARENT, TraceContext, read_traceparent
from watchword.streams import failpoints
from watchword.streams.agent import bootstrap as bootstrapping
from watchword.streams.agent import tracing
from watchword.streams.agent.commander import CommandOptions
from watchword.streams.agent.daemon import RunOptions
from watchword.streams.agent.daemon import run as run_agent
from watchword.streams.agent.exchange import KeyKind
from watchword.streams.agent.join import JoinOptions
from watchword.streams.agent.join import join as join_service
from watchword.streams.agent.progress import Progress
from watchword.streams.agent.renew import renew as renew_certificate
from watchword.streams.agent.status import status as status_of
from watchword.streams.agent.tracing import AgentTracing, Untraced
from watchword.streams.agent.transport import Transport
from watchword.streams.cli.durations import duration
from watchword.streams.cli.machine import (
    Joining,
    OnMachine,
    Reaching,
    chip_of,
    key_maker_of,
    keys_in_tpm,
    prover_of,
)
from watchword.streams.cli.output import say, show_one
from watchword.streams.settings import Settings
from watchword.streams.tracing.opening import tracing_of

if TYPE_CHECKING:
    from watchword.streams.tracing.spans import Spans

app = App(name="agent", help="What runs on the joining machine.")


ON_MACHINE = OnMachine()
REACHING = Reaching()
JOINING = Joining()


@app.command
async def bootstrap(
    *,
    pin: Annotated[
        str, Parameter(help="sha256:… of the signing key, as `watchword keys pin` prints it.")
    ],
    options: Reaching = REACHING,
) -> None:
    """Pin the service's signing key and fetch its keys; no other key is accepted ever after."""
    settings = options.settings()
    async with _transport(options, settings) as transport:
        trust = await bootstrapping.bootstrap(options.folder(), transport, pin=pin)
    show_one(
        {
            "pin": trust.pin,
            "trust_domain": trust.key_set.trust_domain,
            "key_set_version": trust.key_set.version,
        },
        options.form,
    )


@app.command
async def join(
    *,
    again: Annotated[
        bool, Parameter(help="Join although the machine has an identity.", negative="")
    ] = False,
    give_up_after: Annotated[
        str | None, Parameter(help="Such as 5m; without it the agent waits for ever.")
    ] = None,
    options: Joining = JOINING,
) -> None:
    """Make this machine a node, or go on with a join that was interrupted; exit 5 if it is refused."""
    settings = options.settings()
    joining = JoinOptions(
        role=options.as_role,
        key_kind=options.key_kind,
        key_in_tpm=key_maker_of(options),
        again=again,
        give_up_after_s=None if give_up_after is None else duration(give_up_after).total_seconds(),
    )
    async with _transport(options, settings) as transport:
        result = await join_service(
            options.folder(),
            transport,
            prover_of(options, transport.clock),
            joining,
            report=_report,
        )
    if result.was_joined:
        say("the machine was a node before; nothing was asked")
    _show_status(options)


@app.command
async def run(
    *,
    reload_command: Annotated[
        tuple[str, ...],
        Parameter(
            help="Program and arguments to run when the files have changed; no shell.",
            negative="",
        ),
    ] = (),
    handlers: Annotated[
        Path | None,
        Parameter(
            help="A folder with one executable for each kind of command, named as the kind: then the machine does"
            " what it is told. It and all above it belong to root or this user, and nobody else may write there."
        ),
    ] = None,
    handler_timeout: Annotated[
        str, Parameter(help="How long a handler may take before it is stopped.")
    ] = "5m",
    commands_every: Annotated[
        str, Parameter(help="How often the service is asked for commands.")
    ] = "60s",
    options: Joining = JOINING,
) -> None:
    """Join if need be, then keep the machine in good standing until SIGTERM or Ctrl-C."""
    failpoints.load(os.environ)
    settings = options.settings("agent")
    running = RunOptions(
        join=JoinOptions(
            role=options.as_role, key_kind=options.key_kind, key_in_tpm=key_maker_of(options)
        ),
        reload_command=reload_command,
        tpm=keys_in_tpm(options),
        commands=None
        if handlers is None
        else CommandOptions(
            handlers,
            every_s=duration(commands_every).total_seconds(),
            limit_s=duration(handler_timeout).total_seconds(),
        ),
        environment=os.environ,
    )
    async with _transport(options, settings, lasts=True) as transport:
        await run_agent(options.folder(), transport, prover_of(options, transport.clock), running)


@app.command
async def renew(
    *,
    key_kind: Annotated[KeyKind, Parameter(help="What kind of key the new one is.")] = "p256",
    options: Reaching = REACHING,
) -> None:
    """Get a new certificate for a new key now, such as after a key may have been seen; exit 5 if it is refused.

    `agent run` renews by itself when two thirds of a certificate's life are over, and stops this command (exit 4).
    """
    settings = options.settings()
    async with _transport(options, settings) as transport:
        await renew_certificate(options.folder(), transport, key_kind=key_kind)
    _show_status(options)


@app.command
def status(*, options: OnMachine = ON_MACHINE) -> None:
    """Show where this machine stands; asks nobody."""
    options.settings()
    _show_status(options)


@app.command
def tpm(*, options: Joining = JOINING) -> None:
    """Show what an operator needs to know of this machine's TPM: its endorsement key, and its PCRs now."""
    options.settings()
    with chip_of(options).opened() as session:
        ek = session.endorsement()
        shown = {
            "ek_sha256": ek_sha256(read_public_2b(ek.area)).hex(),
            "certificate_sha256": sha256(ek.certificate).hexdigest() if ek.certificate else None,
            "intermediates": len(ek.intermediates),
            "pcrs": session.pcrs(),
        }
    show_one(shown, options.form)


def _show_status(options: OnMachine) -> None:
    found: dict[str, Any] = status_of(options.folder()).as_json()
    found.pop("schemaVersion")
    show_one(found, options.form)


def _report(progress: Progress) -> None:
    if progress.step == "approval":
        say(f"waiting for an operator to approve CSR SHA-256 {progress.csr_sha256}")
    elif progress.step == "no-evidence":
        say(f"nothing to show for CSR SHA-256 {progress.csr_sha256} ({progress.why}); trying again")
    elif progress.step == "unreachable":
        say(f"the service cannot be reached ({progress.why}); trying again")


@asynccontextmanager
async def _transport(
    options: Reaching, settings: Settings, *, lasts: bool = False
) -> AsyncGenerator[Transport]:
    """Give the way to the service, and follow what goes that way.

    What started a command may be followed itself, and says so in `TRACEPARENT`; of a process that `lasts` it says nothing.
    """
    said = os.environ.get(TRACEPARENT.upper(), "")
    told = None if lasts else read_traceparent([said.encode(errors="replace")])
    transport = _opened(options, settings)
    with tracing_of(settings.tracing, "agent") as spans:
        tracing.install(Untraced(told) if spans is None else _traced(spans, told))
        try:
            yield transport
        finally:
            await transport.close()


def _traced(spans: "Spans", told: TraceContext | None) -> AgentTracing:
    from watchword.streams.tracing.agent import TracedAgent  # noqa: PLC0415 - needs the extra

    return TracedAgent(spans, told)


def _opened(options: Reaching, settings: Settings) -> Transport:
    if options.kafka == (options.gateway is not None):
        message = "one of --gateway URL and --kafka says how to reach the service"
        raise BadArgument(message)
    if options.gateway is not None:
        from watchword.streams.agent.http_transport import HttpTransport  # noqa: PLC0415 - httpx

        return HttpTransport(options.gateway, ca_file=options.ca_file)
    from watchword.streams.agent.kafka_transport import KafkaTransport  # noqa: PLC0415 - aiokafka

    if settings.kafka.bootstrap_servers is None:
        raise ConfigRefused(["kafka.bootstrap_servers: not set; give KAFKA_BOOTSTRAP_SERVERS"])
    return KafkaTransport(settings.kafka.connection())
