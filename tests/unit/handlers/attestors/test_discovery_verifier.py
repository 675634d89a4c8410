"""The verdict on a site agent's word: each fact about key and assertion decides, without a server."""

from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.ramdisks import GRANT, KEY, LOCAL, RAMDISK, SITE, Boot, known
from watchword.handlers.attestor import Admission
from watchword.handlers.attestors.discovery.evidence import MAX_ASSERTION_BYTES, TYP
from watchword.handlers.attestors.discovery.reasons import REASONS
from watchword.handlers.attestors.discovery.verifier import KINDS, DiscoveryAttestor
from watchword.handlers.crypto.jws import JwsSigner
from watchword.schemas.canonical import length_prefixed


def test_known_machine_is_rekeyed_in_its_place_and_its_assertion_used_up() -> None:
    """Tenant, pool, site and kinds are the key's, and never the machine's; a nonce is kept for an hour and a minute longer than it is good."""
    one = known()
    assert one.verdict() == replace(GRANT, node_id=RAMDISK)
    nonce = sha256(length_prefixed(b"k1", one.nonce())).digest()
    kept = timedelta(minutes=5) + timedelta(minutes=1) + timedelta(hours=1)
    assert one.uses == [(nonce, one.desk.now + kept)]


def test_what_is_published_of_the_attestor_is_what_it_was_released_with() -> None:
    """Its id stands in tables and refusals; what a ramdisk may ever be told is a promise to whoever boots one."""
    attestor = DiscoveryAttestor()
    assert (attestor.id, attestor.version) == ("discovery", "1")
    assert attestor.roles == {"ramdisk"}
    assert attestor.reasons is REASONS
    assert KINDS == (
        "inventory.refresh",
        "logs.collect",
        "diag.*",
        "disk.wipe",
        "deploy.*",
        "boot.kexec",
    )


@pytest.mark.parametrize(
    ("reason", "site", "said"),
    [
        ("site-revoked", {"revoked": True, "expires_at": timedelta(0)}, {}),
        ("site-expired", {"expires_at": timedelta(0)}, {"site": "paris"}),
        ("site-expired", {"expires_at": -timedelta(days=1)}, {}),
        ("other-site", {}, {"site": "aachen", "csr_sha256": bytes(32)}),
        ("other-site", {}, {"site": "zurich"}),
        ("other-csr", {}, {"csr_sha256": bytes(32), "expires_at": timedelta(days=-1)}),
        ("other-csr", {}, {"csr_sha256": b"\xff" * 32}),
        ("stale", {}, {"expires_at": -timedelta(minutes=1)}),
        ("stale", {}, {"expires_at": -timedelta(days=1)}),
        ("too-long", {}, {"expires_at": timedelta(minutes=16, milliseconds=1)}),
        ("too-long", {}, {"expires_at": timedelta(days=1)}),
        ("no-machine", {}, {"product_uuid": None, "macs": [LOCAL]}),
        ("no-machine", {}, {"product_uuid": "0" * 32, "macs": []}),
    ],
)
def test_first_fact_that_fails_is_the_reason(
    reason: str, site: dict[str, Any], said: dict[str, Any]
) -> None:
    """Each is told with the tenant, which the signature has authenticated; the machine is known and an operator agrees, to no avail."""
    one = known()
    one.desk.facts.agrees = True
    for given in (site, said):
        if "expires_at" in given:
            given["expires_at"] = one.desk.now + given["expires_at"]
    one.site, one.said = replace(SITE, **site), said
    found = one.refusal()
    assert (found.reason, found.tenant_id) == (reason, "acme")


@pytest.mark.parametrize(
    "good_for",
    [
        -timedelta(minutes=1) + timedelta(milliseconds=1),
        timedelta(0),
        timedelta(minutes=16),
    ],
)
def test_assertion_is_good_to_its_last_moment_by_a_clock_a_minute_off(good_for: timedelta) -> None:
    """A site's clock is behind ours, or before: a minute either way turns no machine away."""
    one = known()
    one.site = replace(SITE, expires_at=one.desk.now + timedelta(microseconds=1))
    one.said = {"expires_at": one.desk.now + good_for}
    assert isinstance(one.verdict(), Admission)
    assert one.uses[0][1] == one.desk.now + good_for + timedelta(minutes=61)


def sized(length: int) -> Boot:
    """Return a machine with a token of so many bytes that a site's key has signed, of no assertion's shape."""
    for kid in ("k1", "key1", "the-key1"):  # Base64 has not every length behind each header
        key = JwsSigner(kid, Ed25519PrivateKey.from_private_bytes(bytes(32)))
        body = (length - len(key.sign(b"", TYP))) * 3 // 4
        token = key.sign(b"x" * body, TYP)
        if len(token) == length:
            return Boot(replace(SITE, kid=kid), payload=token)
    raise AssertionError(length)


def test_key_of_nobodys_and_signatures_that_do_not_hold_authenticate_no_tenant() -> None:
    """Else whoever makes up a token writes into a tenant's stream."""
    forger = JwsSigner("k1", Ed25519PrivateKey.generate())
    for one, reason in (
        (Boot(None), "unknown-site"),
        (Boot(payload=forger.sign(b"{}", TYP)), "bad-signature"),
        (Boot(payload=KEY.sign(b"{}", "watchword-response")), "bad-signature"),
        (Boot(payload=b"junk"), "malformed"),
    ):
        found = one.refusal()
        assert (found.reason, found.tenant_id) == (reason, None)


def test_assertion_is_read_up_to_its_bound_and_no_further() -> None:
    """Beyond the bound no key is looked up and nothing is verified; up to it, nonsense under a signature is its tenant's."""
    for length, tenant in ((MAX_ASSERTION_BYTES, "acme"), (MAX_ASSERTION_BYTES + 1, None)):
        found = sized(length).refusal()
        assert (found.reason, found.tenant_id) == ("malformed", tenant)
