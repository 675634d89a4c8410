"""`watchword trust show|export|publish`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cyclopts import App, Parameter

from watchword.handlers.crypto.keyfiles import load_worker_keys
from watchword.handlers.crypto.keysets import read_trust_bundle
from watchword.handlers.errors import NotFound, SignatureBroken
from watchword.schemas.canonical import unb64
from watchword.schemas.errors import SchemaError
from watchword.schemas.topics import CRL_KEY, KEY_SET_KEY, TRUST_BUNDLE_KEY
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_one
from watchword.streams.published_trust import publish_trust, read_ours, read_published
from watchword.streams.settings import Settings
from watchword.streams.wiring.connections import kafka_connection

app = App(name="trust", help="What agents are told to trust.")


@app.command
async def show(*, options: Shown = SHOWN) -> None:
    """Show what is published on `trust.bundle`, verified with the keys of this deployment."""
    settings = options.settings()
    published = await read_published(kafka_connection(settings))
    show_one(_said(settings, published), options.form)


@app.command
async def export(
    *,
    to: Annotated[
        Path | None, Parameter(help="A file for the CA certificates, PEM; else standard output.")
    ] = None,
    options: Shown = SHOWN,
) -> None:
    """Write the CA certificates that node certificates chain to, as PEM."""
    keys = load_worker_keys(options.settings().keys.directory)
    pem = b"".join(
        x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM) for der in keys.authorities
    ).decode()
    if to is None:
        print(pem, end="")  # noqa: T201 - the result
    else:
        to.write_text(pem)
        say(f"written to {to}")


@app.command
async def publish(*, options: Shown = SHOWN) -> None:
    """Sign the key set and the trust bundle anew and publish them; harmless to do again."""
    settings = options.settings()
    kafka = kafka_connection(settings)
    await publish_trust(kafka, load_worker_keys(settings.keys.directory), datetime.now(UTC))
    show_one(_said(settings, await read_published(kafka)), options.form)


def _said(settings: Settings, published: Mapping[bytes, bytes]) -> dict[str, object]:
    keys = load_worker_keys(settings.keys.directory)
    try:
        if (token := published.get(KEY_SET_KEY)) is None:
            message = "no key set is published: run `watchword trust publish`"
            raise NotFound(message)
        key_set = read_ours(token, keys)
        public = unb64(key_set.signing.public)
        found = published.get(TRUST_BUNDLE_KEY)
        bundle = None if found is None else read_trust_bundle(found, public)
    except SchemaError as error:
        message = "what is published cannot be read by this release"
        raise SignatureBroken(message) from error
    return {
        "trust_domain": key_set.trust_domain,
        "key_set_version": key_set.version,
        "issued_at": key_set.issued_at,
        "signing_kid": key_set.signing.kid,
        "encryption": [
            {"kid": key.kid, "not_before": key.not_before, "not_after": key.not_after}
            for key in key_set.encryption
        ],
        "authorities": [
            {
                "subject": found.subject.rfc4514_string(),
                "not_after": found.not_valid_after_utc,
            }
            for found in (
                x509.load_der_x509_certificate(unb64(text))
                for text in (() if bundle is None else bundle.authorities)
            )
        ],
        "handovers": 0 if bundle is None else len(bundle.handovers),
        "retired_signing": [
            {"kid": key.kid, "not_after": key.not_after} for key in key_set.retired
        ],
        "crl": CRL_KEY in published,
    }
