"""`tpm` and its parsers: what a TPM, its firmware and its vendor have written, as anybody could write it.

No parser raises anything but its own refusal, none reads beyond the end, and none takes more bytes than its bound.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from hashlib import sha256
from typing import Protocol

from tests.fuzz.targets import Target
from tests.support.contexts import Desk, Facts, run
from tests.support.tpm import SPEC_ID, Maker, SoftProver, SoftTpm, area, measured, new_key
from watchword.handlers.anchors import TpmEndorsement, TpmPolicy
from watchword.handlers.attestor import Admission, Challenge, Evidence
from watchword.handlers.attestors.tpm.attest import read_attest, read_signature
from watchword.handlers.attestors.tpm.certificates import read_certificate, unwrap
from watchword.handlers.attestors.tpm.config import Config
from watchword.handlers.attestors.tpm.credential import read_encrypted_secret, read_id_object
from watchword.handlers.attestors.tpm.endorsement import Anchors, check_endorsement
from watchword.handlers.attestors.tpm.eventlog import MAX_EVENTS, MAX_LOG_BYTES, read_event_log
from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.attestors.tpm.structures import read_public_2b
from watchword.handlers.attestors.tpm.verifier import TpmAttestor
from watchword.schemas.ids import TenantId, UnverifiedPayload
from watchword.schemas.requests import Claims

PCRS = [0, 7]


class Holding(Protocol):
    """What is fuzzed."""

    @property
    def good(self) -> bytes:
        """Return bytes that are taken."""
        ...

    def hold(self, payload: bytes) -> object:
        """Take any bytes; an exception is the finding."""
        ...


@dataclass
class Rounds:
    """The verifier in its second round. What is shown beside the proof may be anything: the admission is the same."""

    target: Target
    admission: Admission

    @property
    def good(self) -> bytes:
        """Return the unmutated evidence."""
        return self.target.good

    def hold(self, payload: bytes) -> object:
        """Return the verdict; another admission than the unmutated evidence's is the finding."""
        found = run(self.target.verdict(payload))
        if isinstance(found, Admission) and found != self.admission:
            message = f"another admission: {payload.hex()}"
            raise AssertionError(message)
        return found


@dataclass
class Parsing:
    """A parser and bytes that it takes."""

    good: bytes
    parse: Callable[[bytes], object]

    def hold(self, payload: bytes) -> object:
        """Return what was parsed, or the refusal."""
        try:
            return self.parse(payload)
        except Malformed as refused:
            return refused


@cache
def tpm() -> Rounds:
    """Return `tpm` with an enrolled TPM that has answered its challenge, with a log."""
    chip = SoftTpm(ak="rsa2048")
    desk = Desk("tpm", facts=_facts(chip))
    prover = SoftProver(chip)
    digest = sha256(b"an event").digest()
    prover.log = SPEC_ID + measured(7, 0x80000001, digest, b"an event")
    chip.pcrs[7] = sha256(bytes(32) + digest).digest()
    chip.pcrs[0] = bytes(32)
    attestor = TpmAttestor(Config(Anchors({})))

    async def rounds() -> Rounds:
        shown = UnverifiedPayload(await prover.evidence(desk.csr.sha256, "node"))
        asked = await attestor.verify(Evidence(shown, Claims()), desk.context())
        if not isinstance(asked, Challenge):
            raise TypeError
        answer = await prover.answer(asked.challenge, desk.csr.sha256, "node")
        target = Target(attestor, desk, answer, asked.state)
        found = await target.verdict(answer)
        if not isinstance(found, Admission):
            raise TypeError
        return Rounds(target, found)

    return run(rounds())


def _facts(chip: SoftTpm) -> Facts:
    ek = sha256(chip.ek[2:]).digest()
    enrolled = TpmEndorsement(
        ek_sha256=ek,
        tenant=TenantId("acme"),
        pool="web",
        site=None,
        role="node",
        allowed_kinds=(),
        revoked=False,
    )
    policy = {"pcrs": PCRS, "banks": ["sha256"], "log": "required", "unsafe_any_values": True}
    return Facts(
        endorsements={ek: enrolled},
        tpm_policies={("acme", "web"): TpmPolicy(TenantId("acme"), "web", policy)},
    )


@cache
def structures() -> Parsing:
    """Return all readers of structures; the first byte chooses."""
    chip = SoftTpm()
    readers = (read_public_2b, read_attest, read_signature, read_id_object, read_encrypted_secret)

    def parse(payload: bytes) -> object:
        if not payload:
            raise Malformed
        return readers[payload[0] % len(readers)](payload[1:])

    return Parsing(b"\x00" + chip.ak, parse)


@cache
def log() -> Parsing:
    """Return the reader of event logs, with a replay of every bank."""

    def parse(payload: bytes) -> object:
        found = read_event_log(payload)
        if len(found.events) > MAX_EVENTS or len(payload) > MAX_LOG_BYTES:
            message = "beyond its bounds"
            raise AssertionError(message)
        return {bank: found.replay(bank) for bank in found.banks}

    return Parsing(
        SPEC_ID + measured(0, 1, bytes(32), b"x") + measured(7, 3, bytes(32), b""), parse
    )


@cache
def certificate() -> Parsing:
    """Return the judge of endorsement certificates, with a vendor that is trusted; no other bytes lead to it."""
    maker, key = Maker(), new_key("p256")
    good = maker.certify(key)
    ek = read_public_2b(area(key, 0x000300B2, storage=True))
    anchors = Anchors.of([read_certificate(maker.root), read_certificate(maker.issuer)])
    now = read_certificate(good).not_before + timedelta(days=31)

    def parse(payload: bytes) -> object:
        found = check_endorsement(payload, [], ek, anchors, now)
        if unwrap(payload) != good:
            message = f"certified: {payload.hex()}"
            raise AssertionError(message)
        return found

    return Parsing(good, parse)


TPM_TARGETS: Mapping[str, Callable[[], Holding]] = {
    "tpm": tpm,
    "tpm-structures": structures,
    "tpm-log": log,
    "tpm-certificate": certificate,
}
