"""The processes: `watchword worker|signer|keeper|gateway|console`. Each runs until SIGTERM or Ctrl-C."""

import os

from watchword.streams import failpoints
from watchword.streams.cli.options import CONFIGURED, Configured


def worker(*, options: Configured = CONFIGURED) -> int:
    """Judge join requests from `join.requests`, until SIGTERM or Ctrl-C; then drain."""
    from watchword.streams.wiring.worker import run as body  # noqa: PLC0415 - only what this needs

    settings = options.settings("worker")
    failpoints.load(os.environ)
    return body(settings)


async def signer(*, options: Configured = CONFIGURED) -> None:
    """Hold the CA key and sign node certificates for workers on a Unix socket."""
    from watchword.streams.wiring.signer import run as body  # noqa: PLC0415 - as above

    await body(options.settings("signer"))


async def keeper(*, options: Configured = CONFIGURED) -> None:
    """Summarise suppressed refusals, prune what has expired, make partitions ahead."""
    from watchword.streams.wiring.keeper import run as body  # noqa: PLC0415 - as above

    await body(options.settings("keeper"))


async def gateway(*, options: Configured = CONFIGURED) -> None:
    """Take join requests over HTTP and hand back their answers; it has no key and no database."""
    from watchword.streams.wiring.gateway import run as body  # noqa: PLC0415 - as above

    await body(options.settings("gateway"))


async def console(*, options: Configured = CONFIGURED) -> None:
    """Serve operators: `/api/v1` for programs, and pages for people; it has no key of the deployment."""
    from watchword.streams.wiring.console import run as body  # noqa: PLC0415 - as above

    await body(options.settings("console"))
