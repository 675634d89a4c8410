"""Decoders of what comes from outside, each with bytes that it takes and the one kind of error that it may raise.

What is signed or sealed is fuzzed twice: as it comes over the wire, where no other bytes than the good ones may be
taken, and behind the signature, where whoever holds the key may say anything.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.fuzz.seeds import fields_of
from tests.support.cloud_desks import key_of
from tests.support.clouds import Cms, certify
from tests.support.crypto import (
    NODE_ID,
    NOW,
    TRUST_DOMAIN,
    csr_of,
    jws_signer,
    order,
    spki_of,
)
from tests.support.gateway import make_request
from tests.support.metadata import Aws, Google
from watchword.handlers.attestors.cloud_iid import cms, gcp
from watchword.handlers.attestors.cloud_iid.reasons import Unproven
from watchword.handlers.crypto import commands, hpke
from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.ca_certificates import create_ca
from watchword.handlers.crypto.commands import FetchEvidence
from watchword.handlers.crypto.csr import check_possession, load_csr
from watchword.handlers.crypto.jws import unverified_payload
from watchword.handlers.crypto.renewals import RenewalEvidence
from watchword.handlers.crypto.responses import Answers, Question, read_response
from watchword.handlers.errors import InvalidInput, SealBroken, SignatureBroken
from watchword.schemas.canonical import b64, length_prefixed, read_length_prefixed
from watchword.schemas.commands import Command, Report, Reports
from watchword.schemas.errors import SchemaError
from watchword.schemas.requests import Claims, JoinRequest
from watchword.schemas.responses import TYP_COMMAND, TYP_RESPONSE, Joined
from watchword.schemas.times import rfc3339
from watchword.streams.agent.certificates import check_joined
from watchword.streams.agent.errors import AnswerNotUsable
from watchword.streams.gateway.admission import admit
from watchword.streams.gateway.problems import Rejected

_COMMAND_ID = "0190163d-8694-739b-aea5-966c26f8ad92"


@dataclass(frozen=True)
class Decoding:
    """A decoder, and bytes that it takes."""

    good: bytes
    decode: Callable[[bytes], object]
    """Raises `AssertionError` where it takes what it must not."""
    refuses: type[Exception] | tuple[type[Exception], ...]
    seeds: Sequence[bytes] = ()
    """More bytes to begin with: near misses, and other good ones."""

    def hold(self, payload: bytes) -> object:
        """Return what was decoded, or the refusal; any other exception is the finding."""
        try:
            return self.decode(payload)
        except self.refuses as refused:
            return refused


def _same(is_same: bool, payload: bytes) -> None:  # noqa: FBT001 - a condition
    if not is_same:
        message = f"taken: {payload.hex()}"
        raise AssertionError(message)


@cache
def request() -> Decoding:
    """Return the gateway's check of a body, and the worker's reader: what the first takes the second takes."""
    good = make_request(csr_of(Ed25519PrivateKey.generate()))

    def decode(payload: bytes) -> object:
        read: JoinRequest | None = None
        with suppress(SchemaError):
            read = JoinRequest.read(payload)
        _same(read is None or read.write() == payload, payload)
        admitted = admit(payload)
        _same(read is not None and admitted.request_id == read.request_id, payload)
        return admitted

    return Decoding(good, decode, Rejected)


@cache
def claims() -> Decoding:
    """Return the reader of what is sealed: a payload, and claims in their one spelling."""
    said = Claims(product_uuid="4c4c4544", serial="S-1", macs=("3cecef000001",), hostname="web")
    good = length_prefixed(b"evidence", said.write())

    def decode(payload: bytes) -> object:
        _, encoded = read_length_prefixed(payload, 2)
        return Claims.read(encoded)

    return Decoding(
        good,
        decode,
        SchemaError,
        tuple(length_prefixed(b"e", changed) for changed in fields_of(said.write())),
    )


def _answers() -> tuple[Answers, bytes, Callable[[bytes], bytes], hpke.DecryptionKey]:
    signer = jws_signer()
    reply = hpke.generate()
    return Answers(signer), signer.public, lambda body: signer.sign(body, TYP_RESPONSE), reply


def _question(reply: bytes | None) -> Question:
    return Question(bytes(32), "0190163d-8694-739b-aea5-966c26f8ad91", bytes(range(32)), reply)


@cache
def response() -> Decoding:
    """Return the agent's reader of answers, as they come: only the good one is signed, in clear or sealed."""
    answers, public, _, reply = _answers()
    clear = answers.refused(_question(None), NOW)
    sealed = answers.approval(_question(reply.public), NOW, retry_after_seconds=5)

    def decode(payload: bytes) -> object:
        found = read_response(payload, public, None, reply.private_bytes())
        _same(payload in (clear, sealed), payload)
        return found

    return Decoding(clear, decode, (SignatureBroken, SealBroken, SchemaError), (sealed,))


