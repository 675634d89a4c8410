"""Each verifier with everything in its favour, and the invariant that no bytes may break.

The desk knows the image, the site's key and the CA; an operator agrees to everything; the challenge
is the one that was handed out. Whatever bytes come in, what comes out is an answer or a refusal: never
another exception, and never an admission that the unmutated evidence does not give.
"""

from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.certificates import OperatorCa
from tests.support.cloud_desks import ACCOUNTS, Clouds, key_of
from tests.support.clouds import Cms
from tests.support.contexts import Desk, Facts, run
from tests.support.crypto import TRUST_DOMAIN, jws_signer
from tests.support.metadata import Aws, Azure, Google
from tests.support.ramdisks import SITE
from watchword.handlers.anchors import CloudAccount, Image
from watchword.handlers.attestor import Admission, Attestor, Challenge, Evidence, Subject
from watchword.handlers.attestors.cloud_iid.binding import bound_audience, nonce_for
from watchword.handlers.attestors.cloud_iid.evidence import CloudEvidence
from watchword.handlers.attestors.cloud_iid.prover import Provider
from watchword.handlers.attestors.cloud_iid.verifier import CloudIidAttestor
from watchword.handlers.attestors.discovery.evidence import TYP, sign_assertion
from watchword.handlers.attestors.discovery.verifier import KINDS, DiscoveryAttestor
from watchword.handlers.attestors.image.evidence import (
    ImageEvidence,
    SecondEvidence,
    decode,
    new_image,
    parse_image,
)
from watchword.handlers.attestors.image.verifier import ImageAttestor
from watchword.handlers.attestors.x509pop.config import Config, Rule
from watchword.handlers.attestors.x509pop.prover import FileKey, X509PopProver
from watchword.handlers.attestors.x509pop.verifier import X509PopAttestor
from watchword.handlers.crypto.jws import JwsSigner
from watchword.handlers.errors import Refused
from watchword.schemas.ids import TenantId, UnverifiedPayload
from watchword.schemas.requests import Claims


@dataclass
class Target:
    """A verifier, what it knows, and evidence that it takes."""

    attestor: Attestor
    desk: Desk
    good: bytes
    state: bytes | None = None
    key: JwsSigner | None = None
    """Of the site, for mutations that are signed."""
    gives: Admission | None = None
    """What the good evidence gives, where the same can be said in other bytes: much of a CMS is signed by nobody."""
    is_signed: bool = False
    """Whether the bytes are what the site's key signs: an agent may say what it likes, and be let in for it."""

    async def verdict(self, payload: bytes) -> object:
        """Return what the verifier makes of a payload: a result, or the refusal."""
        evidence = Evidence(UnverifiedPayload(payload), Claims())
        try:
            return await self.attestor.verify(evidence, self.desk.context(self.state))
        except Refused as refused:
            return refused

    def hold(self, payload: bytes) -> object:
        """Return the verdict on mutated evidence; an exception or an admission is the finding.

        The same bytes may be admitted: they are the unmutated evidence. Other bytes may be challenged
        or made to wait, and never admitted.
        """
        if self.is_signed and self.key is not None:
            return run(self.verdict(self.key.sign(payload, TYP)))
        found = run(self.verdict(payload))
        if isinstance(found, Admission) and payload != self.good and found != self.gives:
            message = f"admitted: {payload.hex()}"
            raise AssertionError(message)
        return found


@cache
def image() -> Target:
    """Return `image` with an image in it whose second fact is there."""
    image_id, text, digest = new_image()
    row = Image(
        id=image_id,
        secret_sha256=digest,
        tenant=TenantId("acme"),
        pool="web",
        site=None,
        role="node",
        second_fact="approval",
        once_per_machine=False,
        allowed_kinds=(),
        expect={},
        expires_at=None,
        revoked=False,
    )
    desk = Desk("image", facts=Facts(images={image_id: row}, agrees=True))
    return Target(ImageAttestor(), desk, parse_image(text).encode())


@cache
def image_proof() -> Target:
    """Return `image` with an image whose second fact is another attestor's proof, and that evidence."""
    target = image()
    [known] = target.desk.facts.images.values()
    row = replace(known, second_fact="attestor:x509pop")
    second = UnverifiedPayload(b"what x509pop proves")
    proof = Admission(row.tenant, "node", row.pool, subjects=(Subject("spki", "key"),))
    facts = Facts(images={row.id: row}, proofs={("x509pop", second): proof})
    good = ImageEvidence(decode(target.good).shown, SecondEvidence("x509pop", second)).encode()
    return Target(ImageAttestor(), Desk("image", facts=facts), good)


@cache
def discovery() -> Target:
    """Return `discovery` with a site's key in it."""
    key = jws_signer("k1")
    row = replace(SITE, public_key=key.public, approval="always", allowed_kinds=KINDS)
    desk = Desk("discovery", "ramdisk", Facts(sites={"k1": row}, agrees=True))
    good = sign_assertion(
        key,
        site="berlin",
        csr_sha256=desk.csr.sha256,
        macs=["3c:ec:ef:00:00:01"],
        product_uuid="4c4c4544-0043-3510-8052-b4c04f4e3332",
        bmc="10.0.0.7",
        expires_at=desk.now + timedelta(minutes=5),
    )
    return Target(DiscoveryAttestor(), desk, good, key=key)


