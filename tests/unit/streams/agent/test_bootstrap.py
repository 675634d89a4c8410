"""The first thing an agent is told: the pin, and the keys that fit it."""

from pathlib import Path

import pytest

from tests.support.agents import Service, Time, Wire
from tests.support.crypto import TRUST_DOMAIN
from watchword.handlers.errors import BadArgument
from watchword.streams.agent.bootstrap import bootstrap, parse_pin
from watchword.streams.agent.errors import NotBootstrapped, PinMismatch
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.trust import load_trust


async def test_bootstrap_takes_the_pinned_keys_and_remembers_them(tmp_path: Path) -> None:
    """Everything else that the agent ever believes hangs on this."""
    service = Service()
    trust = await bootstrap(tmp_path, Wire(service), pin=f"  {service.pin.upper()}\n")

    assert trust == load_trust(Keystore(tmp_path), Time().clock)
    assert trust.pin == service.pin
    assert trust.key_set.trust_domain == TRUST_DOMAIN
    assert len(trust.authorities) == 1


async def test_bootstrap_takes_no_other_keys(tmp_path: Path) -> None:
    """Whoever answers at that address is not thereby the service."""
    with pytest.raises(PinMismatch):
        await bootstrap(tmp_path, Wire(Service()), pin=Service().pin)

    with pytest.raises(NotBootstrapped):
        load_trust(Keystore(tmp_path), Time().clock)


async def test_bootstrap_takes_no_bundle_of_somebody_else(tmp_path: Path) -> None:
    """A key set and a bundle that come together need not be of one hand."""
    service, stranger = Service(), Service()

    class Mixed(Wire):
        async def trust_bundle(self) -> bytes:
            return stranger.trust_bundle()

    with pytest.raises(PinMismatch):
        await bootstrap(tmp_path, Mixed(service), pin=service.pin)

    with pytest.raises(NotBootstrapped):
        load_trust(Keystore(tmp_path), Time().clock)


async def test_pinned_directory_is_not_pinned_again(tmp_path: Path) -> None:
    """A second bootstrap must not be a way to change whom a machine believes."""
    service, stranger = Service(), Service()
    await bootstrap(tmp_path, Wire(service), pin=service.pin)
    await bootstrap(tmp_path, Wire(service), pin=service.pin)

    with pytest.raises(PinMismatch, match="pinned to another key"):
        await bootstrap(tmp_path, Wire(stranger), pin=stranger.pin)


async def test_bootstrap_does_not_go_back_to_an_older_set(tmp_path: Path) -> None:
    """The private keys of an old set may be known by now."""
    service = Service()
    service.version = 2
    await bootstrap(tmp_path, Wire(service), pin=service.pin)
    service.version = 1

    with pytest.raises(PinMismatch, match="older"):
        await bootstrap(tmp_path, Wire(service), pin=service.pin)


@pytest.mark.parametrize("pin", ["", "sha256:", "sha256:" + "g" * 64, "md5:" + "0" * 64, "0" * 64])
def test_pin_that_is_none_is_said_so(pin: str) -> None:
    """A shortened pin would be easy to find a key for."""
    with pytest.raises(BadArgument):
        parse_pin(pin)


async def test_bootstrap_with_the_first_pin_follows_to_the_key_of_now(tmp_path: Path) -> None:
    """The pin stands in images that nobody makes anew for a change of keys."""
    service = Service()
    pin = service.pin
    service.hand_over("s-2")

    trust = await bootstrap(tmp_path, Wire(service), pin=pin)

    assert trust.key_set.signing.kid == "s-2"
    assert load_trust(Keystore(tmp_path), Time().clock) == trust
