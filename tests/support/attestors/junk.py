"""Everything that no attestor should return, raise, stage or read."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from watchword.handlers.attestor import (
    Admission,
    Approval,
    Challenge,
    JoinContext,
    Refuser,
    Subject,
)
from watchword.handlers.errors import Refused
from watchword.schemas.ids import TenantId

JUNK: tuple[str, ...] = (
    "none",
    "text",
    "true",
    "tenant-nul",
    "tenant-number",
    "pool-nul",
    "pool-surrogate",
    "pool-number",
    "pool-long",
    "site-number",
    "role-unknown",
    "role-list",
    "node-text",
    "node-number",
    "token-nul",
    "token-number",
    "bind-short",
    "bind-text",
    "bind-bytearray",
    "kinds-text",
    "kinds-numbers",
    "kinds-list",
    "key-uri-number",
    "hardware-key-nul",
    "hardware-key-surrogate",
    "hardware-key-number",
    "hardware-key-long",
    "subjects-text",
    "subjects-nul",
    "subjects-many",
    "spend-nul",
    "spend-number",
    "spend-mixed",
    "use-text",
    "use-short",
    "use-naive",
    "use-past",
    "challenge-text",
    "challenge-long",
    "challenge-no-state",
    "challenge-naive",
    "challenge-spends",
    "approval-short",
    "approval-no-grant",
    "refuse-number",
    "refuse-list",
    "refuse-core",
    "reads-nul",
    "reads-number",
    "reads-node-text",
    "reads-binding-text",
    "memory",
    "recursion",
    "cancel",
    "exit",
)
"""Every junk that `junk` knows."""


async def junk(kind: str, refuse: Refuser, context: JoinContext) -> Any:  # noqa: ANN401, C901, PLR0911, PLR0912 - a list of wrongs
    """Return, raise, stage or read what no attestor should."""
    good = Admission(tenant=TenantId("acme"), role=context.role, pool="web")
    stranger: Any = good
    any_context: Any = context
    wrong: dict[str, dict[str, Any]] = {
        "tenant-nul": {"tenant": "a\0b"},
        "tenant-number": {"tenant": 5},
        "pool-nul": {"pool": "a\0b"},
        "pool-surrogate": {"pool": "\ud800"},
        "pool-number": {"pool": 5},
        "pool-long": {"pool": "p" * 100_000},
        "site-number": {"site": 5},
        "role-unknown": {"role": "king"},
        "role-list": {"role": ["node"]},
        "node-text": {"node_id": "0190163d-8694-739b-aea5-966c26f8ad91"},
        "node-number": {"node_id": 5},
        "token-nul": {"token_id": "a\0b"},
        "token-number": {"token_id": 5},
        "bind-short": {"bind": b"short"},
        "bind-text": {"bind": "x" * 32},
        "bind-bytearray": {"bind": bytearray(32)},
        "kinds-text": {"allowed_kinds": "disk.wipe"},
        "kinds-numbers": {"allowed_kinds": (5,)},
        "kinds-list": {"allowed_kinds": ["disk.wipe"]},
        "key-uri-number": {"node_key_uri": 5},
        "hardware-key-nul": {"hardware_key": "a\0b"},
        "hardware-key-surrogate": {"hardware_key": "\ud800"},
        "hardware-key-number": {"hardware_key": 5},
        "hardware-key-long": {"hardware_key": "k" * 100_000},
        "subjects-text": {"subjects": "ek"},
        "subjects-nul": {"subjects": (Subject("ek", "a\0b"),)},
        "subjects-many": {"subjects": tuple(Subject("ek", str(n)) for n in range(1000))},
    }
    if kind in wrong:
        return replace(stranger, **wrong[kind])
    later = context.now + timedelta(minutes=1)
    match kind:
        case "none":
            return None
        case "text":
            return "admitted"
        case "true":
            return True
        case "spend-nul":
            any_context.spend("a\0b")
        case "spend-number":
            any_context.spend(5)
        case "spend-mixed":
            any_context.spend("0123456789abcdef")
            any_context.spend(5)
        case "use-text":
            any_context.use_once("x" * 32)
        case "use-short":
            any_context.use_once(b"x")
        case "use-naive":
            context.use_once(bytes(32), expires_at=datetime(2200, 1, 1))  # noqa: DTZ001 - the junk
        case "use-past":
            context.use_once(bytes(32), expires_at=context.now)
        case "challenge-text":
            return Challenge("text", b"state", later)  # type: ignore[arg-type]
        case "challenge-long":
            return Challenge(bytes(1 << 20), b"state", later)
        case "challenge-no-state":
            return Challenge(b"c", None, later)  # type: ignore[arg-type]
        case "challenge-naive":
            return Challenge(b"c", b"state", datetime(2200, 1, 1))  # noqa: DTZ001 - the junk
        case "challenge-spends":
            context.use_once(bytes(32))
            return Challenge(b"c", context.seal_state(b"s", timedelta(minutes=1)), later)
        case "approval-short":
            return Approval(b"short", good)
        case "approval-no-grant":
            return Approval(bytes(32), "grant")  # type: ignore[arg-type]
        case "refuse-number":
            raise refuse(5)  # type: ignore[arg-type]
        case "refuse-list":
            raise refuse(["no"], tenant_id=["acme"])  # type: ignore[arg-type]
        case "refuse-core":
            raise Refused("join", "banned\0", tenant_id="\ud800")  # type: ignore[arg-type]
        case "reads-nul" | "reads-number" | "reads-node-text" | "reads-binding-text":
            return await _read(kind, any_context)
        case "memory":
            return bytearray(1 << 62)
        case "recursion":
            return await junk(kind, refuse, context)
        case "cancel":
            raise asyncio.CancelledError
        case "exit":
            raise SystemExit(3)
        case _:
            raise AssertionError(kind)
    return good


async def _read(kind: str, context: Any) -> Any:  # noqa: ANN401 - junk
    match kind:
        case "reads-nul":
            return await context.tokens.get("a\0b")
        case "reads-number":
            return await context.tokens.get(5)
        case "reads-node-text":
            return await context.nodes.get("no uuid")
        case _:
            return await context.bindings.get("x" * 32)
