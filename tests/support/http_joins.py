"""A machine that joins over HTTP, without patience."""

from tests.support.agents import Machine
from watchword.schemas.requests import Claims
from watchword.streams.agent.backoff import Pace
from watchword.streams.agent.http_transport import HttpTransport
from watchword.streams.agent.join import JoinOptions, JoinResult, join

QUICK = Pace(first_s=0.01, cap_s=0.05, resend_after_s=0.4, poll_s=0.2)


async def joins(
    machine: Machine, url: str, *, options: JoinOptions | None = None, pace: Pace = QUICK
) -> JoinResult:
    """Join, or go on, with whoever answers at this URL."""
    transport = HttpTransport(url, pace=pace)
    try:
        return await join(
            machine.state,
            transport,
            machine.prover,
            options or JoinOptions(claims=Claims, give_up_after_s=20),
            report=machine.progress.append,
            pace=pace,
        )
    finally:
        await transport.close()
