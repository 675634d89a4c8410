"""For authors of attestors: the real join service on a real PostgreSQL, machines that join, and a suite to pass.

Needs the extra `testkit`. In a `conftest.py`: `pytest_plugins = ["watchword.streams.dev.testkit"]` gives the
fixture `join_service`; override the fixture `attestors` with your own. Its PostgreSQL is the embedded one of the
extra `dev`, or the server that `WATCHWORD_TESTKIT_DATABASE_URL` names.
"""

from watchword.handlers.testkit.agent import JoinResult, Round, run_agent_join
from watchword.handlers.testkit.conformance import AttestorConformance
from watchword.handlers.testkit.machine import Machine
from watchword.handlers.testkit.service import (
    Event,
    Refusal,
    ServiceUnderTest,
    TestToken,
    service_on,
)

__all__ = [
    "AttestorConformance",
    "Event",
    "JoinResult",
    "Machine",
    "Refusal",
    "Round",
    "ServiceUnderTest",
    "TestToken",
    "run_agent_join",
    "service_on",
]
