"""mode's services, with the types that they lack."""

from collections.abc import Coroutine

from mode import Service


class WorkerService(Service):
    """A part of the worker that is started and stopped with the app; a crash of it ends the app."""

    def __init__(self) -> None:
        """Take the event loop that runs."""
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - mode names a bare generic

    def run_beside(self, work: Coroutine[object, object, None]) -> None:
        """Run a coroutine until the service stops; what it raises crashes the service."""
        self.add_future(work)  # pyright: ignore[reportUnknownMemberType] - the same


async def until_ended(service: Service) -> None:
    """Return when the service has stopped or crashed."""
    await service.wait()  # pyright: ignore[reportUnknownMemberType] - the same
