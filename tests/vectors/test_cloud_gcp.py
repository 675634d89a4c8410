"""A real identity token of a Google instance, and Wycheproof's JOSE vectors."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.vectors import VECTORS, vector
from watchword.handlers.attestors.cloud_iid.config import GcpConfig
from watchword.handlers.attestors.cloud_iid.document import Identity
from watchword.handlers.attestors.cloud_iid.gcp import prove, verify_token
from watchword.handlers.attestors.cloud_iid.jwks import read_key_set
from watchword.handlers.attestors.cloud_iid.reasons import Unproven

pytestmark = pytest.mark.vectors

AUDIENCE = "gcp:Kops Provisioner"
WYCHEPROOF = "gcp-token/wycheproof"
NOT_OURS = {
    # The key set is an operator's copy of Google's: how its keys were made is not judged here.
    "rejectsKeyWithRocaVulnerability",
}


def keys() -> dict[str, rsa.RSAPublicKey]:
    return read_key_set(vector("gcp-token/gce-2019-04/jwks.json").read_bytes())[0]


def token() -> bytes:
    return vector("gcp-token/gce-2019-04/token.jwt").read_bytes().strip()


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "now",
    ["2019-04-17T23:37:48", "2019-04-18T00:37:47", "2019-04-17T23:35:48", "2019-04-18T00:39:47"],
)
def test_what_google_gave_is_taken_in_its_hour(now: str) -> None:
    """With two minutes of leeway on both sides."""
    assert prove(token(), keys(), GcpConfig(), AUDIENCE, at(now)) == Identity(
        "gcp", "kops-dev-2019-01", "3015378661047007286", "us-central1"
    )


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ("2019-04-18T00:39:48", "stale"),
        ("2026-11-29T00:00:00", "stale"),
        ("2019-04-17T23:35:47", "not-yet"),
    ],
)
def test_outside_of_its_hour_it_is_refused(now: str, reason: str) -> None:
    """A token from a log proves a machine of that day."""
    with pytest.raises(Unproven, match=reason):
        prove(token(), keys(), GcpConfig(), AUDIENCE, at(now))


def test_another_audience_is_refused() -> None:
    """This real token was given to another service."""
    with pytest.raises(Unproven, match="audience"):
        prove(token(), keys(), GcpConfig(), "watchword", at("2019-04-18T00:00:00"))


def test_a_changed_payload_is_refused() -> None:
    """Each character of the payload counts."""
    data = bytearray(token())
    for index in range(data.index(b".") + 1, data.rindex(b"."), 7):
        was, data[index] = data[index], ord("A") if data[index] != ord("A") else ord("B")
        with pytest.raises(Unproven, match=r"signature|token"):
            verify_token(bytes(data), keys())
        data[index] = was


def test_googles_keys_of_that_week_are_usable() -> None:
    """A key set with one key that cannot be read would still have the others."""
    found, faults = read_key_set(vector("gcp-token/gce-2019-04/jwks.json").read_bytes())
    assert len(found) == 2
    assert faults == []


def rs256_groups() -> list[Any]:
    """Return the groups whose key set has an RSA key for RS256."""
    if not VECTORS.is_dir():
        return []
    groups = []
    for name in ("json_web_signature_test", "json_web_key_test"):
        path = VECTORS / WYCHEPROOF / f"{name}.json"
        groups += json.loads(path.read_text())["testGroups"]
    return groups


def usable(group: Any) -> dict[str, rsa.RSAPublicKey]:  # noqa: ANN401 - JSON
    key = group.get("public") or group.get("private")
    listed = key.get("keys", [key])
    return read_key_set(json.dumps({"keys": listed}).encode())[0]


def test_wycheproof_has_no_other_opinion_than_ours() -> None:
    """Nothing that it calls invalid passes with any key set, and what RS256 keys signed does."""
    taken = 0
    for group in rs256_groups():
        held = usable(group)
        for case in group["tests"]:
            jws = case["jws"]
            if not isinstance(jws, str):
                continue  # the JSON serialisation, which nobody sends here
            try:
                verify_token(jws.encode(), held)
            except Unproven:
                if held and case["result"] == "valid":
                    # Valid for a general library; here only if the header is a Google token's.
                    assert not plain(jws), case
                continue
            if case["comment"] in NOT_OURS:
                continue
            assert case["result"] in {"valid", "acceptable"}, case
            taken += 1
    assert taken > 0


def plain(jws: str) -> bool:
    """Tell whether the header is one that Google would write."""
    from base64 import urlsafe_b64decode  # noqa: PLC0415 - only for what did not pass

    part = jws.split(".", maxsplit=1)[0]
    header = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return header.keys() <= {"alg", "kid", "typ"} and header["alg"] == "RS256" and "kid" in header
