"""One request has one spelling."""

import time

import pytest

from tests.support.gateway import make_request
from watchword.schemas.canonical import canonical
from watchword.schemas.errors import SchemaError, WrongShape
from watchword.schemas.requests import JoinRequest

GOOD = make_request()


@pytest.mark.parametrize("version", [b"1.0", b"true", b"1e0", b'"1"', b"2", b"null"])
def test_only_the_integer_is_the_version(version: bytes) -> None:
    """`1.0` and `true` equal 1 in Python: a relay could have sent one seal under several digests."""
    with pytest.raises(SchemaError):
        JoinRequest.read(GOOD.replace(b'"version":1', b'"version":' + version))


def test_a_flood_of_unknown_fields_costs_next_to_nothing() -> None:
    """Half a second for one record would stop a worker's loop; parsing alone takes 30 ms."""
    body = canonical({f"k{number:06}": 0 for number in range(30_000)})

    def seconds() -> float:
        started = time.perf_counter()
        with pytest.raises(WrongShape):
            JoinRequest.read(body)
        return time.perf_counter() - started

    assert min(seconds() for _ in range(3)) < 0.2
