"""Why `discovery` refuses."""

from watchword.schemas.reasons import Reason

REASONS: tuple[Reason, ...] = (
    Reason("malformed", "WJ0600", "low", "The evidence is no assertion of a site's agent."),
    Reason("unknown-site", "WJ0601", "high", "No site has the key that signed.", attack=True),
    Reason(
        "bad-signature",
        "WJ0602",
        "high",
        "The assertion is not signed by the site's key.",
        attack=True,
    ),
    Reason("site-revoked", "WJ0603", "high", "The site's key was revoked.", attack=True),
    Reason("site-expired", "WJ0604", "medium", "The site's key has expired."),
    Reason(
        "other-site",
        "WJ0605",
        "high",
        "The assertion is about another site than its key's.",
        attack=True,
    ),
    Reason(
        "other-csr", "WJ0606", "high", "The assertion is about another machine's CSR.", attack=True
    ),
    Reason("stale", "WJ0607", "medium", "The assertion has expired."),
    Reason(
        "too-long",
        "WJ0608",
        "medium",
        "The assertion is good for longer than any assertion may be.",
    ),
    Reason(
        "no-machine",
        "WJ0609",
        "medium",
        "Neither product UUID nor MAC addresses can tell this machine from others.",
    ),
    Reason(
        "identity-conflict",
        "WJ0610",
        "high",
        "Another machine is known by a name that the assertion gives to this one.",
        attack=True,
    ),
)
