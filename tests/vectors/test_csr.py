"""Certificate signing requests from other projects' test suites, good and bad."""

from binascii import a2b_base64

import pytest

from tests.support.vectors import vector
from watchword.handlers.crypto.csr import check_possession, load_csr
from watchword.handlers.errors import InvalidInput

pytestmark = pytest.mark.vectors

VERDICTS = {
    "bad-version.pem": "csr-malformed",
    "basic_constraints.pem": "csr-signature",
    "challenge-invalid.der": "csr-signature",
    "challenge-multi-valued.der": "csr-malformed",
    "challenge-unstructured.pem": None,
    "dsa_sha1.der": "weak-key",
    "dsa_sha1.pem": "weak-key",
    "ec_sha256.der": None,
    "ec_sha256.pem": None,
    "freeipa-bad-critical.pem": "csr-malformed",
    "invalid_signature.pem": "weak-key",
    "long-form-attribute.pem": "csr-malformed",
    "rsa_md4.pem": "csr-signature",
    "rsa_sha1.der": "csr-signature",
    "rsa_sha256.der": None,
    "san_rsa_sha1.der": "csr-signature",
    "san_rsa_sha1.pem": "csr-signature",
    "smallstep-ed25519.csr": None,
    "smallstep-foo.csr": None,
    "smallstep-rsa.csr": None,
    "smallstep-short-rsa.csr": "weak-key",
    "unsupported_extension.pem": "csr-signature",
}


def der_of(name: str) -> bytes:
    """Return the DER of a request in either form, without asking whether we can parse it."""
    data = vector(f"csr/{name}").read_bytes()
    if b"-----BEGIN" not in data:
        return data
    _, armoured = data.split(b"REQUEST-----", 1)
    return a2b_base64(armoured.split(b"-----END", 1)[0])


def test_every_vector_has_a_verdict() -> None:
    """A file that nobody judged tests nothing."""
    assert {path.name for path in vector("csr").iterdir()} == VERDICTS.keys()


@pytest.mark.parametrize(("name", "reason"), VERDICTS.items())
def test_each_is_taken_or_refused_for_its_reason(name: str, reason: str | None) -> None:
    """What other implementations got wrong once."""
    encoded = der_of(name)

    if reason is None:
        check_possession(load_csr(encoded))
        return
    with pytest.raises(InvalidInput) as caught:
        check_possession(load_csr(encoded))
    assert caught.value.reason == reason
