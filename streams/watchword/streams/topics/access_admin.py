"""Kafka's own view of who may do what, and applying ours to it. aiokafka has the requests, but no methods for them.

https://kafka.apache.org/protocol: DescribeAcls 29, CreateAcls 30, DescribeClientQuotas 48, AlterClientQuotas 49.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import (
    CreateAclsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
)
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Float64, Int16, Int32, Schema, String

from watchword.streams.topics.access import (
    PRODUCE_QUOTA,
    Access,
    FoundAccess,
    Rule,
    changed_quotas,
    missing_rules,
    ours,
)

_ANY = 1
_ALLOW = 3
_RESOURCES = {"topic": 2, "group": 3}
_PATTERNS = {"literal": 3, "prefixed": 4}
_OPERATIONS = {"read": 3, "write": 4, "describe": 8}
_ALL: Any = None
"""Null in the protocol: no filter. aiokafka's annotations say text."""
_ANY_HOST = "*"
_USER = "user"
_PRINCIPAL = "User:"
_MATCH_ALL = 2
"""`MatchType` of DescribeClientQuotas: any name of the entity, but not the default one."""

Kafka = Any
"""A started `AIOKafkaAdminClient`, whose methods have few annotations."""


class _AlterClientQuotasResponse(Response):
    # As aiokafka's own do it: pyright takes its abstract properties for something else.
    API_KEY = 49  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    API_VERSION = 0  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "entries",
            Array(
                ("error_code", Int16),
                ("error_message", String("utf-8")),
                (
                    "entity",
                    Array(("entity_type", String("utf-8")), ("entity_name", String("utf-8"))),
                ),
            ),
        ),
    )


class _AlterClientQuotasRequestV0(RequestStruct):
    API_KEY = 49
    API_VERSION = 0
    RESPONSE_TYPE = _AlterClientQuotasResponse
    SCHEMA = Schema(
        (
            "entries",
            Array(
                (
                    "entity",
                    Array(("entity_type", String("utf-8")), ("entity_name", String("utf-8"))),
                ),
                ("ops", Array(("key", String("utf-8")), ("value", Float64), ("remove", Boolean))),
            ),
        ),
        ("validate_only", Boolean),
    )


class _AlterClientQuotas(Request[_AlterClientQuotasRequestV0]):
    API_KEY = 49

    def __init__(self, rates: Mapping[str, int]) -> None:
        self._rates = rates

    def build(
        self, request_struct_class: type[_AlterClientQuotasRequestV0]
    ) -> _AlterClientQuotasRequestV0:
        entries = [
            ([(_USER, user)], [(PRODUCE_QUOTA, float(rate), False)])
            for user, rate in self._rates.items()
        ]
        return request_struct_class(entries, False)  # noqa: FBT003 - the protocol's order


async def found_access(client: Kafka, access: Access, topics: Iterable[str]) -> FoundAccess:
    """Return what Kafka allows on our topics and groups, and the quotas of users.

    Raises:
        KafkaError: it has no authorizer (`SecurityDisabled`), or does not let us look.
    """
    own, foreign = await _rules(client, ours(topics, access))
    return FoundAccess(own, await _quotas(client), foreign)


async def apply_access(client: Kafka, access: Access, found: FoundAccess) -> None:
    """Make the rules and set the quotas that are missing; take nothing away. Raises `KafkaError`."""
    for rule in missing_rules(access, found):
        response = await client._send_to_controller(  # noqa: SLF001 - there is no public way
            CreateAclsRequest(
                _RESOURCES[rule.resource],
                rule.name,
                _PATTERNS[rule.pattern],
                rule.principal,
                _ANY_HOST,
                _OPERATIONS[rule.operation],
                _ALLOW,
            )
        )
        for code, message in response.creation_responses:
            _check(code, message, rule.name)
    rates = {
        principal.removeprefix(_PRINCIPAL): rate
        for principal, rate in changed_quotas(access, found).items()
    }
    if rates:
        response = await client._send_to_controller(_AlterClientQuotas(rates))  # noqa: SLF001 - the same
        for code, message, _ in response.entries:
            _check(code, message, PRODUCE_QUOTA)


async def _rules(
    client: Kafka, resources: frozenset[tuple[str, str]]
) -> tuple[frozenset[Rule], list[Rule]]:
    """Return the rules that are of our form, and others on the same resources as far as they can be told."""
    response = await client._send_request(  # noqa: SLF001 - there is no public way
        DescribeAclsRequest(_ANY, _ALL, _ANY, _ALL, _ALL, _ANY, _ANY)
    )
    _check(response.error_code, response.error_message, "access rules")
    kinds, patterns, operations = map(_reversed, (_RESOURCES, _PATTERNS, _OPERATIONS))
    own: set[Rule] = set()
    foreign: list[Rule] = []
    for kind, name, pattern, entries in response.resources:
        if (kinds.get(kind), name) not in resources:
            continue
        for principal, host, operation, permission in entries:
            is_of_ours = permission == _ALLOW and host == _ANY_HOST and operation in operations
            said = operations.get(operation, f"(operation {operation})")
            if not is_of_ours:
                said += f" (permission {permission}, host {host})"
            rule = Rule(principal, kinds[kind], name, patterns.get(pattern, "literal"), said)
            if is_of_ours:
                own.add(rule)
            else:
                foreign.append(rule)
    return frozenset(own), foreign


async def _quotas(client: Kafka) -> dict[str, float]:
    response = await client._send_request(  # noqa: SLF001 - there is no public way
        DescribeClientQuotasRequest([(_USER, _MATCH_ALL, _ALL)], strict=True)
    )
    _check(response.error_code, response.error_message, "quotas")
    return {
        f"{_PRINCIPAL}{entity[0][1]}": value
        for entity, values in response.entries or ()
        for name, value in values
        if name == PRODUCE_QUOTA
    }


def _reversed(codes: Mapping[str, int]) -> dict[int, Any]:
    return {code: name for name, code in codes.items()}


def _check(code: int, message: str | None, what: str) -> None:
    if code:
        kind: type[KafkaError] = for_code(code)
        said = f"{what}: {message or ''}"
        raise kind(said)
