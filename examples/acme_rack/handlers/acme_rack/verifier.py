"""The attestor."""

from datetime import timedelta
from hashlib import sha256
from secrets import token_bytes

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from acme_rack.evidence import NONCE_BYTES, Malformed, Proof, Serial, decode, signed_text
from watchword.handlers.attestor import (
    Admission,
    Challenge,
    Evidence,
    JoinContext,
    RawTransaction,
    Reason,
    Role,
    SealBroken,
    TenantId,
    refuser,
)

ID = "acme-rack"
CHALLENGE_LIFE = timedelta(minutes=10)

refuse = refuser(ID)


class AcmeRack:
    """Asks a machine to sign a nonce, and admits it once a technician has released it."""

    id = ID
    version = "1.0"
    roles = frozenset[Role](("node",))
    uses_tx = True
    package = "acme_rack"
    reasons = (
        Reason("malformed", "RACK0001", "low", "The evidence is neither a serial nor a proof."),
        Reason("unknown-machine", "RACK0002", "high", "No machine has that serial.", attack=True),
        Reason("no-challenge", "RACK0003", "medium", "The round does not follow a challenge."),
        Reason(
            "bad-signature", "RACK0004", "high", "The machine's key has not signed.", attack=True
        ),
    )

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Challenge:
        """Challenge a machine, then admit it or have it wait.

        Raises:
            Refused: `malformed`, `unknown-machine`, `no-challenge`, `bad-signature`.
        """
        # 1. The payload is that of a round, and the state is there in the second alone. A state opens
        #    only for this CSR, role and version, until it expires: that is the core's work.
        # 2. The machine is known. Looked at in both rounds: it may have been sold in between.
        # 3. Round one ends in a challenge; the serial and a fresh nonce travel in its state.
        # 4. The machine's key has signed role, CSR and nonce. From here on its tenant is proven.
        # 5. A technician has released it. If not, that it waits is written down, which stays because
        #    this is no refusal, and it is challenged again.
        # 6. The serial is bound to one node for good.
        assert context.tx is not None, "`uses_tx` is said above"  # noqa: S101

        # Step 1
        try:
            shown = decode(evidence.payload)
            state = context.open_state()
        except Malformed:
            raise refuse("malformed") from None
        except SealBroken:
            raise refuse("no-challenge") from None
        if isinstance(shown, Proof) != (state is not None):
            raise refuse("no-challenge")

        # Step 2
        serial = shown.serial if isinstance(shown, Serial) else _serial_in(state)
        key, tenant, pool = await _machine(context.tx, serial)

        # Step 3
        if isinstance(shown, Serial) or state is None:
            return _challenge(context, serial)

        # Step 4
        try:
            signed = signed_text(context.role, context.csr_sha256, state[:NONCE_BYTES])
            key.verify(shown.signature, signed)
        except InvalidSignature:
            raise refuse("bad-signature") from None

        # Step 5
        if not await _is_released(context.tx, serial):
            await context.tx.execute(
                "INSERT INTO plg_acme_rack__releases (serial, asked_at) VALUES ($1, $2)"
                " ON CONFLICT DO NOTHING",
                serial,
                context.now,
            )
            return _challenge(context, serial)

        # Step 6
        return Admission(
            tenant=tenant,
            role=context.role,
            pool=pool,
            bind=sha256(b"acme-rack serial\0" + serial.encode()).digest(),
            allowed_kinds=("inventory.refresh",),
        )


def _challenge(context: JoinContext, serial: str) -> Challenge:
    nonce = token_bytes(NONCE_BYTES)
    state = context.seal_state(nonce + serial.encode(), CHALLENGE_LIFE)
    return Challenge(nonce, state, context.now + CHALLENGE_LIFE)


def _serial_in(state: bytes | None) -> str:
    return "" if state is None else state[NONCE_BYTES:].decode()


async def _machine(tx: RawTransaction, serial: str) -> tuple[Ed25519PublicKey, TenantId, str]:
    rows = await tx.fetch(
        "SELECT public_key, tenant, pool FROM plg_acme_rack__machines WHERE serial = $1", serial
    )
    if not rows:
        raise refuse("unknown-machine")
    row = rows[0]
    return (
        Ed25519PublicKey.from_public_bytes(row["public_key"]),
        TenantId(row["tenant"]),
        row["pool"],
    )


async def _is_released(tx: RawTransaction, serial: str) -> bool:
    rows = await tx.fetch(
        "SELECT released_by FROM plg_acme_rack__releases WHERE serial = $1", serial
    )
    return bool(rows) and rows[0]["released_by"] is not None
