"""Who is asking, when anybody may write `X-Forwarded-For`."""

import pytest

from watchword.handlers.errors import ConfigRefused
from watchword.streams.gateway.addresses import NOBODY, Proxies

PROXIES = Proxies(["10.0.0.0/8", "2001:db8:ff::/48"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        pytest.param("192.0.2.1", [], "192.0.2.1", id="direct"),
        pytest.param("192.0.2.1", ["198.51.100.9"], "192.0.2.1", id="a liar without a proxy"),
        pytest.param("10.0.0.1", ["198.51.100.9"], "198.51.100.9", id="behind a proxy"),
        pytest.param("10.0.0.1", ["203.0.113.5, 198.51.100.9"], "198.51.100.9", id="forged left"),
        pytest.param("10.0.0.1", ["203.0.113.5", "198.51.100.9"], "198.51.100.9", id="two headers"),
        pytest.param("10.0.0.1", ["198.51.100.9, 10.1.1.1"], "198.51.100.9", id="two proxies"),
        pytest.param("10.0.0.1", ["10.1.1.1"], "10.1.1.1", id="only proxies"),
        pytest.param("10.0.0.1", ["198.51.100.9, nonsense"], "10.0.0.1", id="not an address"),
        pytest.param("10.0.0.1", [""], "10.0.0.1", id="empty"),
        pytest.param("10.0.0.1", ["198.51.100.9:4711"], "198.51.100.9", id="with a port"),
        pytest.param("10.0.0.1", ["[2001:db8::5]:4711"], "2001:db8::/64", id="v6 with a port"),
        pytest.param("::ffff:10.0.0.1", ["198.51.100.9"], "198.51.100.9", id="mapped proxy"),
        pytest.param("::ffff:192.0.2.1", [], "192.0.2.1", id="mapped client"),
        pytest.param("fe80::1%eth0", [], "fe80::/64", id="link-local with its zone"),
        pytest.param("2001:db8:ff::1", ["192.0.2.7"], "192.0.2.7", id="v6 proxy"),
        pytest.param(None, ["192.0.2.7"], NOBODY, id="a Unix socket"),
    ],
)
def test_the_client_is_the_first_from_the_right_that_is_no_trusted_proxy(
    peer: str | None, forwarded: list[str], client: str
) -> None:
    """Otherwise anybody chooses whose limit is used up."""
    assert PROXIES.client(peer, forwarded) == client


def test_one_ipv6_network_of_a_host_is_one_client() -> None:
    """A host has 2**64 addresses of its own to send from."""
    first, second, other = "2001:db8:0:1::1", "2001:db8:0:1:ffff::2", "2001:db8:0:2::1"

    assert PROXIES.client(first, []) == PROXIES.client(second, [])
    assert PROXIES.client(first, []) != PROXIES.client(other, [])


def test_a_very_long_header_costs_no_more_than_a_few_entries() -> None:
    """What is read is chosen by whoever sends it."""
    forwarded = ["198.51.100.9, " + "10.1.1.1, " * 5000 + "10.2.2.2"]

    assert PROXIES.client("10.0.0.1", forwarded) == "10.1.1.1"


def test_all_bad_networks_are_named_at_once() -> None:
    """An operator fixes a file once."""
    with pytest.raises(ConfigRefused) as refused:
        Proxies(["10.0.0.0/8", "nonsense", "10.0.0.0/99"])

    assert len(refused.value.problems) == 2
