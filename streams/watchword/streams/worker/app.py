"""The faust app: an agent on a channel in memory, and our services around it.

faust's own Kafka client is off, because it loses records (docs/decisions/worker-source.md). What is left of faust
is the application: agents, services that start and stop in order, sensors, and crashes that end
the process. There are no tables, no topics of its own, no web server, no folder and no producer.
"""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Protocol, cast

import mode
from mode import Service

from watchword.handlers.errors import WatchwordError
from watchword.streams.worker.backlog import Deliveries
from watchword.streams.worker.records import WrongVersion
from watchword.streams.worker.services import WorkerService

PINNED = {"faust-streaming": "0.15.3", "mode-streaming": "0.7.1"}
"""What this module was written for and measured with."""


@contextmanager
def _unseen_arguments() -> Generator[None]:
    """Hide our command line and environment from faust.

    Importing it looks for `--datadir`, `--loop` and others in `sys.argv` and acts on them.
    """
    arguments, variables = sys.argv, dict(os.environ)
    sys.argv = arguments[:1]
    for name in variables:
        if name.startswith(("F_", "FAUST_")):
            del os.environ[name]
    try:
        yield
    finally:
        sys.argv = arguments
        os.environ.clear()
        os.environ.update(variables)


with _unseen_arguments():
    import faust
    from faust.app.base import BootStrategy
    from faust.types import ConsumerT


class _NoKafka(BootStrategy):
    """Starts neither faust's consumer nor its producer."""

    enable_kafka = False
    enable_web = False


class _Worker(faust.App):
    """An app without a data folder."""

    BootStrategy = _NoKafka

    def _create_directories(self) -> None:
        """Make none: a worker runs on a read-only file system."""

    def _new_consumer(self) -> ConsumerT:
        """Return a consumer that streams may ask for what is unacknowledged there: nothing, ever.

        It would run in a thread, which is not started here; its event loop is there already.
        """
        made = super()._new_consumer()
        vars(made)["_thread"].thread_loop.close()
        return made


class _Channel(Protocol):
    """What we use of faust's channel; it takes any object."""

    @property
    def subscriber_count(self) -> int: ...

    async def put(self, value: Deliveries) -> None: ...


class _Faust(Protocol):
    """What we use of faust's app, whose own types miss what it does."""

    def channel(self, *, maxsize: int) -> _Channel: ...

    def agent(
        self, channel: _Channel, *, name: str
    ) -> Callable[[Callable[[AsyncIterator[Deliveries]], Awaitable[None]]], object]: ...

    def service(self, service: Service) -> object: ...


class WorkerApp:
    """The app, and the way into it."""

    def __init__(
        self, app: faust.App, receive: Callable[[Deliveries], None], capacity: int
    ) -> None:
        """Give the app its agent."""
        self.service: Service = app
        """Starts and stops everything."""
        self._app = cast("_Faust", app)
        self._channel = self._app.channel(maxsize=capacity)

        async def judge(fetched: AsyncIterator[Deliveries]) -> None:
            async for deliveries in fetched:
                receive(deliveries)

        self._app.agent(self._channel, name="judge")(judge)

    def add(self, *services: Service) -> None:
        """Start these after the agent, one after the other, and stop them in reverse order."""
        for service in services:
            self._app.service(service)

    async def emit(self, deliveries: Deliveries) -> None:
        """Put records into the agent's channel, as one event of faust's; wait while that is full.

        Raises:
            NoAgent: nobody reads the channel, and faust would drop the record.
        """
        if not self._channel.subscriber_count:
            raise NoAgent
        await self._channel.put(deliveries)


class NoAgent(WatchwordError):
    """The agent does not read its channel."""


class _Flow(WorkerService):
    """Lets the channel flow, which faust's own consumer does otherwise; else the agent never runs."""

    def __init__(self, app: faust.App) -> None:
        super().__init__()
        self._app = app

    async def on_start(self) -> None:
        self._app.flow_control.resume()


def build_app(name: str, receive: Callable[[Deliveries], None], capacity: int) -> WorkerApp:
    """Return the app, not started.

    Args:
        name: The app's id, which is seen in faust's logs alone.
        receive: What the agent does with records; it must not raise.
        capacity: How many events the channel holds, each with what one fetch brought of a partition.

    Raises:
        WrongVersion: faust or mode is not the one that is pinned.
    """
    for package, pinned in PINNED.items():
        if version(package) != pinned:
            message = f"{package} {version(package)} is installed; the worker is for {pinned}"
            raise WrongVersion(message)
    app = _Worker(
        name,
        # Never connected to, but there is no app without one.
        broker="kafka://127.0.0.1:1",
        agent_supervisor=mode.CrashingSupervisor,
        autodiscover=False,
        stream_wait_empty=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        worker_redirect_stdouts=False,
    )
    made = WorkerApp(app, receive, capacity)
    made.add(_Flow(app))
    return made
