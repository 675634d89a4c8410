"""The cases, by number: what went wrong for others in a few words, and which tests show that it does not here.

The number is the name of `@pytest.mark.case`. Tests that show a case beside what they are for stand in
`SHOWN_BY` and are not marked. A case without a test is in `OPEN` or in `NOT_OURS`, and why; the table says so.
"""

from collections.abc import Mapping

CASES: Mapping[str, str] = {
    "B02": "a pinned certificate of a cloud's expired, and joins failed in twelve regions",
    "B03": "new regions were refused until a release, because anchors came only with code",
    "B04": "anchors in two places: the service's were renewed, the client's were not",
    "B07": "a cloud's error text was passed on, and nobody could tell a bad scope from a bad key",
    "B09": "a frozen list of hosts refused a new region for 15 months",
    "B11": "a nonce of first use was kept in memory, and its loss locked machines out",
    "B12": "one lost machine could be let back in only by a switch for all",
    "B14": "one unreadable anchor, or one of a new kind of key, broke all",
    "B20": "single machines failed although those of scale sets worked",
    "B24": "a null in a cloud's answer became an internal error",
    "B25": "an identity was looked for in one of the two places where it can be",
    "B26": "a platform caches its token for a day, and the second request looked like a replay",
    "B27": "a source of evidence was away, and the process ended in a loop",
    "B30": "a token without its optional part raised an exception",
    "B31": "an attribute that a machine's owner can set decided on its role",
    "B35": "an endorsement certificate came behind a vendor's prefix",
    "B36": "one vendor's root that could not be parsed broke the whole check",
    "B38": "an endorsement certificate was looked at after state had been written",
    "B39": "one kind of endorsement key was supported, others were not",
    "B42": "an unknown curve made a check be skipped",
    "B43": "a kind of key could be made and not verified",
    "B44": "chips differ in the length of a signature's salt",
    "B46": "another bank of measurements was reported as tampering",
    "B47": "a challenge's nonce had become a constant, and answers could be replayed",
    "B48": "new kinds of events in a log refused healthy machines",
    "B49": "a register that does not start at zero",
    "B50": "registers that no policy names were judged",
    "B51": "a log was absent for a good reason",
    "B52": "an endorsement certificate from a service, in another form",
    "B53": "a passing error of a chip was taken for an attack",
    "B54": "a missing field was reported, and the code went on and broke",
    "B55": "a key that was far too short was passed on",
    "B56": "one certificate on many machines: they displaced each other for ever",
    "B57": "a repeated join hit a constraint and surfaced as an unknown error",
    "B59": "a crafted chain or key cost the server large CPU",
    "B62": "a name of the CSR was copied twice into the certificate",
    "B63": "an empty subject without a critical alternative name",
    "B64": "a CSR without a field that others leave out broke the parser",
    "B65": "a name policy was too rigid, and its switch refused everything",
    "B67": "a CSR named another node, and the names were copied",
    "B68": "no way to cap the names of a CSR",
    "B69": "a policy that was loaded in part refused for good",
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
    "B82": "a flood stopped everybody, and limits hit the innocent",
    "B83": "events of refusals named nobody, and logs showed the secret",
    "B84": "local time zones and clocks that were wrong decided otherwise",
}

_AGENT = "tests/unit/streams/agent"
_CRYPTO = "tests/unit/handlers/crypto"

SHOWN_BY: Mapping[str, tuple[str, ...]] = {
    # An agent has no anchors of a cloud: their module is not among those that it imports.
    "B04": (
        "tests/unit/streams/cli/test_imports.py::test_the_agents_commands_import_no_server_part",
    ),
    "B27": (f"{_AGENT}/test_challenges.py::test_nothing_is_sent_while_there_is_no_evidence",),
    "B64": (
        f"{_CRYPTO}/test_csr.py::test_a_csr_without_the_attributes_field_is_malformed",
        f"{_CRYPTO}/test_csr.py::test_every_truncation_is_malformed",
    ),
    "B69": (
        "tests/integration/worker/test_requests.py::test_nothing_is_fetched_while_requests_cannot_be_judged",
    ),
    "B72": (
        f"{_AGENT}/test_resuming.py::test_machine_that_dies_at_any_write_joins_when_it_comes_back",
    ),
    "B82": (
        "tests/integration/gateway/test_joining.py::test_junk_in_a_flood_never_reaches_kafka_and_keeps_nobody_out",
    ),
    "B83": (
        "tests/integration/join/test_join_token.py::test_refusal_says_nothing_outside_and_everything_inside",
        f"{_AGENT}/test_joining.py::test_nothing_secret_is_said",
    ),
    "B84": (
        f"{_CRYPTO}/test_authority.py::test_time_zones_change_nothing",
        f"{_AGENT}/test_joining.py::test_machine_with_a_wrong_clock_joins",
    ),
}
"""Tests by node id, without parameters."""

OPEN: Mapping[str, str] = {
    "B04": "the agent cannot show a cloud's document yet",
    "B07": "no cloud's API is asked: `cloud-iid` judges signed documents alone",
    "B09": "no cloud's API is asked: `cloud-iid` judges signed documents alone",
    "B12": "operators cannot grant a reclaim yet",
    "B31": "no test shows which attributes of a cloud's document reach a policy",
    "B52": "the agent cannot read a TPM's certificates yet",
    "B53": "the agent cannot ask a TPM yet",
}
"""What is missing for cases that no test shows. An entry speaks only as long as there is none."""

NOT_OURS: Mapping[str, str] = {
    # The managed identities of a virtual machine were looked up in the provider's API, which lists them in two places.
    "B25": "an instance is what its signed document says (Azure: `vmId`, of whatever made the machine);"
    " no list of identities is read, so there is no second place to look in",
}
"""Cases that cannot come up here, and why."""
