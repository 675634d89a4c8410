"""Why `image` refuses."""

from watchword.schemas.reasons import Reason

REASONS: tuple[Reason, ...] = (
    Reason("malformed", "WJ0500", "low", "The evidence is no image's id and secret."),
    Reason("unknown-image", "WJ0501", "medium", "There is no image of that id.", attack=True),
    Reason(
        "bad-secret", "WJ0502", "high", "The image's id exists, its secret is wrong.", attack=True
    ),
    Reason("revoked", "WJ0503", "medium", "The image was revoked."),
    Reason("expired", "WJ0504", "low", "The image has expired."),
    Reason("wrong-role", "WJ0505", "medium", "The image is for machines of another role."),
    Reason(
        "expectation", "WJ0506", "medium", "The claims are not the ones that the image expects."
    ),
    Reason(
        "no-machine",
        "WJ0507",
        "medium",
        "The image may be used once by each machine, and the claimed product UUID names none.",
    ),
    Reason(
        "second-fact",
        "WJ0508",
        "high",
        "The image names no second fact that is known, or one that is not to be had here.",
    ),
    Reason(
        "second-missing",
        "WJ0509",
        "medium",
        "The image asks for another attestor's proof, and there is no evidence of it.",
    ),
    Reason(
        "second-other",
        "WJ0510",
        "medium",
        "The evidence is of another attestor than the one that the image asks for.",
    ),
    Reason(
        "second-elsewhere",
        "WJ0511",
        "high",
        "The other attestor's proof leads to another tenant, pool or site than the image.",
        attack=True,
    ),
    Reason(
        "challenge",
        "WJ0512",
        "high",
        "The challenge was handed out for another key, image or deployment, or has expired.",
        attack=True,
    ),
)
