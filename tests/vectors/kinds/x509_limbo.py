"""x509-limbo: paths from a machine's certificate to an operator's CA.

Its cases are mostly of servers in the web PKI. What fits is all that the path decides: what depends on a server's
name, on that PKI's profile, on revocation lists or on a search through a heap of certificates is set aside, by name.
"""

import json
from binascii import a2b_base64
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tests.vectors.judging import Entry, Result, accepts, aside, refuses
from watchword.handlers.attestors.x509pop.chain import load, verify_path

_NOW = datetime(2026, 11, 29, 22, tzinfo=UTC)
_NAME = "a server's name, which no machine has"
_USAGE = "a server's extended key usage; a machine's key has to be one that may sign"
_PROFILE = "a rule on how a CA writes certificates, by which no path is decided (RFC 5280, 4)"
_SEARCH = "needs a search for a path; a machine sends its own, in order, and no subject twice"
_ASIDE: tuple[tuple[str, str], ...] = (
    ("crl::", "revocation lists of operators' CAs are not read"),
    ("webpki::", "the web PKI's profile, or a server's name"),
    ("rfc5280::aki::", _PROFILE),
    ("rfc5280::ski::", _PROFILE),
    ("rfc5280::san::", _NAME),
    ("rfc5280::eku::", _USAGE),
    ("rfc5280::nc::not-allowed-in-ee", _PROFILE),
    ("rfc5280::nc::nc-forbids-alternate-chain", _SEARCH),
    ("rfc5280::nc::nc-forbids-same-chain", _SEARCH),
    ("rfc5280::pc::ica-noncritical", _PROFILE),
    ("rfc5280::root-non-critical-basic-constraints", _PROFILE),
    ("rfc5280::leaf-ku-keycertsign", _PROFILE),
    ("rfc5280::ee-critical-aia-invalid", _PROFILE),
    ("rfc5280::ca-as-leaf", "a CA is no machine"),
    ("rfc5280::no-keyusage", "a machine's certificate has to say that its key may sign"),
    ("pathlen::self-issued", _SEARCH),
    ("pathlen::max-chain-depth", "the number of intermediates is bounded, and nobody's to choose"),
    ("pathological::nc-dos", "bounded by sizes: a certificate has at most 8 KiB"),
)
"""Beginnings of ids of cases that do not fit, and why."""


def paths(entries: Sequence[Entry]) -> Iterator[Result]:
    """Verify each case's path at its time."""
    for entry in entries:
        for case in json.loads(entry.data())["testcases"]:
            name: str = case["id"]
            why = next((why for begin, why in _ASIDE if name.startswith(begin)), None)
            if why is not None:
                yield aside(entry, why, case=name)
                continue
            yield _judged(entry, case)


def _judged(entry: Entry, case: Mapping[str, Any]) -> Result:
    at = datetime.fromisoformat(case["validation_time"]) if case["validation_time"] else _NOW

    def take(leaf: bytes) -> None:
        authorities = tuple(load(_der(pem)) for pem in case["trusted_certs"])
        between = [load(_der(pem)) for pem in case["untrusted_intermediates"]]
        verify_path(load(leaf), between, authorities, at)

    leaf = _der(case["peer_certificate"])
    judge = accepts if case["expected_result"] == "SUCCESS" else refuses
    return judge(entry, take, leaf, case=case["id"])


def _der(pem: str) -> bytes:
    return a2b_base64(pem.split("CERTIFICATE-----")[1].split("-----END", maxsplit=1)[0])
