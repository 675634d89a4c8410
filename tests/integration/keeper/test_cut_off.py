"""PostgreSQL goes away in the middle of a round."""

from itertools import count

import pytest

from tests.support.cut_connections import cut_at
from tests.support.keepers import Options
from tests.support.refusals import refuse
from watchword.handlers.errors import StoreUnavailable
from watchword.handlers.store.connection import Connection
from watchword.streams.keeper.keeper import Keeper

pytestmark = pytest.mark.postgres


async def test_a_keeper_outlives_the_end_of_its_connection_at_whatever_statement(
    connection: Connection, options: Options
) -> None:
    """A keeper that ends for it is one less until somebody starts it again, in the middle of an outage."""
    await refuse(connection, 3)
    keeper = Keeper(options(credentials_s=0.0))

    worked, nth = False, 0
    for nth in count(1):
        with cut_at(nth) as statements:
            try:
                worked = await keeper.step()
            except StoreUnavailable:
                continue
        if statements.begun < nth:
            break
    await keeper.close(is_idle=True)

    assert worked
    assert nth > 20, "hardly a whole round"
