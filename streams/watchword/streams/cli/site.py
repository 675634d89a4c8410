"""`watchword site make-key|assert` for a site's agent, `watchword site keys add|list|revoke` for operators.

The agent's commands import no server part: `site_keys` does, and is imported only when it is called.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cyclopts import App, Parameter

from watchword.handlers.attestors.discovery.evidence import MAX_LIFE, kid_of, sign_assertion
from watchword.handlers.crypto.jws import JwsSigner
from watchword.handlers.crypto.private_files import read_private, write_new
from watchword.handlers.errors import BadArgument, Conflict
from watchword.handlers.hardware_ids import canonical_mac, identifies, identifying_uuid
from watchword.streams.cli.digests import typed_digest
from watchword.streams.cli.durations import duration
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import show_one

app = App(name="site", help="Sites' agents: their keys, and what they assert.")
app.command(
    "watchword.streams.cli.site_keys:app",
    name="keys",
    help="Keys of sites' agents, as operators see them.",
)


@app.command
def make_key(
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
    canonical = [canonical_mac(one) for one in mac]
    if not any(one and identifies(one) for one in canonical) and not identifying_uuid(product_uuid):
        message = (
            "nothing here tells this machine from others: give a universally administered MAC address,"
            " or a product UUID that its maker did set"
        )
        raise BadArgument(message)
    key = _private(key_file)
    signer = JwsSigner(kid or kid_of(key.public_key().public_bytes_raw()), key)
    token = sign_assertion(
        signer,
        site=site,
        csr_sha256=typed_digest(csr_sha256),
        macs=mac,
        product_uuid=product_uuid,
        bmc=bmc,
        expires_at=datetime.now(UTC) + life,
    )
    sys.stdout.write(f"{token.decode()}\n")


def _private(path: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(read_private(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        message = f"{path} holds no Ed25519 private key in PEM"
        raise BadArgument(message)
    return key
