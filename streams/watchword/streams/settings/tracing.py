"""Settings of traces."""

import re
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

from pydantic import AfterValidator, Field, SecretStr

from watchword.streams.settings.section import Section

Url = Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$", max_length=2000)]
"""An HTTP URL without user, query and fragment."""


_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
"""A token of RFC 9110, 5.6.2."""
_VALUE = re.compile(r"[\t\x20-\x7e]*")


def header_fields(text: str) -> dict[str, str]:
    """Return `name=value,…` as header fields; raises `ValueError`, which quotes nothing."""
    found: dict[str, str] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, is_pair, value = part.partition("=")
        # White space around a value is not part of it (RFC 9110, 5.5), and a client that is given some quotes it all.
        name, value = name.strip().lower(), unquote(value.strip()).strip("\t ")
        if not is_pair or _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            message = "name=value pairs with commas between, values percent-encoded"
            raise ValueError(message)
        found[name] = value
    return found


def _checked(value: SecretStr | None) -> SecretStr | None:
    if value is not None:
        header_fields(value.get_secret_value())
    return value


class TracingSettings(Section):
    """Traces, by OpenTelemetry over OTLP/HTTP (extra `otel`). Without an endpoint there are none, and they cost nothing."""

    endpoint: Url | None = None
    """Where a collector listens, such as `https://collector.example:4318`; `/v1/traces` is added.
    `OTEL_EXPORTER_OTLP_ENDPOINT` for short."""

    traces_endpoint: Url | None = None
    """The same with its path, taken as it is; wins over `endpoint`. `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` for short."""

    headers: Annotated[SecretStr | None, AfterValidator(_checked)] = None
    """What is sent along, `name=value` with commas between, percent-encoded: a collector's credentials. Only by the variable
    (`OTEL_EXPORTER_OTLP_HEADERS` for short) or the credential `tracing.headers`, never in the configuration file."""

    headers_file: Path | None = None
    """A file that holds them; a final line break is cut."""

    sampled: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    """The share of requests that are traced, the same ones in every process. Nothing that a machine sends changes it."""

    service_name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """How traces name this process; `watchword-gateway`, `watchword-worker` … if not set. `OTEL_SERVICE_NAME` for short."""

    disabled: bool = False
    """Trace nothing, whatever else is set. `OTEL_SDK_DISABLED` for short."""

    @property
    def url(self) -> str | None:
        """Where spans are sent; None if nothing is traced."""
        if self.disabled:
            return None
        if self.traces_endpoint is not None:
            return self.traces_endpoint
        return None if self.endpoint is None else f"{self.endpoint.rstrip('/')}/v1/traces"
