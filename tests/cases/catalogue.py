"""The cases, by number: what went wrong for others in a few words, and why some are not shown by a test here.

The number is the name of `@pytest.mark.case`. A case is in `CASES` and has a test, or in `NOT_OURS`.
"""

from collections.abc import Mapping

CASES: Mapping[str, str] = {
    "B47": "a challenge's nonce had become a constant, and answers could be replayed",
    "B56": "one certificate on many machines: they displaced each other for ever",
    "B57": "a repeated join hit a constraint and surfaced as an unknown error",
    "B59": "a crafted chain or key cost the server large CPU",
    "B62": "a name of the CSR was copied twice into the certificate",
    "B63": "an empty subject without a critical alternative name",
    "B65": "a name policy was too rigid, and its switch refused everything",
    "B67": "a CSR named another node, and the names were copied",
    "B68": "no way to cap the names of a CSR",
    "B71": "the token was consumed, the answer lost: neither token nor identity was left",
    "B72": "a repeat after a crash was taken for theft",
    "B73": "one bad instance locked all others of its token",
    "B74": "evicted, banned and deleted were mixed; a ban could be walked round",
    "B75": "a ban that came during attestation was overwritten",
    "B76": "a request with bad proof changed another machine's state",
    "B77": "equal, all-zero and all-F product UUIDs made one machine of several",
    "B78": "a stored state without any operator's action left a machine stuck",
    "B79": "a rediscovered host collided with the managed one",
    "B80": "a MAC address was believed",
    "B81": "one MAC in several spellings made several machines",
}

NOT_OURS: Mapping[str, str] = {
    "B64": "shown by tests/unit/handlers/crypto/test_csr.py::test_a_csr_without_the_attributes_field_is_malformed: "
    "one documented way, malformed",
    "B69": "shown by tests/integration/worker/test_requests.py::test_nothing_is_fetched_while_requests_cannot_be_judged: "
    "a worker is not ready before everything is loaded, and a deny policy is none of ours to be first",
}
"""Neither marked nor forgotten."""
