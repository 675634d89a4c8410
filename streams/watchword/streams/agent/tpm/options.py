"""How a TPM is worked with: which keys, and the templates of both."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from watchword.streams.agent.tpm.patience import Patience

EkKind = Literal["auto", "rsa2048", "rsa3072", "rsa4096", "p256", "p384"]
AkKind = Literal["p256", "p384", "rsa2048", "rsa2048-pss"]

TEMPLATES: dict[str, tuple[str, ...]] = {
    "rsa2048": ("EK-RSA2048", "EK-HIGH-RSA2048"),
    "p256": ("EK-ECC256", "EK-HIGH-ECC256"),
    "p384": ("EK-HIGH-ECC384",),
    "rsa3072": ("EK-HIGH-RSA3072",),
    "rsa4096": ("EK-HIGH-RSA4096",),
}
"""Of the TCG's "EK Credential Profile for TPM Family 2.0", by the kind of key; the first of a kind works without a certificate."""
AK_FORMS: dict[str, tuple[str, str]] = {
    "p256": ("ecc256:ecdsa-sha256:null", "sha256"),
    "p384": ("ecc384:ecdsa-sha384:null", "sha384"),
    "rsa2048": ("rsa2048:rsassa-sha256:null", "sha256"),
    "rsa2048-pss": ("rsa2048:rsapss-sha256:null", "sha256"),
}


@dataclass(frozen=True, slots=True)
class Options:
    """What may be chosen."""

    tcti: str | None = None
    """How the TPM is reached, such as `device:/dev/tpmrm0`; None is what the TSS chooses."""
    ek: EkKind = "auto"
    ak: AkKind = "p256"
    certificate: Callable[[], tuple[bytes, tuple[bytes, ...]]] | None = None
    """Returns a certificate that was handed in, and what is behind it, in the place of the TPM's own."""
    patience: Patience = field(default_factory=Patience)


def is_made_from(tss: Any, area: Any, template: Any) -> bool:  # noqa: ANN401 - see `library`
    """Tell whether a public area is of a template: the same but for what makes it unique."""
    if template is None:
        return False
    one, other = area.publicArea, template.publicArea
    if (one.type, one.nameAlg, int(one.objectAttributes), bytes(one.authPolicy)) != (
        other.type,
        other.nameAlg,
        int(other.objectAttributes),
        bytes(other.authPolicy),
    ):
        return False
    if one.type == tss.TPM2_ALG.RSA:
        return bool(one.parameters.rsaDetail.keyBits == other.parameters.rsaDetail.keyBits)
    return bool(one.parameters.eccDetail.curveID == other.parameters.eccDetail.curveID)
