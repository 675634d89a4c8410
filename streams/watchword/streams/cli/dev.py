"""`watchword dev`: everything on this machine."""

import logging
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from watchword.streams import logs


async def dev(
    *,
    data: Annotated[
        Path, Parameter(help="Where everything is kept; a second run meets it again.")
    ] = Path("data"),
    demo: Annotated[
        bool,
        Parameter(
            help="Without a person: a summary, everything stopped, exit 0 only if all was as expected.",
            negative="",
        ),
    ] = False,
    attestors: Annotated[
        Path | None,
        Parameter(
            help="A TOML file with [attestors] and nothing else: other attestors that the workers have."
        ),
    ] = None,
) -> int:
    """Start Kafka, PostgreSQL and every process, and let 25 machines join, some of which must not."""
    from watchword.streams.dev.orchestrate import DevOptions, run_dev  # noqa: PLC0415 - heavy

    logs.configure(log_format="console", level="ERROR", libraries=logging.CRITICAL)
    return await run_dev(DevOptions(data, demo, attestors))
