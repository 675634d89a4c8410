"""PostgreSQL goes away in the middle of a batch, at one statement after the other."""

from itertools import count

import pytest

from tests.support.attestors.scripted import Script, Scripted
from tests.support.cut_connections import cut_at
from tests.support.joins import code, join_bench
from tests.support.lanes import NOTE, prepare
from tests.support.renewals import Node, joined

pytestmark = pytest.mark.postgres


async def test_a_batch_comes_to_the_same_at_whatever_statement_its_connection_ends(
    database: str,
) -> None:
    """A statement whose loss is taken for somebody's fault costs a machine its answer, in every outage."""
    lane = Scripted("lane", uses_tx=True)
    async with join_bench(database, attestors=[Scripted(), lane]) as bench:
        token = await bench.token(uses=1000)
        await prepare(bench)
        node = await joined(bench)
        admitted = Script(statements=(NOTE,)).encode()
        refused = Script("refuse", "no", statements=(NOTE,)).encode()

        nth = 0
        for nth in count(1):
            next_key = bench.machine()
            requests = [
                bench.machine().request(token.payload),
                bench.machine().request(token.payload[:-1] + b"\0"),
                bench.machine().request(Script(rounds=2).encode(), attestor="scripted"),
                bench.machine().request(admitted, attestor="lane"),
                bench.machine().request(refused, attestor="lane"),
                node.renewal(next_key),
            ]
            with cut_at(nth) as statements:
                answers = await bench.ask(*requests)
            told = [code(answer) for answer in answers]
            assert told == ["joined", "refused", "deferred", "joined", "refused", "joined"], nth
            node = Node.of(next_key, answers[-1])
            if statements.begun < nth:
                break
        spent = await bench.one("SELECT uses_total - uses_left FROM tokens WHERE id = $1", token.id)
        notes = await bench.one("SELECT count(*) FROM notes")
        refusals = await bench.one("SELECT count(*) FROM refusals")
        nodes = await bench.one("SELECT count(*) FROM nodes")

    assert nth > 30, "hardly a whole batch"
    assert spent == nth
    assert notes == nth
    assert refusals == 2 * nth
    assert nodes == 2 * nth + 1
