"""Checks of the keys and of the signer."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from watchword.handlers.crypto.keyfiles import load_worker_keys
from watchword.handlers.errors import ConfigRefused, SignerUnavailable
from watchword.streams.doctor.findings import Finding, fail, ok, warn
from watchword.streams.signer.client import SocketSigner

_SOON = timedelta(days=7)


def check_keys(directory: Path, trust_domain: str | None) -> list[Finding]:
    """Return findings of the key directory: readable, closed to others, of the trust domain, not ending."""
    try:
        keys = load_worker_keys(directory)
    except ConfigRefused as error:
        return [fail("keys", problem) for problem in error.problems]
    findings = [ok("keys", f"{directory}, version {keys.version}, pin {keys.pin}")]
    if trust_domain is not None and trust_domain != keys.trust_domain:
        findings.append(fail("trust domain", f"{keys.trust_domain}, configured is {trust_domain}"))
    last = max(key.not_after for key in keys.decryption)
    text = f"agents may seal until {last:%Y-%m-%d}"
    if last <= datetime.now(UTC):
        findings.append(fail("decryption", f"{text}: `watchword keys rotate decryption`"))
    elif last <= datetime.now(UTC) + _SOON:
        findings.append(warn("decryption", f"{text}: `watchword keys rotate decryption`"))
    else:
        findings.append(ok("decryption", text))
    return findings


async def check_signer(socket: Path) -> Finding:
    """Return whether the signer answers."""
    signer = SocketSigner(socket)
    try:
        chain = await signer.chain()
    except SignerUnavailable:
        return fail("signer", f"nothing answers on {socket}")
    finally:
        await signer.close()
    return ok("signer", f"answers on {socket}, {len(chain)} certificates in its chain")
