"""`watchword simulate`: a fleet that does not exist, at a steady rate, against a deployment that does."""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cyclopts import Parameter

from watchword.handlers.crypto.keysets import bootstrap_key_set, choose_encryption_key
from watchword.handlers.errors import BadArgument, Denied, SignatureBroken
from watchword.schemas.errors import SchemaError
from watchword.schemas.topics import KEY_SET_KEY
from watchword.streams.agent.bootstrap import parse_pin
from watchword.streams.agent.http_transport import HttpTransport
from watchword.streams.cli import exits
from watchword.streams.cli.acting import operating
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_rows
from watchword.streams.published_trust import read_published
from watchword.streams.settings import Settings
from watchword.streams.simulator import provers, software_tpm
from watchword.streams.simulator.attestor import ID, read_key
from watchword.streams.simulator.carriers import ByGateway, ByKafka, Carrier
from watchword.streams.simulator.machine import Service
from watchword.streams.simulator.operator import SimulatedOperator
from watchword.streams.simulator.options import (
    Kind,
    Simulation,
    check_share,
    parse_faults,
    parse_mix,
    parse_rate,
)
from watchword.streams.simulator.run import World
from watchword.streams.simulator.run import simulate as run_simulation
from watchword.streams.wiring.connections import kafka_connection

_NEEDS: dict[Kind, str] = {"discovery": "discovery", "restricted": ID, "tpm": "tpm"}
"""Attestors that workers have to have enabled."""

_COLUMNS = ("kind", "step", "count", "p50_ms", "p95_ms", "p99_ms", "max_ms", "outcomes")


async def simulate(  # noqa: PLR0913 - each is an option
    *,
    pin: Annotated[str, Parameter(help="sha256:… as `watchword keys pin` prints it.")],
    nodes: Annotated[int, Parameter(help="How many machines come.")] = 1000,
    rate: Annotated[
        str, Parameter(help="How many of them a second or minute: 200/s, 90/min.")
    ] = "50/s",
    mix: Annotated[
        str,
        Parameter(
            help="How they join, in percent: token, discovery, restricted (sim-restricted), tpm."
        ),
    ] = "token=100",
    faults: Annotated[
        str,
        Parameter(help="What is wrong with some, in percent: duplicate, forged, moved, vanish."),
    ] = "",
    renew: Annotated[float, Parameter(help="How many percent renew their certificate.")] = 20.0,
    leave: Annotated[
        float, Parameter(help="How many percent are retired, and ask in vain.")
    ] = 10.0,
    seed: Annotated[
        int, Parameter(help="Draws the same machines again; their keys are others.")
    ] = 0,
    gateway: Annotated[
        str | None, Parameter(help="The gateway's URL; else straight to Kafka.")
    ] = None,
    ca_file: Annotated[Path | None, Parameter(help="PEM of the CAs for its certificate.")] = None,
    restricted_key: Annotated[
        Path | None, Parameter(help="PEM of the key by which sim-restricted knows its machines.")
    ] = None,
    patience: Annotated[float, Parameter(help="Seconds to wait for an answer.")] = 120.0,
    options: Shown = SHOWN,
) -> int:
    """Let machines join, renew and leave, with real keys, each when it is due and not when there is time.

    They join the tenant `sim`, which is made with all that they need by the operator's functions: the settings
    have to name the database. A gateway counts requests by address, and all come from this one. Exit 1 if
    anything was not as it should be.
    """
    simulation = Simulation(
        nodes,
        parse_rate(rate),
        parse_mix(mix),
        parse_faults(faults),
        check_share(renew, "renew"),
        check_share(leave, "leave"),
        seed,
    )
    parse_pin(pin)
    async with operating(options) as (settings, database):
        _check(simulation, settings, restricted_key)
        operator = SimulatedOperator(database, settings.deployment.cluster)
        async with _carrier(gateway, ca_file, settings) as carrier:
            service = await _service(carrier, pin, patience)
            shows = await _shows(simulation, operator, restricted_key)
            report = await run_simulation(simulation, World(service, operator, shows), say)
    show_rows(report.rows(), _COLUMNS, options.form)
    for complaint in report.complaints():
        say(complaint)
    return exits.FAILED if report.mismatches else exits.OK


def _check(simulation: Simulation, settings: Settings, restricted_key: Path | None) -> None:
    """Raise `BadArgument` for a mix that this deployment cannot take."""
    if simulation.nodes < 1:
        message = "--nodes: at least 1"
        raise BadArgument(message)
    if "tpm" in simulation.mix and (lacking := software_tpm.missing()):
        message = f"no tpm in the mix: each machine gets a software TPM, and this computer lacks {lacking}"
        raise BadArgument(message)
    for kind, attestor in _NEEDS.items():
        if kind in simulation.mix and attestor not in settings.attestors.enabled:
            message = f"{kind} in the mix: workers need {attestor} in attestors.enabled, and a table [attestors.{attestor}]"
            raise BadArgument(message)
    if ("restricted" in simulation.mix) != (restricted_key is not None):
        message = "restricted in the mix and --restricted-key FILE belong together"
        raise BadArgument(message)


@asynccontextmanager
async def _carrier(
    gateway: str | None, ca_file: Path | None, settings: Settings
) -> AsyncGenerator[Carrier]:
    if gateway is not None:
        transport = HttpTransport(gateway, ca_file=ca_file)
        try:
            yield ByGateway(transport)
        finally:
            await transport.close()
        return
    kafka = kafka_connection(settings)
    published = await read_published(kafka)
    straight = ByKafka(kafka, published.get(KEY_SET_KEY, b""))
    async with straight.connected():
        yield straight


async def _service(carrier: Carrier, pin: str, patience_s: float) -> Service:
    try:
        key_set = bootstrap_key_set(await carrier.key_set(), parse_pin(pin))
    except (SignatureBroken, SchemaError):
        message = "the key set that is published is not of this pin"
        raise Denied(message) from None
    return Service(carrier, key_set, choose_encryption_key(key_set, datetime.now(UTC)), patience_s)


async def _shows(
    simulation: Simulation, operator: SimulatedOperator, restricted_key: Path | None
) -> provers.Showing:
    """Make what machines show, and have the service know it."""
    await operator.make_places()
    shows: dict[Kind, provers.Shows] = {}
    if "token" in simulation.mix:
        shows["token"] = provers.by_token(await operator.make_token(simulation.nodes))
    if "discovery" in simulation.mix:
        site = Ed25519PrivateKey.generate()
        await operator.trust_site(site)
        shows["discovery"] = provers.by_assertion(site)
    if "tpm" in simulation.mix:
        await operator.set_tpm_policy()
        shows["tpm"] = provers.by_tpm(operator.enrol_tpm)
    if restricted_key is not None:
        shows["restricted"] = provers.by_vendor(read_key(restricted_key), secrets.token_hex(4))
    return shows
