"""Why `tpm` refuses."""

from watchword.schemas.reasons import Reason

REASONS: tuple[Reason, ...] = (
    Reason("malformed", "WJ0700", "low", "The evidence is not a TPM's, within its bounds."),
    Reason("ek-unfit", "WJ0701", "high", "The key is no endorsement key of a TPM.", attack=True),
    Reason(
        "ak-unfit",
        "WJ0702",
        "high",
        "The key is no restricted signing key of a TPM, or of a kind that is not accepted.",
        attack=True,
    ),
    Reason(
        "ek-certificate",
        "WJ0703",
        "high",
        "The endorsement certificate is another key's, or leads to no trusted vendor.",
        attack=True,
    ),
    Reason("not-enrolled", "WJ0704", "medium", "A TPM, and nobody has said that it is ours."),
    Reason("revoked", "WJ0705", "high", "The TPM's enrolment was revoked.", attack=True),
    Reason("wrong-role", "WJ0706", "medium", "The TPM is enrolled for another role."),
    Reason("policy", "WJ0707", "medium", "The pool has no policy for TPMs that can be read."),
    Reason(
        "challenge", "WJ0708", "medium", "The answer is to no challenge of ours for this machine."
    ),
    Reason(
        "activation",
        "WJ0709",
        "high",
        "The TPM did not read the credential: the two keys are not in one TPM.",
        attack=True,
    ),
    Reason(
        "stale", "WJ0710", "high", "What the TPM signed answers another challenge.", attack=True
    ),
    Reason("quote", "WJ0711", "high", "The quote does not hold, or lacks a PCR.", attack=True),
    Reason("bank-weak", "WJ0712", "medium", "The quote is over a bank that the policy refuses."),
    Reason(
        "pcr-mismatch",
        "WJ0713",
        "high",
        "A PCR has a value that the policy does not list.",
        attack=True,
    ),
    Reason(
        "log-absent", "WJ0714", "medium", "The policy asks for an event log, and there is none."
    ),
    Reason("log-malformed", "WJ0715", "medium", "The event log cannot be read within its bounds."),
    Reason("log-bank", "WJ0716", "medium", "The event log has no digests of the quoted bank."),
    Reason(
        "log-mismatch",
        "WJ0717",
        "high",
        "The event log does not lead to the quoted values.",
        attack=True,
    ),
    Reason(
        "event-missing", "WJ0718", "medium", "An event that the policy asks for was not measured."
    ),
    Reason("event-forbidden", "WJ0719", "high", "An event that the policy forbids was measured."),
    Reason(
        "certify",
        "WJ0720",
        "high",
        "The TPM did not certify the CSR's key, though the evidence says so.",
        attack=True,
    ),
    Reason(
        "pcr-changed",
        "WJ0721",
        "high",
        "A PCR has another value than when the node was first seen, and none that the policy lists.",
        attack=True,
    ),
)
