"""Puts a console together: it needs PostgreSQL, perhaps asks Kafka how far workers are behind, and has no key of the deployment."""

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import structlog

from watchword.handlers.errors import ConfigRefused
from watchword.handlers.kinds import registry
from watchword.handlers.operators.refusals import Reasons
from watchword.streams.console.expiries import expiries
from watchword.streams.console.lag import Lag, LagReader, not_configured
from watchword.streams.console.office import Office
from watchword.streams.console.oidc import OpenIdProvider, Rule
from watchword.streams.console.options import ConsoleOptions, TlsFiles
from watchword.streams.console.pages.sign_in import CALLBACK
from watchword.streams.console.process import run_console
from watchword.streams.console.webhook import Webhook
from watchword.streams.health import Health
from watchword.streams.settings import Settings
from watchword.streams.wiring.attestors import installed_attestors
from watchword.streams.wiring.connections import database_url, open_database
from watchword.streams.wiring.database_watch import watching
from watchword.streams.wiring.found_attestors import found_attestors

_log = structlog.get_logger(__name__)

_KEY_BYTES = 32
_CA_CERTIFICATES = "ca.cert.pem"
"""The public part of the node CA. What stands beside it is not looked at."""


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigRefused: the settings cannot be used.
        OSError: an address is taken.
    """
    url = database_url(settings)
    health = Health()
    attestors = [found.row() for found in found_attestors(settings)]
    async with open_database(settings, "console") as database, _lag(settings) as lag:
        office = Office(
            database=database,
            cluster=settings.deployment.cluster,
            reasons=Reasons(installed_attestors(settings)),
            attestors=lambda: attestors,
            expiries=partial(expiries, _anchor_files(settings)),
            lag=lag,
            kinds=registry(settings.deployment.kinds),
        )
        options = console_options(settings, office)
        async with watching(database, url) as watch:
            health.add_check("postgresql", watch.problem)
            await run_console(options, health)


@asynccontextmanager
async def _lag(settings: Settings) -> AsyncGenerator[Callable[[], Awaitable[Lag]]]:
    """Give what tells how far the workers are behind; that nobody can tell, where no Kafka is named."""
    if settings.kafka.bootstrap_servers is None:
        yield not_configured
        return
    reader = LagReader(settings.kafka.connection(), settings.worker.group_id)
    try:
        yield reader.read
    finally:
        await reader.stop()


def console_options(settings: Settings, office: Office) -> ConsoleOptions:
    """Return what the console's process is told; raises `ConfigRefused`."""
    console = settings.console
    tls = None
    if console.tls_certificate_file is not None and console.tls_key_file is not None:
        tls = TlsFiles(console.tls_certificate_file, console.tls_key_file, console.client_ca_file)
    if console.host not in {"127.0.0.1", "::1", "localhost"} and console.public_url is None:
        raise ConfigRefused(
            ["console.public_url: required where others can reach the console (console.host)"]
        )
    if console.session_key_file is None:
        _log.warning("no console.session_key_file: sessions end with this process")
        session_key = secrets.token_bytes(_KEY_BYTES)
    else:
        session_key = _key(console.session_key_file, "console.session_key_file")
    webhook = None
    if console.webhook_url is not None and console.webhook_key_file is not None:
        webhook = Webhook(
            url=console.webhook_url,
            key=_key(console.webhook_key_file, "console.webhook_key_file"),
            rest_s=console.webhook_rest_s,
            public_url=console.public_url or "",
        )
    return ConsoleOptions(
        office=office,
        session_key=session_key,
        host=console.host,
        port=console.port,
        public_url=console.public_url,
        tls=tls,
        session_life=timedelta(hours=console.session_hours),
        oidc=_provider(settings),
        webhook=webhook,
        health_host=settings.health.host,
        health_port=console.health_port,
    )


def _provider(settings: Settings) -> Callable[[str], OpenIdProvider | None]:
    console = settings.console
    issuer, client, file = (
        console.oidc_issuer,
        console.oidc_client_id,
        console.oidc_client_secret_file,
    )
    if issuer is None or client is None or file is None:
        return lambda _: None
    secret = _read(file, "console.oidc_client_secret_file").decode(errors="replace").strip()
    rules = tuple(Rule(one.claim, one.value, one.scope, one.role) for one in console.oidc_rules)

    def made(url: str) -> OpenIdProvider:
        return OpenIdProvider(
            issuer=issuer,
            client_id=client,
            client_secret=secret,
            redirect_uri=f"{url}{CALLBACK}",
            name_claim=console.oidc_name_claim,
            rules=rules,
        )

    return made


def _anchor_files(settings: Settings) -> list[Path]:
    """Return where CAs and anchors are, as far as the configuration says."""
    attestors = settings.attestors
    found = [settings.keys.directory / _CA_CERTIFICATES]
    if attestors.x509pop is not None:
        found += [rule.authorities_file for rule in attestors.x509pop.rules]
    if attestors.tpm is not None and attestors.tpm.anchors_folder is not None:
        found.append(attestors.tpm.anchors_folder)
    if attestors.cloud_iid is not None and attestors.cloud_iid.anchors_folder is not None:
        found.append(attestors.cloud_iid.anchors_folder)
    return found


def _key(file: Path, name: str) -> bytes:
    key = _read(file, name)
    if len(key) < _KEY_BYTES:
        raise ConfigRefused([f"{name}: at least {_KEY_BYTES} bytes"])
    return key


def _read(file: Path, name: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigRefused([f"{name}: {error.strerror}: {file}"]) from None
