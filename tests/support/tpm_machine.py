"""A machine with a TPM, and the desk where a verifier judges it in two rounds, without a server."""

from dataclasses import replace
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from tests.support.contexts import Desk, run
from tests.support.crypto import spki_of
from tests.support.tpm import Maker, SoftProver, SoftTpm, name_of
from watchword.handlers.anchors import TpmEndorsement, TpmPolicy
from watchword.handlers.attestor import (
    Admission,
    Approval,
    Challenge,
    Deferral,
    Evidence,
    Node,
    Subject,
)
from watchword.handlers.attestors.tpm.certificates import read_certificate
from watchword.handlers.attestors.tpm.config import Config, WaitingRoom
from watchword.handlers.attestors.tpm.endorsement import Anchors
from watchword.handlers.attestors.tpm.verifier import TpmAttestor
from watchword.handlers.errors import Refused
from watchword.schemas.ids import AttestorId, NodeId, Role, TenantId, UnverifiedPayload
from watchword.schemas.requests import Claims

ACME = TenantId("acme")
PCRS = (0, 7)
LISTED: dict[str, Any] = {
    "pcrs": list(PCRS),
    "banks": ["sha256"],
    "log": "ignored",
    "values": {"sha256": {"0": ["aa" * 32], "7": ["bb" * 32]}},
}
NODE = NodeId(UUID(int=50))
MAKER = Maker()


class Machine:
    """A machine with a TPM, what is known of it, and the desk that it is judged at."""

    def __init__(self, *, is_enrolled: bool = True, role: Role = "node") -> None:
        """Have a chip with the two values that a policy lists."""
        self.chip = SoftTpm()
        self.chip.pcrs[0], self.chip.pcrs[7] = b"\xaa" * 32, b"\xbb" * 32
        self.prover = SoftProver(self.chip)
        self.role = role
        self.desk = Desk("tpm", "".join(role))  # type: ignore[arg-type]
        self.facts = self.desk.facts
        self.room: WaitingRoom | None = None
        self.ek = sha256(self.chip.ek[2:]).digest()
        self.ak = sha256(name_of(self.chip.ak)).digest()
        self.key = sha256(spki_of(self.chip.ek_key)).hexdigest()
        self.policy(LISTED)
        if is_enrolled:
            self.enrol()

    @property
    def grant(self) -> Admission:
        """What the enrolled machine is admitted as."""
        return Admission(
            tenant=ACME,
            role="node",
            pool="web",
            site="berlin",
            bind=self.ek,
            allowed_kinds=("diag.*",),
            hardware_key=f"urn:bc:tpm-ek:{self.key}",
            subjects=(
                Subject("ek", self.ek.hex()),
                Subject("ek-key", self.key),
                Subject("ak", self.ak.hex()),
            ),
        )

    def policy(self, said: dict[str, Any], pool: str = "web") -> None:
        """Have a pool say what a boot has to look like."""
        self.facts.tpm_policies[ACME, pool] = TpmPolicy(ACME, pool, said)

    def enrol(self, **changes: Any) -> None:  # noqa: ANN401 - any field
        """Have an operator's row of this chip."""
        row = TpmEndorsement(
            ek_sha256=self.ek,
            tenant=ACME,
            pool="web",
            site="berlin",
            role="node",
            allowed_kinds=("diag.*",),
            revoked=False,
        )
        self.facts.endorsements[self.ek] = replace(row, **changes)

    def bind(self, **changes: Any) -> None:  # noqa: ANN401 - any field
        """Have a node that this chip is bound to."""
        self.facts.bound[self.ek] = NODE
        row = Node(
            id=NODE,
            tenant=ACME,
            pool="web",
            site="berlin",
            role="node",
            state="active",
            attestor=AttestorId("tpm"),
            node_key_uri=None,
            hardware_key=None,
        )
        self.facts.nodes_by_id[NODE] = replace(row, **changes)

    def judged(self, payload: bytes, state: bytes | None = None) -> Admission | Deferral:
        """Return the verdict on a payload; raises `Refused`."""
        attestor = TpmAttestor(Config(Anchors.of([read_certificate(MAKER.root)]), self.room))
        context = self.desk.context(state)
        found = run(attestor.verify(Evidence(UnverifiedPayload(payload), Claims()), context))
        assert (context.staged.uses, context.staged.spends) == ([], [])
        return found

    def asked(self) -> Challenge:
        """Return what the first round asks."""
        found = self.judged(self.prover.shown(None))
        assert isinstance(found, Challenge)
        return found

    def answered(self, asked: Challenge) -> bytes:
        """Return the payload of the second round."""
        return run(self.prover.answer(asked.challenge, self.desk.csr.sha256, self.role))

    def verdict(self) -> Admission | Deferral:
        """Return what comes of both rounds."""
        asked = self.asked()
        return self.judged(self.answered(asked), asked.state)

    def approval(self) -> Approval:
        """Return what an operator has to agree to."""
        found = self.verdict()
        assert isinstance(found, Approval)
        return found

    def refusal(self, state: bytes | None = None, payload: bytes | None = None) -> Refused:
        """Return the refusal of a payload, or of the two rounds, whichever it comes in."""
        with pytest.raises(Refused) as caught:
            self.verdict() if payload is None else self.judged(payload, state)
        assert caught.value.attestor == "tpm"
        return caught.value