@cache
def response_signed() -> Decoding:
    """Return the same behind the signature: the service's key signs whatever comes."""
    answers, public, sign, reply = _answers()
    question = _question(None)
    told = (
        answers.refused(question, NOW),
        answers.failed(question, NOW, "UNAVAILABLE"),
        answers.approval(question, NOW, retry_after_seconds=5),
        answers.challenge(question, NOW, attestor="tpm", challenge=b"c", state=b"s", not_after=NOW),
        answers.joined(
            question,
            NOW,
            node_id=NODE_ID,
            tenant="acme",
            pool="web",
            site=None,
            role="node",
            chain=[b"\x30\x00"],
            allowed_kinds=["diag.ping"],
            renew_after=NOW,
        ),
    )
    bodies = [unverified_payload(one) for one in told]

    def decode(payload: bytes) -> object:
        return read_response(sign(payload), public, None, reply.private_bytes())

    return Decoding(
        bodies[0],
        decode,
        (SealBroken, SchemaError),
        (*bodies, *(changed for body in bodies for changed in fields_of(body))),
    )


@cache
def csr() -> Decoding:
    """Return the check of a CSR, key and possession included. Ed25519: no other signature of the same holds."""
    good = csr_of(Ed25519PrivateKey.generate())
    others = (
        csr_of(ec.generate_private_key(ec.SECP256R1())),
        csr_of(ec.generate_private_key(ec.SECP384R1())),
        good[:-1],
        good + b"\0",
    )

    def decode(payload: bytes) -> object:
        found = load_csr(payload)
        check_possession(found)
        _same(found.der == payload, payload)
        return found

    return Decoding(good, decode, InvalidInput, others)


@cache
def certificate() -> Decoding:
    """Return the agent's look at the certificate that it is given: what is signed in it cannot be changed."""
    ca_key, root = create_ca(TRUST_DOMAIN, now=NOW)
    key = Ed25519PrivateKey.generate()
    [issued] = Authority(ca_key, [root], trust_domain=TRUST_DOMAIN).issue([order(key)])
    spki = spki_of(key)

    def decode(payload: bytes) -> object:
        joined = Joined(
            node_id=NODE_ID,
            tenant="acme",
            pool="web",
            site=None,
            role="node",
            chain=(b64(payload),),
            allowed_kinds=None,
            renew_after=rfc3339(NOW),
        )
        [found] = check_joined(joined, spki_der=spki, trust_domain=TRUST_DOMAIN, authorities=[root])
        _same(found.tbs_certificate_bytes in issued.der, payload)
        return found

    return Decoding(issued.der, decode, AnswerNotUsable, (issued.der[:-1], issued.der + b"\0"))


@cache
def signed_data() -> Decoding:
    """Return the reader of CMS, and its signature: the content of what is taken is the content that was signed."""
    signer = certify("signer")
    content = Aws(signer).document()
    good = Cms(content, signer).make()
    bare = Cms(content, signer, attributes=False, certificates=(signer.der,)).make()
    key = signer.key.public_key()

    def decode(payload: bytes) -> object:
        found = cms.read(payload)
        cms.verify(found, key)
        _same(found.content == content, payload)
        return found

    near = tuple(
        Cms(content, signer, **change).make()
        for change in ({"signers": 2}, {"detached": True}, {"about": b"another"})
    )
    return Decoding(good, decode, Unproven, (bare, *near))


