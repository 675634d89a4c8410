"""The whole verifier, every cloud's anchors and accounts in its favour, under evidence that is none.

No test in this folder can open a socket (`tests/unit/conftest.py`): whatever a certificate, a token or a
document says of addresses, nothing is fetched.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.x509.oid import AuthorityInformationAccessOID

from tests.support.cloud_desks import ACCOUNTS, Clouds, key_of
from tests.support.clouds import Certified, Cms, certify
from tests.support.contexts import Desk, Facts, run
from tests.support.metadata import Aws, Azure, Google
from watchword.handlers.anchors import CloudAccount
from watchword.handlers.attestor import Admission, Approval, Deferral, Evidence
from watchword.handlers.attestors.cloud_iid.binding import bound_audience
from watchword.handlers.attestors.cloud_iid.evidence import FORM, CloudEvidence
from watchword.handlers.attestors.cloud_iid.prover import Provider
from watchword.handlers.attestors.cloud_iid.verifier import CloudIidAttestor
from watchword.handlers.errors import Refused
from watchword.schemas.canonical import length_prefixed
from watchword.schemas.ids import TenantId, UnverifiedPayload
from watchword.schemas.requests import Claims

PROVIDERS: tuple[Provider, ...] = ("aws", "gcp", "azure")


class Counter:
    """A verifier and who is at its desk."""

    def __init__(self, clouds: Clouds, *, approval: bool = False) -> None:
        """Have operators name one account of each cloud."""
        self.clouds = clouds
        accounts: dict[tuple[str, str], CloudAccount] = {
            (provider, account): CloudAccount(
                provider=provider,
                account=account,
                tenant=TenantId("acme"),
                pool="web",
                site=None,
                role="node",
                regions=None,
                approval=approval,
                allowed_kinds=("diag.*",),
                revoked=False,
            )
            for provider, account in ACCOUNTS.items()
        }
        self.desk = Desk("cloud-iid", facts=Facts(accounts=accounts))
        self.attestor = CloudIidAttestor(clouds.anchors())
        self.aws, self.azure = Aws(clouds.aws), Azure(clouds.azure)
        self.google = Google(key_of("k1"))

    def evidence(self, provider: Provider) -> CloudEvidence:
        """Return what the instance's prover would show."""
        if provider == "aws":
            made = Cms(self.aws.document(), self.clouds.aws).make()
            return CloudEvidence("aws", "rsa2048", b"", made)
        if provider == "gcp":
            return CloudEvidence("gcp", "token", b"", self.token())
        return CloudEvidence("azure", "attested", b"", self.attested(self.azure.document(None)))

    def token(self) -> bytes:
        return self.google.token(bound_audience("watchword", self.desk.csr.sha256), "full")

    def attested(self, content: bytes, **changes: Any) -> bytes:  # noqa: ANN401 - fields of `Cms`
        given = {"attributes": False, "certificates": (self.clouds.azure.der,), **changes}
        return Cms(content, self.clouds.azure, **given).make()

    def result(self, evidence: CloudEvidence | bytes) -> Admission | Deferral:
        payload = evidence if isinstance(evidence, bytes) else evidence.encode()
        return run(
            self.attestor.verify(
                Evidence(UnverifiedPayload(payload), Claims()), self.desk.context()
            )
        )

    def reason(self, evidence: CloudEvidence | bytes) -> str:
        with pytest.raises(Refused) as caught:
            self.result(evidence)
        assert caught.value.attestor == "cloud-iid"
        return caught.value.reason


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Clouds:
    return Clouds.at(tmp_path_factory.mktemp("anchors"))


@pytest.fixture
def counter(clouds: Clouds) -> Counter:
    return Counter(clouds)


def hostile_aws(counter: Counter, **changes: Any) -> CloudEvidence:  # noqa: ANN401 - fields of `Cms`
    made = Cms(counter.aws.document(), counter.clouds.aws, **changes).make()
    return CloudEvidence("aws", "rsa2048", b"", made)


def hostile_azure(counter: Counter, **changes: Any) -> CloudEvidence:  # noqa: ANN401 - fields of `Cms`
    made = counter.attested(counter.azure.document(None), **changes)
    return CloudEvidence("azure", "attested", b"", made)


def hostile_token(counter: Counter, **header: object) -> CloudEvidence:
    """Return a token whose header says more or else, signed by the right key."""
    _, payload, _ = counter.token().split(b".")
    head = {"alg": "RS256", "kid": "k1", "typ": "JWT", **header}
    signed = urlsafe_b64encode(json.dumps(head).encode()).rstrip(b"=") + b"." + payload
    signature = key_of("k1").sign(signed, padding.PKCS1v15(), hashes.SHA256())
    encoded = urlsafe_b64encode(signature).rstrip(b"=")
    return CloudEvidence("gcp", "token", b"", signed + b"." + encoded)


