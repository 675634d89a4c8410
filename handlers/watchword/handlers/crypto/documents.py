"""Reading the payload of a signed document into its schema."""

from typing import Any, TypeVar

from pydantic import ValidationError

from watchword.schemas.canonical import parse_canonical
from watchword.schemas.errors import WrongShape
from watchword.schemas.requests import Wire

Document = TypeVar("Document", bound=Wire)


def read_document(model: type[Document], payload: bytes) -> Document:
    """Return the document that these bytes canonically encode; raises `SchemaError`."""
    return as_document(model, parse_canonical(payload))


def as_document(model: type[Document], value: dict[str, Any]) -> Document:
    """Return the document of a parsed object; raises `WrongShape`."""
    try:
        return model.model_validate(value, by_alias=True, by_name=False)
    except ValidationError:
        # Names the document and no value: it may be hostile.
        raise WrongShape(model.__name__) from None
