"""The reference of the settings, from the settings: `docs/reference/configuration.md`."""

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from watchword.handlers.field_docs import field_docs
from watchword.streams.settings.cloud import (
    AwsSettings,
    AzureSettings,
    CloudIidSettings,
    GcpSettings,
)
from watchword.streams.settings.limits import AttestorLimits
from watchword.streams.settings.model import Settings
from watchword.streams.settings.policies import (
    TpmSettings,
    TpmWaitingRoom,
    X509PopRule,
    X509PopSettings,
)
from watchword.streams.settings.section import written
from watchword.streams.settings.sources import PREFIX, SECRETS, SHORT_FORMS

_HEAD = """\
# Configuration

<!-- Written by tools/write_references.py; edit the code. -->

One TOML file and variables. The file is the one of `--config`, else of `WATCHWORD_CONFIG`, else
`$XDG_CONFIG_HOME/watchword/config.toml`, else `/etc/watchword/config.toml`. A variable is named
`WATCHWORD_<SECTION>__<NAME>` and wins over the file; a list has commas between its items. Unknown keys
and unknown `WATCHWORD_` variables are refused, and all problems are told at once.
`watchword config show` prints every value and where it came from.

Secrets never stand in the file: each has a setting `<name>_file`, and is also read from
`$CREDENTIALS_DIRECTORY` (systemd's `LoadCredential=`). Of PostgreSQL, libpq's own variables
(`PGHOST`, `PGSERVICE`, `PGPASSFILE` …) are honoured where `database.url` is not set.
"""

_CONSTRAINTS = {"ge": "≥ {}", "gt": "> {}", "le": "≤ {}", "lt": "< {}"}


_TABLES: dict[str, type[BaseModel]] = {
    "[attestors.<id>]": AttestorLimits,
    "[attestors.x509pop]": X509PopSettings,
    "[[attestors.x509pop.rules]]": X509PopRule,
    "[attestors.tpm]": TpmSettings,
    "[attestors.tpm.waiting_room]": TpmWaitingRoom,
    "[attestors.cloud-iid]": CloudIidSettings,
    "[attestors.cloud-iid.aws]": AwsSettings,
    "[attestors.cloud-iid.gcp]": GcpSettings,
    "[attestors.cloud-iid.azure]": AzureSettings,
}
"""Tables below sections. Of those that inherit, only what is their own is written."""


def configuration_reference() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *_sections(), *_tables()])


def _tables() -> Iterator[str]:
    for title, table in _TABLES.items():
        name = title.strip("[]")
        yield f"## `{title}`\n\n{_text(table.__doc__ or '')}\n"
        inherited: set[str] = set()
        for base in table.__mro__[1:]:
            inherited |= set(getattr(base, "model_fields", {}))
        docs = field_docs(table)
        for field_name, field in table.model_fields.items():
            if field_name in inherited or isinstance(field.default, BaseModel):
                continue  # of another table
            yield f"### `{name}.{field_name}`\n\n{_text(docs[field_name])}\n"
            yield f"Default: {_default(field)}{_bounds(field)}.\n"


def _sections() -> Iterator[str]:
    short = {path: name for name, path in SHORT_FORMS.items()}
    defaults = Settings()
    for name in Settings.model_fields:
        section: type[BaseModel] = getattr(defaults, name).__class__
        yield f"## `[{name}]`\n\n{_text(section.__doc__ or '')}\n"
        docs = field_docs(section)
        for field_name, field in section.model_fields.items():
            if f"[{name}.{written(field_name, field)}]" in _TABLES:
                continue  # a table of its own, below
            path = (name, field_name)
            names = [f"`{PREFIX}{name.upper()}__{field_name.upper()}`"]
            names += [f"`{short[path]}`"] if path in short else []
            names += [f"credential `{'.'.join(path)}`"] if path in SECRETS else []
            yield f"### `{name}.{field_name}`\n\n{_text(docs[field_name])}\n"
            yield f"Default: {_default(field)}{_bounds(field)}. Variable: {', '.join(names)}.\n"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "none, it has to be given"
    if field.default_factory is not None:
        found: Any = field.get_default(call_default_factory=True, validated_data={})
        # What a machine is called is another thing on each.
        return "the host's name" if isinstance(found, str) else _written(found)
    return _written(field.default)


def _written(value: Any) -> str:  # noqa: ANN401 - a setting's
    if value is None or isinstance(value, SecretStr):
        return "not set"
    return f"`{json.dumps(value, default=str)}`"


def _bounds(field: FieldInfo) -> str:
    said: list[str] = []
    for constraint in field.metadata:
        said += [
            text.format(getattr(constraint, name))
            for name, text in _CONSTRAINTS.items()
            if getattr(constraint, name, None) is not None
        ]
    return f" ({', '.join(said)})" if said else ""


def _text(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
