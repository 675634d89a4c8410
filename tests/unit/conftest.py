"""Unit tests talk to nobody."""

import socket

import pytest

_REAL_INIT = socket.socket.__init__


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every socket that could leave the machine; Unix pairs carry the event loop."""

    def refuse(
        self: socket.socket,
        family: int = -1,
        type: int = -1,  # noqa: A002 - the name is the standard library's
        proto: int = -1,
        fileno: int | None = None,
    ) -> None:
        if family != socket.AF_UNIX:
            message = "a unit test opened a socket; move it to tests/integration"
            raise RuntimeError(message)
        _REAL_INIT(self, family, type, proto, fileno)

    monkeypatch.setattr(socket.socket, "__init__", refuse)