@cache
def token() -> Decoding:
    """Return the reader of Google's JWT: RS256 over strict base64url has one spelling."""
    key = key_of("k1")
    good = Google(key).token("watchword", "full")
    keys = {Google(key).kid: key.public_key()}

    def decode(payload: bytes) -> object:
        found = gcp.verify_token(payload, keys)
        _same(payload == good, payload)
        return found

    head, body, signature = good.split(b".")
    near = (
        b".".join((head, body, b"")),
        b".".join((head + b"=", body, signature)),
        b".".join((b"", body, signature)),
        good + b".",
    )
    return Decoding(good, decode, Unproven, near)


@cache
def seal() -> Decoding:
    """Return the opening of a seal: only the bytes that were sealed open."""
    key = hpke.generate()
    good = hpke.seal(key.public, b"plaintext", b"info")

    def decode(payload: bytes) -> object:
        found = key.open(payload, b"info")
        _same(payload == good, payload)
        return found

    return Decoding(good, decode, SealBroken, (b"", good[:31], good[:32], good[:48], good[:-1]))


@cache
def fetch() -> Decoding:
    """Return the reader of what a node shows to get its commands: what it takes can be said again, and is the same."""
    reports = Reports(items=(Report(id=_COMMAND_ID, result="done", exit_status=0),))
    good = FetchEvidence(bytes(32), b"spki", reports, b"signature").encode()

    def decode(payload: bytes) -> object:
        found = FetchEvidence.decode(payload)
        # A report may leave out what has a default, so it has more than one spelling.
        _same(FetchEvidence.decode(found.encode()) == found, payload)
        return found

    form, tbs, spki, encoded, signature = read_length_prefixed(good, 5)
    near = [length_prefixed(form, tbs, spki, changed, signature) for changed in fields_of(encoded)]
    return Decoding(good, decode, SchemaError, tuple(near))


@cache
def renewal() -> Decoding:
    """Return the reader of what a node shows to renew: one spelling, with a proof and without."""
    evidence = RenewalEvidence(bytes(32), b"spki", b"signature")
    good = evidence.encode()
    proved = dataclasses.replace(evidence, proof=b"proof").encode()

    def decode(payload: bytes) -> object:
        found = RenewalEvidence.decode(payload)
        _same(found.encode() == payload, payload)
        return found

    return Decoding(good, decode, SchemaError, (proved,))


def _command() -> Command:
    return Command(
        id=_COMMAND_ID,
        node_id=NODE_ID,
        certificate_serial="0" * 32,
        kind="diag.ping",
        payload=b64(b"{}"),
        not_after=rfc3339(NOW),
    )


@cache
def command() -> Decoding:
    """Return the node's reader of commands, as they come: only the good one is signed."""
    signer = jws_signer()
    good = commands.sign_command(signer, _command())

    def decode(payload: bytes) -> object:
        found = commands.read_command(payload, signer.public)
        _same(payload == good, payload)
        return found

    others = (signer.sign(_command().write(), TYP_RESPONSE), good + b"=", os.urandom(40))
    return Decoding(good, decode, (SignatureBroken, SchemaError), others)


@cache
def command_signed() -> Decoding:
    """Return the same behind the signature: what is taken can be signed again, and is the same."""
    signer = jws_signer()
    good = _command().write()

    def decode(payload: bytes) -> object:
        found = commands.read_command(signer.sign(payload, TYP_COMMAND), signer.public)
        again = signer.sign(found.write(), TYP_COMMAND)
        _same(commands.read_command(again, signer.public) == found, payload)
        return found

    return Decoding(good, decode, SchemaError)


DECODERS: Mapping[str, Callable[[], Decoding]] = {
    "request": request,
    "claims": claims,
    "response": response,
    "response-signed": response_signed,
    "csr": csr,
    "certificate": certificate,
    "cms": signed_data,
    "jwt": token,
    "hpke": seal,
    "fetch": fetch,
    "renewal": renewal,
    "command": command,
    "command-signed": command_signed,
}
