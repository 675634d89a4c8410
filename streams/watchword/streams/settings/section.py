"""What every section of the settings shares."""

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

DNS_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


class Section(BaseModel):
    """A frozen, closed table of settings. The text under each field is its documentation."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        validate_default=True,
    )


def written(name: str, field: FieldInfo) -> str:
    """Return what an operator writes for a field: its alias where its name can be no name in Python."""
    return field.alias or name


def _split(value: Any) -> Any:  # noqa: ANN401 - whatever an operator wrote
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _pairs(value: Any) -> Any:  # noqa: ANN401 - whatever an operator wrote
    if isinstance(value, str):
        return dict(part.partition("=")[::2] for part in _split(value))
    return value


Split = BeforeValidator(_split)
"""Lets a list be written in a variable, with commas between its items."""

Pairs = BeforeValidator(_pairs)
"""Lets a table be written in a variable: `name=value,name=value`."""

Names = Annotated[tuple[str, ...], Split]
"""A list of names."""

Port = Annotated[int, Field(ge=0, le=65_535)]
"""A TCP port; 0 takes a free one."""

Label = Annotated[str, Field(pattern=rf"^(?:{DNS_LABEL.pattern})$")]
"""A DNS label (RFC 1123)."""
