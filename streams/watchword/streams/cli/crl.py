"""`watchword crl show|publish`: which certificates count no more."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from cryptography import x509
from cyclopts import App, Parameter

from watchword.handlers.crypto.revocation_lists import Revoked
from watchword.handlers.errors import BadArgument, NotFound
from watchword.handlers.operators.revocations import revoked_certificates
from watchword.schemas.topics import CRL_KEY
from watchword.streams.cli.acting import operating
from watchword.streams.cli.durations import duration
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_one, show_rows
from watchword.streams.published_trust import publish_crls, read_published
from watchword.streams.wiring.authority_files import AuthorityFiles
from watchword.streams.wiring.connections import kafka_connection

app = App(name="crl", help="Which certificates count no more.")

LONGEST = timedelta(days=30)
_COLUMNS = ("serial", "revoked_at", "why")


@app.command
async def show(
    *,
    published: Annotated[
        bool, Parameter(help="What is published, not what would be now.", negative="")
    ] = False,
    options: Shown = SHOWN,
) -> None:
    """List the certificates that are revoked and have not expired."""
    if published:
        show_one(await _published(options), options.form)
        return
    async with operating(options) as (_, database):
        _, rows = await revoked_certificates(database)
    show_rows([row.shown() for row in rows], _COLUMNS, options.form)


@app.command
async def publish(
    *,
    valid_for: Annotated[
        str, Parameter(help="Until when the next one has to be there, such as 24h; at most 30d.")
    ] = "24h",
    options: Shown = SHOWN,
) -> None:
    """Sign the list with each CA's key and publish it on `trust.bundle`; gateways serve it at `/v1/crl`.

    Needs the CA keys, so it runs as the signer's user. Run it after revocations that cannot wait, and by a timer
    more often than the list is valid for.
    """
    life = duration(valid_for)
    if not timedelta(minutes=5) <= life <= LONGEST:
        message = "--valid-for: 5m to 30d"
        raise BadArgument(message)
    async with operating(options) as (settings, database):
        authorities = AuthorityFiles(settings).issuing()
        now, rows = await revoked_certificates(database)
        crls = {
            one.kid: one.revocation_list(rows, now=now, next_update=now + life)
            for one in authorities
        }
        active = authorities[0].kid
        await publish_crls(kafka_connection(settings), crls, active)
    say(_in_words(rows))
    show_one(_said(crls[active]) | {"issuers": sorted(crls)}, options.form)


async def _published(options: Shown) -> dict[str, object]:
    der = (await read_published(kafka_connection(options.settings()))).get(CRL_KEY)
    if der is None:
        message = "no CRL is published: run `watchword crl publish`"
        raise NotFound(message)
    return _said(der)


def _said(der: bytes) -> dict[str, object]:
    crl = x509.load_der_x509_crl(der)
    number = crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    return {
        "issuer": crl.issuer.rfc4514_string(),
        "number": number,
        "this_update": crl.last_update_utc,
        "next_update": crl.next_update_utc,
        "certificates": len(crl),
    }


def _in_words(rows: Sequence[Revoked]) -> str:
    return f"{len(rows)} certificate{'' if len(rows) == 1 else 's'} revoked"
