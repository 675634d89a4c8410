"""Refusals as ECS, held against ECS's own field definitions."""

from collections.abc import Iterator
from functools import cache
from ipaddress import ip_address
from typing import Any

import pytest
import yaml

from tests.support.security_events import ALERT, INVALID, REFUSED, WINDOW
from tests.support.vectors import vector
from watchword.schemas.ecs import to_ecs

EVENTS = [
    pytest.param(
        REFUSED | {"claimedAddress": "192.0.2.7", "sentence": "s", "triedSha256": "4" * 64},
        id="refused",
    ),
    pytest.param(INVALID, id="invalid"),
    pytest.param(WINDOW, id="window"),
    pytest.param(ALERT, id="alert"),
]

_ABSENT = frozenset(
    ("ecs.version", "organization.id", "rule.name", "rule.ruleset", "device.id", "transaction.id")
)
"""Fields of sets that the copy of the definitions beside this repository leaves out."""


@cache
def fields() -> dict[str, dict[str, Any]]:
    text = (vector("siem-ecs") / "ecs_flat-open.yml").read_text("utf-8")
    found: dict[str, dict[str, Any]] = yaml.load(text, Loader=yaml.CSafeLoader)
    return found


def leaves(value: dict[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    for name, found in value.items():
        if isinstance(found, dict) and name != "labels":
            yield from leaves(found, f"{at}{name}.")
        else:
            yield f"{at}{name}", found


@pytest.mark.vectors
@pytest.mark.parametrize("event", EVENTS)
def test_every_field_is_one_of_ecs_and_of_its_type(event: dict[str, Any]) -> None:
    """A field of another type fails the whole document in Elasticsearch."""
    known = fields()
    for name, value in leaves(to_ecs(event)):
        if name in _ABSENT and name not in known:
            continue
        assert name in known, name
        rules = known[name]
        is_list = "array" in rules.get("normalize", [])
        assert isinstance(value, list) == is_list, name
        allowed = {one["name"] for one in rules.get("allowed_values", [])}
        for one in value if is_list else [value]:
            assert not allowed or one in allowed, (name, one)
            match rules["type"]:
                case "long":
                    assert isinstance(one, int), name
                case "ip":
                    ip_address(one)
                case "object":
                    assert all(isinstance(v, str) for v in one.values()), name
                case _:
                    assert isinstance(one, str), name


@pytest.mark.vectors
def test_the_type_is_one_that_its_category_expects() -> None:
    """ECS: `denied` is no type of `iam`."""
    iam = next(v for v in fields()["event.category"]["allowed_values"] if v["name"] == "iam")
    made = to_ecs(REFUSED)["event"]
    assert set(made["type"]) <= set(iam["expected_event_types"])


def test_a_claim_is_named_as_one() -> None:
    """An analyst must not take it for a proof."""
    assert to_ecs(REFUSED)["device"]["id"].startswith("claimed:sha256:")
    assert to_ecs(REFUSED)["event"]["id"] == REFUSED["id"]
    with pytest.raises(KeyError):
        to_ecs({"type": "node.joined"})
