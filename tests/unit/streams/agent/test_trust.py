"""Whom the agent believes, from the pin on."""

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tests.support.agents import Machine, Service, Time, Wire, bootstrapped
from tests.support.crypto import NOW, TRUST_DOMAIN
from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.ca_certificates import create_ca
from watchword.handlers.crypto.camanifest import ca_kid
from watchword.handlers.crypto.keysets import sign_trust_bundle
from watchword.handlers.errors import BadArgument
from watchword.streams.agent.bootstrap import bootstrap, parse_pin
from watchword.streams.agent.errors import NotBootstrapped, PinMismatch, StateUnusable
from watchword.streams.agent.identity import with_authorities
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.revocations import refresh_crl, refresh_crls
from watchword.streams.agent.trust import TrustKeeper, load_trust


def keeper(state: Path, wire: Wire, time: Time) -> TrustKeeper:
    wire.clock = time.clock
    return TrustKeeper(Keystore(state), wire, pace=time.pace)


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


async def test_bootstrap_with_the_first_pin_follows_to_the_key_of_now(tmp_path: Path) -> None:
    """The pin stands in images that nobody makes anew for a change of keys."""
    service = Service()
    pin = service.pin
    service.hand_over("s-2")

    trust = await bootstrap(tmp_path, Wire(service), pin=pin)

    assert trust.key_set.signing.kid == "s-2"
    assert load_trust(Keystore(tmp_path), Time().clock) == trust


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


def crl_of(issuer: x509.Certificate, key: ec.EllipticCurvePrivateKey, days: int) -> bytes:
    builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
    at = NOW + timedelta(days=days)
    crl = builder.last_update(at).next_update(at + timedelta(days=1)).sign(key, SHA256())
    return crl.public_bytes(Encoding.DER)


async def test_crl_is_kept_if_an_authority_signed_it_and_it_is_newer(tmp_path: Path) -> None:
    """Local services check their peers with it; a forged or old one would let revoked ones in."""
    service = Service()
    key, certificate = create_ca(TRUST_DOMAIN, now=NOW)
    service.authority = Authority(key, [certificate], trust_domain=TRUST_DOMAIN)
    keystore = bootstrapped(tmp_path, service)
    trust = load_trust(keystore, Time().clock)
    wire = Wire(service)
    stranger = ec.generate_private_key(ec.SECP256R1())
    stored: list[bool] = []
    for offered in (
        None,
        b"junk",
        crl_of(certificate, stranger, 1),
        crl_of(certificate, key, 2),
        crl_of(certificate, key, 1),
        crl_of(certificate, key, 3),
    ):
        wire.certificate_revocations = offered
        stored.append(await refresh_crl(trust, keystore, wire))
    wire.is_away = True
    stored.append(await refresh_crl(trust, keystore, wire))

    assert stored == [False, False, False, True, False, True, False]


class _BelowRoot(Service):
    """Its CA was certified by another one, and agents are told of that one alone."""

    def __init__(self) -> None:
        super().__init__()
        self.root_key = ec.generate_private_key(ec.SECP256R1())
        self.root = self._ca("the root", self.root_key.public_key(), "the root")
        self.ca_key = ec.generate_private_key(ec.SECP256R1())
        self.ca = self._ca("a CA below", self.ca_key.public_key(), "the root")
        self.authority = Authority(self.ca_key, [self.ca, self.root], trust_domain=TRUST_DOMAIN)

    def _ca(self, subject: str, key: ec.EllipticCurvePublicKey, issuer: str) -> x509.Certificate:
        def name(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        builder = (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(name(issuer))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - timedelta(days=1))
            .not_valid_after(NOW + timedelta(days=900))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=False,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    key_cert_sign=True,
                    crl_sign=True,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.root_key.public_key()),
                critical=False,
            )
        )
        return builder.sign(self.root_key, SHA256())

    def trust_bundle(self) -> bytes:
        root = self.root.public_bytes(Encoding.DER)
        return sign_trust_bundle(
            self.jws,
            version=self.version,
            issued_at=self.now,
            trust_domain=TRUST_DOMAIN,
            authorities=[root],
        )


async def test_crl_of_the_ca_below_an_authority_counts_once_the_machine_knows_that_ca(
    tmp_path: Path,
) -> None:
    """Whoever keeps the root in a safe issues, and revokes, with a CA below it."""
    machine = Machine(tmp_path / "state", service=_BelowRoot())
    service = machine.service
    assert isinstance(service, _BelowRoot)
    trust = load_trust(machine.keystore, machine.time.clock)
    machine.wire.certificate_revocations = crl_of(service.ca, service.ca_key, 1)
    assert not await refresh_crl(trust, machine.keystore, machine.wire)

    await machine.join(service.joined)
    assert await refresh_crl(trust, machine.keystore, machine.wire)
    machine.wire.certificate_revocations = crl_of(service.ca, service.root_key, 2)
    assert not await refresh_crl(trust, machine.keystore, machine.wire)


async def test_each_ca_has_a_crl_of_its_own_while_there_are_two(tmp_path: Path) -> None:
    """A peer with a certificate of the CA before is checked against that CA's list."""
    service = Service()
    cas = [create_ca(TRUST_DOMAIN, now=NOW, is_distinct=True) for _ in range(2)]
    one, two = (ca_kid(certificate) for _, certificate in cas)
    service.authority = Authority(cas[0][0], [cas[0][1]], trust_domain=TRUST_DOMAIN)
    service.more_authorities = (cas[1][1].public_bytes(Encoding.DER),)
    keystore = bootstrapped(tmp_path, service)
    wire = Wire(service)
    of_one, of_two = (crl_of(certificate, key, 1) for key, certificate in cas)
    wire.crls = {one: of_one, two: of_one}
    await refresh_crls(load_trust(keystore, Time().clock), keystore, wire)
    assert (keystore.crl_of(one), keystore.crl_of(two)) == (of_one, None)
    wire.crls = {one: of_one, two: of_two}
    await refresh_crls(load_trust(keystore, Time().clock), keystore, wire)
    assert keystore.crl_of(two) == of_two

    service.more_authorities = ()
    service.version = 2
    trust = keeper(tmp_path, wire, Time())
    await trust.refresh()
    await refresh_crls(trust.current, keystore, wire)
    assert keystore.crl_of(two) is None


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
