"""Why `x509pop` refuses."""

from watchword.schemas.reasons import Reason

REASONS: tuple[Reason, ...] = (
    Reason("malformed", "WJ0400", "low", "The evidence is not certificates within their bounds."),
    Reason(
        "certificate",
        "WJ0401",
        "medium",
        "A certificate cannot be parsed, or its key is not accepted.",
    ),
    Reason(
        "chain",
        "WJ0402",
        "high",
        "The certificate does not chain to a trusted CA now.",
        attack=True,
    ),
    Reason("no-rule", "WJ0403", "medium", "The CA is trusted, but no rule takes this certificate."),
    Reason(
        "challenge", "WJ0404", "medium", "The answer is to no challenge of ours for this machine."
    ),
    Reason(
        "signature",
        "WJ0405",
        "high",
        "The certificate's key did not sign the challenge.",
        attack=True,
    ),
    Reason("use-renewal", "WJ0406", "low", "The certificate is ours and has not expired."),
    Reason(
        "superseded",
        "WJ0407",
        "high",
        "The certificate is ours, and revoked or not the node's current one.",
        attack=True,
    ),
    Reason(
        "node-state",
        "WJ0408",
        "medium",
        "The certificate is ours, but its node may not come back by it.",
    ),
    Reason("wrong-role", "WJ0409", "medium", "The node of this certificate has another role."),
    Reason("statement", "WJ0410", "medium", "The node's key statement is about another key."),
)
