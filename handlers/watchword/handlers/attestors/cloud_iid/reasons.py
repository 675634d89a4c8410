"""Why `cloud-iid` refuses, and the exception that carries it up to the verifier."""

from watchword.handlers.errors import SignatureBroken
from watchword.schemas.reasons import Reason


class Unproven(SignatureBroken):
    """The evidence does not prove an instance. `reason` is one of `REASONS`."""

    def __init__(self, reason: str) -> None:
        """Name the reason."""
        super().__init__(reason)
        self.reason = reason


REASONS: tuple[Reason, ...] = (
    Reason("malformed", "WJ0800", "low", "The evidence is not one cloud's, within its bounds."),
    Reason("cms-malformed", "WJ0801", "medium", "The CMS is no SignedData within its bounds."),
    Reason("cms-signers", "WJ0802", "high", "The CMS has not exactly one signer.", attack=True),
    Reason("cms-detached", "WJ0803", "medium", "The CMS does not hold the content it signs."),
    Reason(
        "cms-attributes",
        "WJ0804",
        "high",
        "Signed attributes are missing, there twice, or about another content.",
        attack=True,
    ),
    Reason("cms-algorithm", "WJ0805", "medium", "The CMS is signed by a way that is not taken."),
    Reason(
        "cms-certificate",
        "WJ0806",
        "high",
        "The signer's name leads to no certificate, to two, or to another one than ours.",
        attack=True,
    ),
    Reason("signature", "WJ0807", "high", "The provider did not sign this.", attack=True),
    Reason("document", "WJ0808", "medium", "What is signed is no identity of an instance."),
    Reason(
        "unsigned-copy",
        "WJ0809",
        "high",
        "A copy beside the signed document says something else.",
        attack=True,
    ),
    Reason("region-unknown", "WJ0810", "medium", "There is no anchor for this region."),
    Reason(
        "anchor-expired", "WJ0811", "medium", "The anchor has expired, and expired ones are off."
    ),
    Reason("legacy-signature", "WJ0812", "medium", "DSA signatures are off."),
    Reason("stale", "WJ0813", "medium", "The identity is older than the age limit."),
    Reason("not-yet", "WJ0814", "medium", "The identity begins in the future."),
    Reason("token", "WJ0815", "medium", "The token is no signed JWT within its bounds."),
    Reason(
        "token-header",
        "WJ0816",
        "high",
        "The token's header asks for another algorithm, key or extension.",
        attack=True,
    ),
    Reason("token-key", "WJ0817", "medium", "No key of the provider has the token's key id."),
    Reason("issuer", "WJ0818", "high", "The token is another issuer's.", attack=True),
    Reason("audience", "WJ0819", "high", "The token is about another CSR or service.", attack=True),
    Reason("lifetime", "WJ0820", "medium", "The token or document lives longer than is taken."),
    Reason("no-instance-claims", "WJ0821", "medium", "The token does not name an instance."),
    Reason("chain", "WJ0822", "high", "The signer does not chain to a trusted root.", attack=True),
    Reason("name", "WJ0823", "high", "The signer is no metadata service.", attack=True),
    Reason("nonce", "WJ0824", "medium", "The nonce is not this CSR's, and the policy asks for it."),
    Reason("account-unknown", "WJ0825", "medium", "Nobody has named this account."),
    Reason("account-revoked", "WJ0826", "high", "The account was revoked."),
    Reason("region", "WJ0827", "medium", "Instances of this region may not join."),
    Reason("wrong-role", "WJ0828", "medium", "Instances of this account have another role."),
)
