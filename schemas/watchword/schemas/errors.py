"""What can be wrong with something that is written down.

SchemaError
├── NotCanonical      the bytes are not the one spelling of their content
└── WrongShape        a field is missing, unknown, of another type or out of bounds
"""


class SchemaError(Exception):
    """The document is not one of ours."""


class NotCanonical(SchemaError):
    """The bytes are not canonical (RFC 8785)."""


class WrongShape(SchemaError):
    """A field is missing, unknown, of another type or out of bounds."""
