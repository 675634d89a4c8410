"""Whom the agent believes after the pin: newer documents, new keys, new authorities."""

from pathlib import Path

import pytest
from cryptography import x509

from tests.support.agents import Machine, Service, Time, Wire, bootstrapped, keeper
from tests.support.crypto import NOW, TRUST_DOMAIN
from watchword.handlers.crypto.ca_certificates import create_ca
from watchword.streams.agent.errors import StateUnusable
from watchword.streams.agent.identity import with_authorities
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.trust import load_trust


async def test_newer_set_is_taken_and_kept(tmp_path: Path) -> None:
    """Keys are rotated while machines are away."""
    service, time = Service(), Time()
    bootstrapped(tmp_path, service)
    trust = keeper(tmp_path, Wire(service), time)
    service.version = 7
    await trust.refresh()

    assert trust.current.key_set.version == 7
    assert load_trust(Keystore(tmp_path), time.clock).key_set.version == 7


@pytest.mark.parametrize("older", ["key set", "trust bundle"])
async def test_older_document_is_never_taken_again(tmp_path: Path, older: str) -> None:
    """A relay may play back what it once recorded."""
    service, time = Service(), Time()
    service.version = 6
    recorded = service.key_set(), service.trust_bundle()
    service.version = 7
    bootstrapped(tmp_path, service)

    class Relay(Wire):
        async def key_set(self) -> bytes:
            return recorded[0] if older == "key set" else service.key_set()

        async def trust_bundle(self) -> bytes:
            return recorded[1] if older == "trust bundle" else service.trust_bundle()

    trust = keeper(tmp_path, Relay(service), time)
    service.version = 8
    await trust.refresh()

    assert trust.current.key_set.version == 7
    stored = load_trust(Keystore(tmp_path), time.clock)
    assert stored.bundle is not None
    assert (stored.key_set.version, stored.bundle.version) == (7, 7)


async def test_forged_set_changes_nothing(tmp_path: Path) -> None:
    """A gateway can serve anything; the agent goes on with what it has."""
    service, time = Service(), Time()
    bootstrapped(tmp_path, service)
    stranger = Service()
    stranger.version = 9
    trust = keeper(tmp_path, Wire(stranger), time)
    await trust.refresh()

    assert trust.current.key_set.version == 1


async def test_signing_key_that_changed_twice_while_the_machine_was_away_is_taken(
    tmp_path: Path,
) -> None:
    """A machine in a store room must not need a person when it is switched on."""
    service, time = Service(), Time()
    bootstrapped(tmp_path, service)
    pin = service.pin
    service.hand_over("s-2")
    service.hand_over("s-3")
    trust = keeper(tmp_path, Wire(service), time)
    await trust.refresh()

    assert trust.current.key_set.signing.kid == "s-3"
    assert trust.current.pin == pin
    assert load_trust(Keystore(tmp_path), time.clock) == trust.current


async def test_joins_go_on_over_a_change_of_the_signing_key(tmp_path: Path) -> None:
    """An answer of the new key may come before the key set that names it."""
    machine = Machine(tmp_path)

    def changes(request: bytes) -> bytes:
        machine.service.hand_over("s-2")
        return machine.service.joined(request)

    # The first answers are of a key that nobody has told it of; what it fetches then says so.
    later = [machine.service.joined] * 12
    result = await machine.join(changes, *later)

    assert result.identity.node.node_id


@pytest.mark.parametrize("why", ["forged", "skipped"])
async def test_signing_key_that_nobody_vouches_for_changes_nothing(
    tmp_path: Path, why: str
) -> None:
    """Whoever can write to the topic, or runs a gateway, must not become the service."""
    service, time = Service(), Time()
    keystore = bootstrapped(tmp_path, service)
    before = keystore.read("key-set.jws"), keystore.read("trust-bundle.jws")
    if why == "forged":
        stranger = Service()
        stranger.hand_over("s-2")
        service.jws, service.handovers = stranger.jws, stranger.handovers
        service.version = 9
    else:
        service.hand_over("s-2")
        service.hand_over("s-3")
        del service.handovers[0]
    trust = keeper(tmp_path, Wire(service), time)
    await trust.refresh()

    assert trust.current.key_set.version == 1
    assert (keystore.read("key-set.jws"), keystore.read("trust-bundle.jws")) == before


async def test_power_cut_between_bundle_and_key_set_leaves_a_trust(tmp_path: Path) -> None:
    """They are two files; whatever of the two is on the disk has to hold."""
    service, time = Service(), Time()
    keystore = bootstrapped(tmp_path, service)
    service.hand_over("s-2")
    keystore.write("trust-bundle.jws", service.trust_bundle())

    assert load_trust(keystore, time.clock).key_set.signing.kid == "s-1"
    trust = keeper(tmp_path, Wire(service), time)
    await trust.refresh()
    assert trust.current.key_set.signing.kid == "s-2"


async def test_trust_is_fetched_once_in_five_minutes(tmp_path: Path) -> None:
    """A thousand rounds are not a thousand fetches."""
    service, time = Service(), Time()
    bootstrapped(tmp_path, service)
    trust = keeper(tmp_path, Wire(service), time)
    await trust.fresh()
    service.version = 2
    await trust.fresh()
    assert trust.current.key_set.version == 1
    time.pass_by(301)
    await trust.fresh()
    assert trust.current.key_set.version == 2


@pytest.mark.parametrize("name", ["pin", "key-set.jws", "trust-bundle.jws"])
async def test_damaged_trust_is_no_trust(tmp_path: Path, name: str) -> None:
    """A file that somebody changed must not be believed for being on our own disk."""
    bootstrapped(tmp_path, Service())
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[:-2] + b"00")

    with pytest.raises(StateUnusable):
        load_trust(Keystore(tmp_path), Time().clock)


async def test_new_authorities_come_with_the_same_key_and_certificate(tmp_path: Path) -> None:
    """Peers with certificates of a new CA must be known before the old one ends."""
    machine = Machine(tmp_path)
    before = (await machine.join(machine.service.joined)).identity
    _, second = create_ca(TRUST_DOMAIN, now=NOW)
    first = x509.load_pem_x509_certificate((before.folder / "bundle.pem").read_bytes())

    assert with_authorities(tmp_path, before, [first]) is None
    after = with_authorities(tmp_path, before, [first, second])

    assert after is not None
    assert after == machine.keystore.identity()
    assert after.key.read_bytes() == before.key.read_bytes()
    assert len(x509.load_pem_x509_certificates((after.folder / "bundle.pem").read_bytes())) == 2


async def test_only_the_last_two_sets_are_kept(tmp_path: Path) -> None:
    """Whoever reads the one before can finish; older keys do not pile up."""
    machine = Machine(tmp_path)
    identity = (await machine.join(machine.service.joined)).identity
    authorities = [create_ca(TRUST_DOMAIN, now=NOW)[1] for _ in range(4)]
    for count in range(1, 5):
        changed = with_authorities(tmp_path, identity, authorities[:count])
        assert changed is not None
        identity = changed

    assert sorted(p.name for p in (tmp_path / "identity").iterdir()) == ["000004", "000005"]
