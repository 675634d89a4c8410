"""`watchword site keys make|add|list|revoke` for operators, `watchword site assert` for a site's agent."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from cyclopts import App, Parameter

from watchword.handlers.attestors.discovery.evidence import MAX_LIFE, sign_assertion
from watchword.handlers.attestors.discovery.verifier import KINDS
from watchword.handlers.crypto.jws import JwsSigner
from watchword.handlers.crypto.private_files import read_private, read_public, write_new
from watchword.handlers.errors import BadArgument, Conflict
from watchword.handlers.operators import site_keys
from watchword.handlers.operators.site_keys import Approval, SiteKeyOrder, kid_of
from watchword.streams.cli.acting import ACTING, Acting, operating
from watchword.streams.cli.durations import duration
from watchword.streams.cli.granting import LISTING, Listing
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_one, show_rows

app = App(name="site", help="Sites' agents: their keys, and what they assert.")
keys = App(name="keys", help="Keys of sites' agents.")
app.command(keys)

_COLUMNS = ("kid", "tenant", "site", "pool", "approval", "expires_at", "state")
_DIGEST_BYTES = 32


@keys.command
def make(
    *,
    key_file: Annotated[Path, Parameter(help="Where the private key goes, mode 0600.")],
    options: Shown = SHOWN,
) -> None:
    """Make a key for a site's agent, on its own machine. The public key goes beside it, as `.pub`."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    public_file = key_file.with_name(f"{key_file.name}.pub")
    # The public key first: a run that ends in between leaves no private key that nobody knows of.
    for path, content, is_public in ((public_file, public, True), (key_file, private, False)):
        if key_file.exists() or not write_new(path, content, public=is_public):
            message = f"{path} is there already"
            raise Conflict(message)
    kid = kid_of(key.public_key().public_bytes_raw())
    show_one(
        {"kid": kid, "key_file": str(key_file), "public_key_file": str(public_file)}, options.form
    )


@keys.command
async def add(  # noqa: PLR0913 - what a key has
    tenant: Annotated[str, Parameter(help="The tenant that its machines join.")],
    site: Annotated[str, Parameter(help="Their site.")],
    pool: Annotated[str, Parameter(help="Their pool.")],
    /,
    *,
    public_key_file: Annotated[Path, Parameter(help="PEM of the public key (Ed25519).")],
    kid: Annotated[
        str | None, Parameter(help="The key's name; made from the key if not given.")
    ] = None,
    approval: Annotated[
        Approval,
        Parameter(help="Which machines an operator has to agree to."),
    ] = "always",
    kind: Annotated[
        tuple[str, ...],
        Parameter(
            help="A kind of command that its ramdisks may be sent; again for more; all that are for"
            " ramdisks if none.",
            negative="",
        ),
    ] = (),
    expires_in: Annotated[str | None, Parameter(help="Such as 90d; never if not given.")] = None,
    options: Acting = ACTING,
) -> None:
    """Believe what a site's agent says of machines that boot there."""
    order = SiteKeyOrder(
        tenant=tenant,
        site=site,
        pool=pool,
        public_key=_public(public_key_file),
        kid=kid,
        approval=approval,
        allowed_kinds=kind or KINDS,
        expires_in=None if expires_in is None else duration(expires_in),
    )
    async with operating(options) as (settings, database):
        row = await site_keys.add_site_key(database, options.actor(settings), order)
    show_one(row, options.form)


@keys.command(name="list")
async def list_(*, options: Listing = LISTING) -> None:
    """List usable keys of sites' agents by name."""
    async with operating(options) as (_, database):
        rows = await site_keys.list_site_keys(database, options.filter())
    show_rows(rows, _COLUMNS, options.form)


@keys.command
async def revoke(
    kid: Annotated[str, Parameter(help="The key's name.")],
    /,
    *,
    options: Acting = ACTING,
) -> None:
    """Believe a site's key no more. Nodes that joined by its word stay nodes."""
    async with operating(options) as (settings, database):
        await site_keys.revoke_site_key(database, options.actor(settings), kid)
    say(f"site key {kid} is revoked")


@app.command(name="assert")
def assert_(
    *,
    key_file: Annotated[Path, Parameter(help="PEM of the site's private key, mode 0600.")],
    site: Annotated[str, Parameter(help="The site's name.")],
    csr_sha256: Annotated[
        str, Parameter(help="SHA-256 of the machine's CSR in hexadecimal, as its agent prints it.")
    ],
    mac: Annotated[
        tuple[str, ...],
        Parameter(help="A MAC address that was seen of the machine; again for more.", negative=""),
    ] = (),
    product_uuid: Annotated[str | None, Parameter(help="Its SMBIOS product UUID.")] = None,
    bmc: Annotated[
        str | None, Parameter(help="Name or address of its management controller.")
    ] = None,
    kid: Annotated[
        str | None, Parameter(help="The key's name; made from the key if not given.")
    ] = None,
    expires_in: Annotated[str, Parameter(help="At most 15m; it is used once at the most.")] = "5m",
) -> None:
    """Sign that a machine with this CSR has booted at the site, and write the assertion to standard output.

    The site's agent runs it for a machine that it sees itself, and gives the ramdisk the result: it
    is good for this CSR alone, so it may travel in the open.
    """
    life = duration(expires_in)
    if life > MAX_LIFE:
        message = f"--expires-in: at most {MAX_LIFE.total_seconds() // 60:.0f}m"
        raise BadArgument(message)
    key = _private(key_file)
    signer = JwsSigner(kid or kid_of(key.public_key().public_bytes_raw()), key)
    token = sign_assertion(
        signer,
        site=site,
        csr_sha256=_digest(csr_sha256),
        macs=mac,
        product_uuid=product_uuid,
        bmc=bmc,
        expires_at=datetime.now(UTC) + life,
    )
    sys.stdout.write(f"{token.decode()}\n")


def _public(path: Path) -> bytes:
    try:
        key = load_pem_public_key(read_public(path))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        message = f"{path} holds no Ed25519 public key in PEM"
        raise BadArgument(message)
    return key.public_bytes_raw()


def _private(path: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(read_private(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        message = f"{path} holds no Ed25519 private key in PEM"
        raise BadArgument(message)
    return key


def _digest(text: str) -> bytes:
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        digest = b""
    if len(digest) != _DIGEST_BYTES:
        message = "--csr-sha256: 64 hexadecimal digits"
        raise BadArgument(message)
    return digest
