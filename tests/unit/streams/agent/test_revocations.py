"""Which lists of revoked certificates a machine keeps for the services beside its agent."""

from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tests.support.agents import Machine, Service, Time, Wire, bootstrapped, keeper
from tests.support.crypto import NOW, TRUST_DOMAIN
from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.ca_certificates import create_ca
from watchword.handlers.crypto.camanifest import ca_kid
from watchword.handlers.crypto.keysets import sign_trust_bundle
from watchword.streams.agent.revocations import refresh_crl, refresh_crls
from watchword.streams.agent.trust import load_trust


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
