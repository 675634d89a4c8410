"""The guards around the tests themselves."""

import asyncio
import socket

import pytest

from tests.support.skips import ALLOWED, AllowedSkip, read_allowed


def test_a_unit_test_cannot_open_a_socket() -> None:
    with pytest.raises(RuntimeError, match="tests/integration"):
        socket.create_connection(("127.0.0.1", 9))
    with pytest.raises(RuntimeError, match="tests/integration"):
        socket.socket()


async def test_the_event_loop_works_without_a_network() -> None:
    assert await asyncio.to_thread(lambda: 1) == 1


def test_the_list_of_allowed_skips_can_be_read() -> None:
    read_allowed(ALLOWED.read_text())


def test_an_allowed_skip_names_the_test_and_the_reason() -> None:
    (allowed,) = read_allowed("# why\n\ntests/a.py::* | no TPM\n")
    assert allowed == AllowedSkip("tests/a.py::*", "no TPM")
    assert allowed.covers("tests/a.py::test_x", "Skipped: no TPM here")
    assert not allowed.covers("tests/b.py::test_x", "Skipped: no TPM here")
    assert not allowed.covers("tests/a.py::test_x", "Skipped: no network")


@pytest.mark.parametrize("line", ["tests/a.py::test_x", "tests/a.py::test_x |", "| reason"])
def test_a_line_without_a_reason_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not"):
        read_allowed(line)
