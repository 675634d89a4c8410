"""The tokens that machines show: made by operators, through the product."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Token:
    """A token with its secret."""

    id: str
    secret: bytes = field(repr=False)


class Operator(Protocol):
    """Does what operators do; waits while PostgreSQL is away."""

    async def make_tokens(self, count: int, **order: Any) -> list[Token]:  # noqa: ANN401 - a token's fields
        """Return fresh tokens."""
        ...

    async def revoke_token(self, token: Token) -> None:
        """Let nobody join with this token any more."""
        ...

    async def decide(self, csr_sha256: bytes, word: str) -> bool:
        """Let a waiting join be `approved` or `rejected`; tell whether it was one that waited."""
        ...

    async def tell(self, node: str, kind: str) -> str:
        """Send a command to a node; return its id."""
        ...

    async def ban(self, node: str) -> None:
        """Ban a node, by everything that was proven of it alone."""
        ...


EXPECTED_SERIAL = "serial-that-is-expected"
_STOCK = 300
_MADE_AT_ONCE = 60


@dataclass(slots=True)
class Tokens:
    """What is at hand of each kind."""

    large: list[Token]
    """So many uses that they are never spent."""
    few: list[Token]
    """Some uses, wanted by more machines than there are."""
    revoked: list[Token]
    expired: list[Token]
    of_sites: list[Token]
    """For another role."""
    expecting: list[Token]
    """Expect a serial number that nobody claims."""
    to_revoke: list[Token]
    """Are revoked one after the other, while machines show them."""
    telling: list[Token]
    """Their nodes may be told things."""
    single: deque[Token] = field(default_factory=deque[Token])
    """One use each."""

    @classmethod
    async def made(cls, operator: Operator, *, single: int, few_uses: int) -> "Tokens":
        """Make what a round begins with."""
        make = operator.make_tokens
        revoked = await make(2, uses=10)
        for token in revoked:
            await operator.revoke_token(token)
        return cls(
            large=await make(3, uses=1_000_000),
            few=await make(4, uses=few_uses),
            revoked=revoked,
            expired=await make(2, uses=10, expires_s=0.2),
            of_sites=await make(2, uses=10, role="site"),
            expecting=await make(2, uses=10, expect={"serial": EXPECTED_SERIAL}),
            to_revoke=await make(40, uses=1_000_000),
            telling=await make(2, uses=1_000_000, allowed_kinds=["diag.*"]),
            single=deque(await make(single, uses=1)),
        )

    async def restock(self, operator: Operator) -> None:
        """Make more single-use tokens if they run short."""
        if len(self.single) < _STOCK:
            self.single += await operator.make_tokens(_MADE_AT_ONCE, uses=1)

    @property
    def everyone(self) -> list[Token]:
        """Every token that is known."""
        return [
            *self.large, *self.few, *self.revoked, *self.expired, *self.of_sites,
            *self.expecting, *self.to_revoke, *self.telling, *self.single,
        ]  # fmt: skip