def told(counter: Counter, provider: Provider, change: Callable[[bytes], bytes]) -> CloudEvidence:
    """Return a document that is changed before its cloud signs it."""
    if provider == "aws":
        made = Cms(change(counter.aws.document()), counter.clouds.aws).make()
        return CloudEvidence("aws", "rsa2048", b"", made)
    if provider == "azure":
        signed = counter.attested(change(counter.azure.document(None)))
        return CloudEvidence("azure", "attested", b"", signed)
    header, payload, _ = counter.token().split(b".")
    claims = change(urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
    signed = header + b"." + urlsafe_b64encode(claims).rstrip(b"=")
    signature = key_of("k1").sign(signed, padding.PKCS1v15(), hashes.SHA256())
    return CloudEvidence(
        "gcp", "token", b"", signed + b"." + urlsafe_b64encode(signature).rstrip(b"=")
    )


def attacker() -> Certified:
    """Return a signer with the right names, and no issuer of ours."""
    return certify(
        "signer", dns=("westeurope.metadata.azure.com",), key=key_of("attacker"), serial=7
    )


NESTED = b"\x30\x80" * 1000 + b"\x00\x00" * 1000

HOSTILE: dict[str, tuple[Callable[[Counter], CloudEvidence | bytes], str]] = {
    "CMS: two signers, AWS": (lambda c: hostile_aws(c, signers=2), "cms-signers"),
    "CMS: two signers, Azure": (lambda c: hostile_azure(c, signers=2), "cms-signers"),
    "CMS: the attacker's certificate first": (
        lambda c: CloudEvidence("azure", "attested", b"", Cms(
            c.azure.document(None), attacker(), attributes=False,
            certificates=(attacker().der, c.clouds.azure.der),
        ).make()),
        "chain",
    ),
    "CMS: detached, AWS": (lambda c: hostile_aws(c, detached=True), "cms-detached"),
    "CMS: detached, Azure": (lambda c: hostile_azure(c, detached=True), "cms-detached"),
    "CMS: no digest signed": (lambda c: hostile_aws(c, without="message_digest"), "cms-attributes"),
    "CMS: two digests signed": (lambda c: hostile_aws(c, twice="message_digest"), "cms-attributes"),
    "CMS: no type signed": (lambda c: hostile_azure(
        c, attributes=True, without="content_type"), "cms-attributes"),
    "CMS: two types signed": (lambda c: hostile_azure(
        c, attributes=True, twice="content_type"), "cms-attributes"),
    "CMS: no signed attributes, AWS": (lambda c: hostile_aws(c, attributes=False), "cms-attributes"),
    "CMS: 1,000 deep, AWS": (lambda _: CloudEvidence("aws", "rsa2048", b"", NESTED), "cms-malformed"),
    "CMS: 1,000 deep, Azure": (lambda _: CloudEvidence("azure", "attested", b"", NESTED), "cms-malformed"),
    "JWT: none": (lambda c: hostile_token(c, alg="none"), "token-header"),
    "JWT: HS256": (lambda c: hostile_token(c, alg="HS256"), "token-header"),
    "JWT: jwk": (lambda c: hostile_token(c, jwk={"kty": "RSA"}), "token-header"),
    "JWT: jku": (lambda c: hostile_token(c, jku="https://evil.example/keys"), "token-header"),
    "JWT: x5u": (lambda c: hostile_token(c, x5u="https://evil.example/chain"), "token-header"),
    "JWT: crit": (lambda c: hostile_token(c, crit=["exp"]), "token-header"),
    "JWT: a key of nobody's": (lambda c: hostile_token(c, kid="k2"), "token-key"),
    "a member twice, AWS": (lambda c: told(
        c, "aws", lambda d: d.replace(b"{", b'{"instanceId": "i-11111111",', 1)), "document"),
    "a member twice, Google": (lambda c: told(
        c, "gcp", lambda d: d.replace(b"{", b'{"iss": "x",', 1)), "token"),
    "a member twice, Azure": (lambda c: told(
        c, "azure", lambda d: d.replace(b"{", b'{"vmId": "x",', 1)), "document"),
    "UTF-16, AWS": (lambda c: told(c, "aws", lambda d: d.decode().encode("utf-16")), "document"),
    "UTF-16, Google": (lambda c: told(c, "gcp", lambda d: d.decode().encode("utf-16")), "token"),
    "UTF-16, Azure": (lambda c: told(c, "azure", lambda d: d.decode().encode("utf-16")), "document"),
    "another copy beside the signed one": (
        lambda c: CloudEvidence(
            "aws", "rsa2048", c.aws.document().replace(b"eu-west-1", b"us-east-1"),
            c.evidence("aws").signature,
        ),
        "unsigned-copy",
    ),
    "a region with dots": (lambda c: told(
        c, "aws", lambda d: d.replace(b"eu-west-1", b"eu.west.1")), "document"),
    "a region with a NUL": (lambda c: told(
        c, "aws", lambda d: d.replace(b"eu-west-1", b"eu-west-1\\u0000")), "document"),
    "a zone with dots": (lambda c: told(
        c, "gcp", lambda d: d.replace(b"europe-west10-b", b"europe.west10-b")), "document"),
    "a zone with a NUL": (lambda c: told(
        c, "gcp", lambda d: d.replace(b"europe-west10-b", b"europe-west10-b\\u0000")), "document"),
    "two clouds: Azure's CMS as AWS's": (
        lambda c: CloudEvidence("aws", "rsa2048", b"", c.evidence("azure").signature),
        "cms-attributes",
    ),
    "two clouds: AWS's CMS as Azure's": (
        lambda c: CloudEvidence("azure", "attested", b"", c.evidence("aws").signature),
        "cms-certificate",
    ),
    "two clouds: AWS's CMS as Google's": (
        lambda c: CloudEvidence("gcp", "token", b"", c.evidence("aws").signature), "token",
    ),
    "two clouds: Google's token as Azure's": (
        lambda c: CloudEvidence("azure", "attested", b"", c.evidence("gcp").signature),
        "cms-malformed",
    ),
    "two clouds: AWS's document beside Azure's": (
        lambda c: length_prefixed(FORM, b"\x31", c.aws.document(), c.evidence("azure").signature),
        "malformed",
    ),
    "two clouds: both whole, one behind the other": (
        lambda c: c.evidence("aws").encode() + c.evidence("gcp").encode(), "malformed",
    ),
    "two clouds: Google's token as the document of AWS": (
        lambda c: CloudEvidence("aws", "rsa2048", c.token(), c.evidence("aws").signature),
        "unsigned-copy",
    ),
    "two clouds: a form of no cloud": (
        lambda c: length_prefixed(FORM, b"\x22", b"", c.token()), "malformed",
    ),
    "two clouds: the bytes of two forms": (
        lambda c: length_prefixed(FORM, b"\x11\x31", b"", c.evidence("aws").signature), "malformed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_a_cloud_signed_is_admitted(counter: Counter, provider: Provider) -> None:
    """What is refused below is refused for what was done to it, and for nothing else."""
    admission = counter.result(counter.evidence(provider))
    assert isinstance(admission, Admission)
    assert admission.bind is not None
    assert counter.desk.facts.bound == {}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_evidence_is_refused_by_its_own_reason(counter: Counter, name: str) -> None:
    """The security team learns which trick it was; the next machine is judged as if nothing had been."""
    make, reason = HOSTILE[name]
    assert counter.reason(make(counter)) == reason
    for provider in PROVIDERS:
        assert isinstance(counter.result(counter.evidence(provider)), Admission)


def test_addresses_in_certificates_are_nobodys_business(clouds: Clouds) -> None:
    """A signer says where its issuer is to be had: with a fetch, whoever asks to join chooses whom we call."""
    counter = Counter(clouds)
    now = datetime.now(UTC)
    lone = certify("CA of nobody", ca=True, key=key_of("lone"))
    uri = x509.UniformResourceIdentifier("http://127.0.0.1:9/ca.cer")
    aia = x509.AuthorityInformationAccess(
        [x509.AccessDescription(AuthorityInformationAccessOID.CA_ISSUERS, uri)]
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(lone.certificate.subject)
        .public_key(key_of("attacker").public_key())
        .serial_number(7)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("metadata.azure.com")]), critical=True
        )
        .add_extension(aia, critical=False)
        .sign(key_of("lone"), hashes.SHA256())
    )
    by = Certified(key_of("attacker"), made)
    shown = Cms(counter.azure.document(None), by, attributes=False, certificates=(by.der,)).make()
    assert counter.reason(CloudEvidence("azure", "attested", b"", shown)) == "chain"


