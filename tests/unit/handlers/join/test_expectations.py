"""What a token expects of a machine's claims."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchword.handlers.hardware_ids import canonical_mac
from watchword.handlers.join.expectations import meets
from watchword.schemas.requests import Claims

CLAIMS = Claims(
    product_uuid="4C4C4544-0042-3010-8046-b6c04f4d4e32",
    serial="B0FMN2",
    macs=("02:42:ac:11:00:02", "AABB.CCDD.EEFF"),
    hardware_key="ek:1234",
)


@pytest.mark.parametrize(
    "spelling",
    [
        "02:42:ac:11:00:02",
        "02-42-AC-11-00-02",
        "0242.ac11.0002",
        "0242AC110002",
        " 02:42:AC:11:00:02\n",
    ],
)
def test_mac_is_the_same_in_every_spelling(spelling: str) -> None:
    """Operators copy it from labels, switches and `ip link`, which all write it in their own way."""
    assert canonical_mac(spelling) == "0242ac110002"
    assert meets({"mac": spelling}, CLAIMS)


@pytest.mark.parametrize(
    "none", ["", "02:42:ac:11:00", "02:42:ac:11:00:02:03", "zz:42:ac:11:00:02", "٠٢:42:ac:11:00:02"]
)
def test_what_is_no_mac_meets_nothing(none: str) -> None:
    """Two things that are no addresses must not be the same address."""
    assert canonical_mac(none) is None
    assert not meets({"mac": none}, Claims(macs=(none[:32],)))


@given(st.binary(min_size=6, max_size=6), st.sampled_from((":", "-", "")), st.booleans())
def test_spellings_of_any_address_agree(address: bytes, separator: str, upper: bool) -> None:  # noqa: FBT001 - hypothesis gives it
    spelling = address.hex(separator) if separator else address.hex()
    assert canonical_mac(spelling.upper() if upper else spelling) == address.hex()


@pytest.mark.parametrize(
    ("expect", "met"),
    [
        ({}, True),
        ({"productUuid": "4c4c4544-0042-3010-8046-B6C04F4D4E32"}, True),
        ({"productUuid": "4c4c4544-0042-3010-8046-000000000000"}, False),
        ({"serial": "B0FMN2"}, True),
        ({"serial": "b0fmn2"}, False),
        ({"mac": "aa:bb:cc:dd:ee:ff"}, True),
        ({"mac": "aa:bb:cc:dd:ee:00"}, False),
        ({"hardwareKey": "ek:1234"}, True),
        ({"hardwareKey": "EK:1234"}, False),
        ({"node": "anything"}, True),
        ({"serial": "B0FMN2", "mac": "02:42:ac:11:00:02"}, True),
        ({"serial": "B0FMN2", "mac": "00:00:00:00:00:00"}, False),
        ({"hostname": "web-1"}, False),
        ({"Serial": "B0FMN2"}, False),
        ({"": ""}, False),
    ],
    ids=str,
)
def test_every_expectation_has_to_be_met(expect: dict[str, str], met: bool) -> None:  # noqa: FBT001 - a table
    """One that nobody knows is not met: a misspelt one must not let everybody in."""
    assert meets(expect, CLAIMS) is met


@pytest.mark.parametrize("name", ["productUuid", "serial", "mac", "hardwareKey"])
def test_machine_that_claims_nothing_meets_nothing(name: str) -> None:
    assert not meets({name: "None"}, Claims())
    assert not meets({name: ""}, Claims())
