"""Refusals as OCSF, held against OCSF's own schema source."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from tests.support.security_events import ALERT, INVALID, REFUSED, WINDOW
from tests.support.vectors import vector
from watchword.schemas.ocsf import to_ocsf

SECURITY_CONTROL = {"action", "action_id", "disposition", "disposition_id", "is_alert", "policy"}
"""Attributes of the profile `security_control`."""


@cache
def ocsf(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((vector("siem-ocsf") / name).read_text("utf-8"))
    return found


def attributes(file: str, folder: str) -> dict[str, dict[str, Any]]:
    """Return the attributes of a class or object with those that it inherits."""
    described = ocsf(file)
    own = {k: v for k, v in described["attributes"].items() if isinstance(v, dict)}
    parent = described.get("extends")
    if parent is None or parent == "object":
        return own
    places = (f"{folder}/{parent}.json", f"events/{parent}.json", f"events/iam/{parent}.json")
    where = next(p for p in places if (vector("siem-ocsf") / p).exists())
    return {
        name: value | own.get(name, {}) for name, value in attributes(where, folder).items()
    } | {name: value for name, value in own.items() if name not in attributes(where, folder)}


def _class_uid() -> int:
    category = ocsf("categories.json")["attributes"]["iam"]["uid"]
    return int(category) * 1000 + int(ocsf("events/iam/entity_management.json")["uid"])


def _observables() -> list[str]:
    types = ocsf("dictionary.json")["types"]["attributes"]
    return [str(kind["observable"]) for kind in types.values() if "observable" in kind]


_COMPILED = {
    "category_uid": lambda: [str(ocsf("categories.json")["attributes"]["iam"]["uid"])],
    "class_uid": lambda: [str(_class_uid())],
    "type_uid": lambda: [str(_class_uid() * 100 + 6)],
    "observables.type_id": _observables,
}
"""Choices that OCSF's own compiler makes of the source."""


def problems(value: Any, known: dict[str, dict[str, Any]], at: str) -> Iterator[str]:  # noqa: ANN401 - JSON
    for name, rules in known.items():
        if rules.get("requirement") == "required" and name not in value:
            yield f"{at}{name} is missing"
    for name, found in value.items():
        if name not in known:
            yield f"{at}{name} is unknown"
            continue
        entry = ocsf("dictionary.json")["attributes"].get(name, {})
        choices = entry.get("enum", {}) | known[name].get("enum", {})
        if f"{at}{name}" in _COMPILED:
            choices = dict.fromkeys(_COMPILED[f"{at}{name}"]())
        if choices and isinstance(found, int) and str(found) not in choices:
            yield f"{at}{name} is {found}"
        kind = known[name].get("type", entry.get("type", ""))
        file = f"objects/{kind}.json"
        if (vector("siem-ocsf") / file).exists() and kind != "object":
            for inner in found if isinstance(found, list) else [found]:
                yield from problems(inner, attributes(file, "objects"), f"{at}{name}.")


@pytest.mark.vectors
@pytest.mark.parametrize("event", [REFUSED, INVALID, WINDOW], ids=["refused", "invalid", "window"])
def test_every_refusal_is_a_valid_event(event: dict[str, Any]) -> None:
    """A SIEM drops what does not validate, silently."""
    known = attributes("events/iam/entity_management.json", "events/iam")
    profile: dict[str, dict[str, Any]] = {name: {} for name in SECURITY_CONTROL}

    assert list(problems(to_ocsf(event), known | profile, "")) == []


EVENTS = [
    pytest.param(REFUSED, id="refused"),
    pytest.param(
        REFUSED
        | {"sentence": "s", "attack": True, "triedSha256": "4" * 64, "claimedAddress": "192.0.2.7"},
        id="refused, in full",
    ),
    pytest.param(INVALID, id="invalid"),
    pytest.param(WINDOW, id="window"),
    pytest.param(ALERT, id="alert"),
]


@cache
def published_schema(version: str, class_name: str, profiles: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    """Return OCSF's own JSON Schema of a class."""
    schemas = OcsfJsonSchemaEmbedded(get_ocsf_schema(version=version))
    return schemas.get_class_schema(class_name, list(profiles))


@pytest.mark.parametrize("version", ["1.5.0", "1.6.0", "1.7.0", "1.8.0"])
@pytest.mark.parametrize("event", EVENTS)
def test_an_event_is_valid_in_every_version_that_is_in_use(
    event: dict[str, Any], version: str
) -> None:
    """A lake on a newer version takes what 1.5 allows, or drops it without a word."""
    projected = to_ocsf(event)
    name = "detection_finding" if event is ALERT else "entity_management"
    schema = published_schema(version, name, tuple(projected["metadata"]["profiles"]))
    validator = Draft202012Validator(schema)

    assert [error.message for error in validator.iter_errors(projected)] == []
    assert list(validator.iter_errors(projected | {"stray": 1}))
    assert list(validator.iter_errors({k: v for k, v in projected.items() if k != "time"}))


@pytest.mark.vectors
def test_the_check_finds_what_is_wrong() -> None:
    """A check that finds nothing proves nothing."""
    known = attributes("events/iam/entity_management.json", "events/iam")
    broken = to_ocsf(REFUSED) | {"stray": 1, "activity_id": 77}
    del broken["time"]

    found = "; ".join(problems(broken, known | {n: {} for n in SECURITY_CONTROL}, ""))

    assert "stray is unknown" in found
    assert "activity_id is 77" in found
    assert "time is missing" in found


def test_a_machine_is_named_by_what_it_claims_and_says_so() -> None:
    """An analyst must not take a claim for a proof."""
    assert to_ocsf(REFUSED)["entity"]["uid"] == f"claimed:sha256:{'2' * 64}"
    assert to_ocsf(INVALID)["entity"]["uid"] == f"request:sha256:{'3' * 64}"
    assert to_ocsf(REFUSED)["time"] == 1_767_323_045_678
    assert to_ocsf(REFUSED)["status_code"] == "join-token:bad-secret"


def test_a_refusal_stays_small() -> None:
    """Some pipelines split what is above 4 KB."""
    assert len(json.dumps(to_ocsf(REFUSED))) < 4096


def test_what_is_no_refusal_has_no_projection() -> None:
    """Better an error in the relay's log than a lie in the SIEM."""
    with pytest.raises(KeyError):
        to_ocsf({"type": "node.joined"})
