"""Somebody is told when joins begin to wait."""

import asyncio
import hmac
import json
from hashlib import sha256

import pytest

from tests.support.arrivals import waits
from tests.support.http_service import Answer, Call, serving
from tests.support.joins import Bench
from tests.support.operators import Desks
from tests.support.waiting import until
from watchword.streams.console.webhook import SIGNATURE_HEADER, Webhook

pytestmark = pytest.mark.postgres

KEY = b"w" * 32


async def test_what_waits_is_told_once_signed_and_again_until_it_is_taken(
    bench: Bench, console: Desks
) -> None:
    """Nobody looks at a console all day; and a receiver must know that it is us, and not be flooded."""
    calls: list[Call] = []

    async def take(call: Call) -> Answer:
        calls.append(call)
        return Answer(500 if len(calls) == 1 else 204)

    async with serving(take) as url:
        webhook = Webhook(
            url=f"{url}/hook", key=KEY, rest_s=0.05, public_url="https://w.example", look_s=0.02
        )
        telling = asyncio.create_task(webhook.keep(console.database))
        try:
            await waits(bench, "m1")
            await until(lambda: len(calls) == 2, "it is told, and told again")
            await waits(bench, "m2")
            await until(lambda: len(calls) >= 3, "what is new is told")
        finally:
            telling.cancel()
            await asyncio.wait([telling])

    told = [json.loads(call.body) for call in calls]
    assert [one["waiting"] for one in told] == [1, 1, 2]
    assert told[0]["url"] == "https://w.example/waiting"
    for call in calls:
        signature = "sha256=" + hmac.digest(KEY, call.body, sha256).hex()
        named = {name.lower(): value for name, value in call.headers.items()}
        assert named[SIGNATURE_HEADER.lower()] == signature
        assert b"m1" not in call.body