@pytest.mark.case("B31")
@pytest.mark.parametrize("approval", [False, True])
def test_what_an_instances_owner_can_set_reaches_nobody(clouds: Clouds, approval: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Names, labels, tags and metadata are written by whoever starts the machine, also those called `role` or `tenant`."""
    counter = Counter(clouds, approval=approval)
    plain = [counter.result(counter.evidence(provider)) for provider in PROVIDERS]
    says = {"role": "site", "tenant": "globex", "pool": "db", "labels": {"role": "site"}}
    counter.google.attributes = {**says, "instance_name": "role-site", "tags": ["site"]}

    def more(document: bytes) -> bytes:
        return json.dumps({**json.loads(document), **says, "tags": says, "name": "site"}).encode()

    told_ = [
        counter.result(told(counter, "aws", more)),
        counter.result(counter.evidence("gcp")),
        counter.result(told(counter, "azure", more)),
    ]

    assert told_ == plain
    if approval:
        facts = [asked.facts for asked in told_ if isinstance(asked, Approval)]
        assert [set(each) for each in facts] == [
            {"provider", "account", "instance", "region"},
            {"provider", "account", "instance", "region"},
            {"provider", "account", "instance"},
        ]


@pytest.mark.case("B07")
def test_a_refusal_repeats_no_text_of_a_cloud_or_a_machine(counter: Counter) -> None:
    """Reasons are declared words; whatever stands in a document stays there."""
    declared = {reason.name for reason in CloudIidAttestor.reasons}
    for make, reason in HOSTILE.values():
        assert reason in declared
        with pytest.raises(Refused) as caught:
            counter.result(make(counter))
        assert str(caught.value) == f"cloud-iid:{reason}"
