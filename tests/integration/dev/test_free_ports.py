"""Free ports."""

import socket

from watchword.streams.dev.free_ports import LOOPBACK, free_ports, is_free


def test_ports_are_different_free_and_below_the_ephemeral_range() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert max(ports) < 32_768
    assert all(is_free(port) for port in ports)


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    (port,) = free_ports(1)
    with socket.create_server((LOOPBACK, port)):
        assert not is_free(port)
    assert is_free(port)