@cache
def discovery_signed() -> Target:
    """Return `discovery` behind the signature: the site's key signs whatever comes."""
    target = discovery()
    body = target.good.split(b".")[1]
    payload = urlsafe_b64decode(body + b"=" * (-len(body) % 4))
    return replace(target, good=payload, is_signed=True)


@cache
def x509pop() -> Target:
    """Return `x509pop` in its second round, the challenge answered by an Ed25519 key, over an intermediate.

    Ed25519, because its signatures cannot be changed and still hold: the same bytes are the only good ones.
    """
    ca = OperatorCa()
    held = OperatorCa("site CA", issuer=ca).give(key=Ed25519PrivateKey.generate())
    rule = Rule((ca.certificate,), {"commonName": "*"}, TenantId("acme"), "web")
    attestor = X509PopAttestor(Config(TRUST_DOMAIN, (rule,)))
    desk = Desk("x509pop")
    prover = X509PopProver(lambda: held.pem, FileKey(lambda: held.key_pem), TRUST_DOMAIN)

    async def rounds() -> Target:
        first = Evidence(
            UnverifiedPayload(await prover.evidence(desk.csr.sha256, "node")), Claims()
        )
        asked = await attestor.verify(first, desk.context())
        if not isinstance(asked, Challenge):
            raise TypeError
        answer = await prover.answer(asked.challenge, desk.csr.sha256, "node")
        return Target(attestor, desk, answer, asked.state)

    return run(rounds())


@cache
def _clouds() -> tuple[Clouds, CloudIidAttestor]:
    """Return clouds, and a verifier that has loaded their anchors."""
    with TemporaryDirectory() as folder:
        clouds = Clouds.at(Path(folder))
        return clouds, CloudIidAttestor(clouds.anchors())


def _cloud(
    provider: Provider, account: str, sign: Callable[[Clouds, bytes], CloudEvidence]
) -> Target:
    row = CloudAccount(
        provider=provider,
        account=account,
        tenant=TenantId("acme"),
        pool="web",
        site=None,
        role="node",
        regions=None,
        approval=False,
        allowed_kinds=(),
        revoked=False,
    )
    desk = Desk("cloud-iid", facts=Facts(accounts={(provider, account): row}))
    clouds, attestor = _clouds()
    target = Target(attestor, desk, sign(clouds, desk.csr.sha256).encode())
    gives = run(target.verdict(target.good))
    if not isinstance(gives, Admission):
        raise TypeError
    return replace(target, gives=gives)


@cache
def cloud_aws() -> Target:
    """Return `cloud-iid` with an account of AWS in it."""

    def sign(clouds: Clouds, _csr_sha256: bytes) -> CloudEvidence:
        made = Cms(Aws(clouds.aws).document(), clouds.aws).make()
        return CloudEvidence("aws", "rsa2048", b"", made)

    return _cloud("aws", ACCOUNTS["aws"], sign)


@cache
def cloud_gcp() -> Target:
    """Return `cloud-iid` with a project of Google's in it."""

    def sign(_clouds: Clouds, csr_sha256: bytes) -> CloudEvidence:
        token = Google(key_of("k1")).token(bound_audience("watchword", csr_sha256), "full")
        return CloudEvidence("gcp", "token", b"", token)

    return _cloud("gcp", ACCOUNTS["gcp"], sign)


@cache
def cloud_azure() -> Target:
    """Return `cloud-iid` with a subscription of Azure's in it."""

    def sign(clouds: Clouds, csr_sha256: bytes) -> CloudEvidence:
        document = Azure(clouds.azure).document(nonce_for(csr_sha256))
        made = Cms(
            document, clouds.azure, attributes=False, certificates=(clouds.azure.der,)
        ).make()
        return CloudEvidence("azure", "attested", b"", made)

    return _cloud("azure", ACCOUNTS["azure"], sign)


TARGETS: Mapping[str, Callable[[], Target]] = {
    "x509pop": x509pop,
    "image": image,
    "image-proof": image_proof,
    "discovery": discovery,
    "discovery-signed": discovery_signed,
    "cloud-aws": cloud_aws,
    "cloud-gcp": cloud_gcp,
    "cloud-azure": cloud_azure,
}


def each_part(parts: tuple[bytes, ...]) -> list[tuple[bytes, ...]]:
    """Return the parts with one dropped, doubled, retyped or oversized, for each in turn."""
    found: list[tuple[bytes, ...]] = []
    for nth, part in enumerate(parts):
        before, after = parts[:nth], parts[nth + 1 :]
        found.append((*before, *after))
        found.append((*before, part, part, *after))
        found += [
            (*before, other, *after)
            for other in (
                b"",
                b"\0",
                part[:-1],
                part + b"\0",
                part[::-1],
                b"\x30\x80" + part,
                sha256(part).digest(),
                b'{"a":1}',
                b"\xff" * 20_000,
                part * 50,
            )
        ]
    return found


def each_field(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the document with one field dropped, renamed, retyped or oversized, for each in turn, or one too many."""
    found: list[dict[str, Any]] = [{**document, "extra": 1}]
    for name, value in document.items():
        rest = {n: v for n, v in document.items() if n != name}
        found.append(rest)
        found.append({**rest, name.upper(): value})
        found += [
            {**rest, name: other}
            for other in (
                None,
                True,
                0,
                -1,
                2**53,
                "",
                "\0",
                "x" * 3000,
                str(value) + " ",
                str(value) + "\n",
                [],
                [value],
                [value] * 40,
                {},
                {name: value},
            )
            if other != value or type(other) is not type(value)
        ]
    return found
