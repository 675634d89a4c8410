"""Every operation of the API. Routes and description are made from this list, so that neither knows more than the other."""

from watchword.streams.console.api import (
    bans,
    commands,
    nodes,
    reclaims,
    refusals,
    requests,
    tokens,
    whole,
)
from watchword.streams.console.api.operation import Operation

OPERATIONS: tuple[Operation, ...] = (
    *whole.OPERATIONS,
    *requests.OPERATIONS,
    *nodes.OPERATIONS,
    *commands.OPERATIONS,
    *reclaims.OPERATIONS,
    *bans.OPERATIONS,
    *tokens.OPERATIONS,
    *refusals.OPERATIONS,
)
