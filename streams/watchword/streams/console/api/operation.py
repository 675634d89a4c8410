"""One operation of the API: what it takes, what it answers, and which function of the desk it is."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from watchword.handlers.operators.access import OperatorRole
from watchword.handlers.operators.desk import Desk
from watchword.handlers.operators.refusals import Reasons
from watchword.streams.console.api.shapes import Shape
from watchword.streams.console.office import Office
from watchword.streams.console.patterns import ONE_LINE, SHA256

Short = Annotated[
    str,
    StringConstraints(min_length=1, max_length=512, pattern=ONE_LINE),
]
Why = Annotated[str, Field(max_length=1000, description="For the audit log.")]
Digest = Annotated[
    str, StringConstraints(pattern=SHA256), Field(description="SHA-256, hexadecimal")
]
Limit = Annotated[int, Field(ge=1, le=1000, description="Length of a page")]

_FIRST, _LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


def _within(moment: datetime) -> datetime:
    if not _FIRST <= moment <= _LAST:
        message = "a time from 2000 to 2200"
        raise ValueError(message)
    return moment


Moment = Annotated[AwareDatetime, AfterValidator(_within)]


class Given(BaseModel):
    """What a caller gives: the query of a GET, the body of a POST. Nothing else may be there."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        alias_generator=to_camel,
        populate_by_name=False,
    )


class Nothing(Given):
    """Nothing is given."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows, and what `after` (or `before`) of the next page is; None at the end."""

    items: Sequence[Mapping[str, Any]]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Lines:
    """A stream of JSON lines (or of CEF)."""

    lines: AsyncIterator[str]


@dataclass(frozen=True, slots=True)
class Asked:
    """What an operation works with: the caller's desk, the parts of the path, and the console's office."""

    desk: Desk
    office: Office
    path: Mapping[str, str]

    @property
    def reasons(self) -> Reasons:
        """What reasons mean."""
        return self.office.reasons


Result = Mapping[str, Any] | Page | Lines

Run = Callable[[Asked, Any], Awaitable[Result]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One resource and method."""

    id: str
    method: Literal["GET", "POST"]
    path: str
    """Below `/api/v1`; parts in braces."""
    summary: str
    role: OperatorRole
    answers: Shape
    is_page: bool = False
    is_lines: bool = False
    given: type[Given] = Nothing
    run: Run
    path_formats: Mapping[str, str] = field(default_factory=dict[str, str])


def page(rows: Sequence[Mapping[str, Any]], limit: int, key: str = "id") -> Page:
    """Return rows as a page; a full one may have a next."""
    return Page(rows, _text(rows[-1][key]) if len(rows) == limit else None)


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
