"""What `x509pop` is told, from its settings and the files that they name."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from watchword.handlers.attestors.x509pop.chain import Unacceptable, key_of
from watchword.handlers.attestors.x509pop.config import MATCHABLE, Config, Rule
from watchword.handlers.crypto.chains import UNREADABLE
from watchword.handlers.kinds import known_kind
from watchword.schemas.ids import TenantId
from watchword.streams.settings.policies import X509PopRule, X509PopSettings

_log = structlog.get_logger(__name__)


def x509pop_config(
    section: X509PopSettings, trust_domain: str, registered: Collection[str], problems: list[str]
) -> Config:
    """Return the attestor's configuration; whatever is wrong is added to `problems`, all of it."""
    rules: list[Rule] = []
    bundles: dict[Path, tuple[x509.Certificate, ...]] = {}
    for number, rule in enumerate(section.rules, start=1):
        name = f"attestors.x509pop.rules[{number}]"
        problems += [f"{name}.{said}" for said in _problems(rule, registered)]
        if rule.authorities_file not in bundles:
            found = _authorities(rule.authorities_file, f"{name}.authorities_file", problems)
            bundles[rule.authorities_file] = found
        rules.append(
            Rule(
                authorities=bundles[rule.authorities_file],
                match=dict(rule.match),
                tenant=TenantId(rule.tenant),
                pool=rule.pool,
                site=rule.site,
                roles=frozenset(rule.roles),
                allowed_kinds=None if rule.unsafe_unrestricted_kinds else rule.kinds,
                reattest=rule.reattest,
            )
        )
    return Config(trust_domain, tuple(rules), timedelta(seconds=section.own_grace_s))


def _problems(rule: X509PopRule, registered: Collection[str]) -> list[str]:
    found: list[str] = []
    if not rule.match:
        found.append('match: empty; say { commonName = "*" } if every certificate is meant')
    if unknown := sorted(rule.match.keys() - MATCHABLE):
        known = ", ".join(sorted(MATCHABLE))
        found.append(f"match: no such field: {', '.join(unknown)} (there is: {known})")
    found += [
        f"kinds: no such kind: {kind}" for kind in rule.kinds if not known_kind(kind, registered)
    ]
    return found


def _authorities(file: Path, name: str, problems: list[str]) -> tuple[x509.Certificate, ...]:
    """Return the CAs of a bundle, none if one of them cannot be used."""
    try:
        found = x509.load_pem_x509_certificates(file.read_bytes())
    except OSError as error:
        problems.append(f"{name}: {file}: {error.strerror or 'cannot be read'}")
        return ()
    except UNREADABLE:
        problems.append(f"{name}: {file} is no PEM file of certificates")
        return ()
    now = datetime.now(UTC)
    for nth, certificate in enumerate(found, start=1):
        if (fault := _fault_of(certificate)) is not None:
            problems.append(f"{name}: {file}: certificate {nth} {fault}")
        elif certificate.not_valid_after_utc <= now:
            _log.warning("a trusted CA has expired", file=str(file), certificate=nth)
    return tuple(found)


def _fault_of(certificate: x509.Certificate) -> str | None:
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        key = key_of(certificate)
    except (Unacceptable, x509.ExtensionNotFound):
        return "is no CA, or has a key of a kind or size that is not accepted"
    except UNREADABLE:
        return "cannot be read"
    if isinstance(key, Ed25519PublicKey):
        return "has an Ed25519 key, and paths are not built to such CAs"
    return None if constraints.ca else "is no CA"
