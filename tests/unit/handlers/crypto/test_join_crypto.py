"""What the join service is handed."""

from datetime import datetime, timedelta

import pytest

from tests.support.crypto import DAY, NOW, STATEMENT, TRUST_DOMAIN, authority, jws_signer, order
from watchword.handlers.crypto import hpke
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.crypto.keysets import HeldKey
from watchword.handlers.crypto.responses import Answers
from watchword.handlers.crypto.signer import LocalSigner
from watchword.handlers.crypto.state import StateSealer
from watchword.handlers.errors import SealBroken

KEY = hpke.generate()
SEALED = hpke.seal(KEY.public, b"evidence", b"info")
CRYPTO = JoinCrypto(
    trust_domain=TRUST_DOMAIN,
    decryption=[HeldKey("e-1", KEY, NOW, NOW + DAY)],
    answers=Answers(jws_signer()),
    states=StateSealer({"c-1": bytes(32)}, "c-1"),
    signer=LocalSigner(authority()),
)


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(NOW - DAY, id="an agent's clock is fast"),
        pytest.param(NOW, id="in its life"),
        pytest.param(NOW + 2 * DAY - timedelta(seconds=1), id="the request waited for a day"),
    ],
)
def test_a_request_is_opened_as_long_as_it_may_wait(at: datetime) -> None:
    """What was sealed in a key's last moment stays on its topic for a day."""
    assert CRYPTO.unseal("e-1", SEALED, b"info", at) == b"evidence"


def test_a_key_past_its_grace_and_an_unknown_key_open_nothing() -> None:
    for kid, at in (("e-1", NOW + 2 * DAY), ("e-2", NOW)):
        with pytest.raises(SealBroken):
            CRYPTO.unseal(kid, SEALED, b"info", at)


@pytest.mark.parametrize(
    ("uri", "known"),
    [
        (STATEMENT, True),
        ("", False),
        (STATEMENT + "\n", False),
        (STATEMENT[:-1], False),
        (STATEMENT[:-1] + "F", False),
        ("urn:bc:other:" + "0" * 64, False),
        ("spiffe://fleet.example/tenant/acme", False),
    ],
)
def test_only_a_statement_that_renewal_can_prove_is_known(uri: str, known: bool) -> None:  # noqa: FBT001
    assert CRYPTO.knows_key_statement(uri) is known


async def test_a_local_signer_signs_with_its_authority() -> None:
    (made,) = await CRYPTO.signer.issue([order()])

    assert made.der
    assert len(await CRYPTO.signer.chain()) == 1
