"""Whom an agent believes after the signing key has changed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from tests.support.crypto import NOW, TRUST_DOMAIN, jws_signer
from watchword.handlers.crypto import hpke
from watchword.handlers.crypto.belief import Belief, believe
from watchword.handlers.crypto.endorsements import endorse, line_of, pin_of
from watchword.handlers.crypto.jws import JwsSigner
from watchword.handlers.crypto.keysets import HeldKey, sign_key_set, sign_trust_bundle
from watchword.handlers.errors import SignatureBroken
from watchword.schemas.canonical import b64
from watchword.schemas.keyset import RetiredSigningKey
from watchword.schemas.times import rfc3339

HELD = HeldKey("e-1", hpke.generate(), NOW, NOW + timedelta(days=30))


def word(old: JwsSigner, new: JwsSigner, *, domain: str = TRUST_DOMAIN) -> str:
    """Return what one key says of the next."""
    token = endorse(old, kid=new.kid, public=new.public, issued_at=NOW, trust_domain=domain)
    return token.decode()


@dataclass
class Line:
    """Signing keys of a deployment, each of which has handed over to the next."""

    keys: list[JwsSigner] = field(
        default_factory=lambda: [jws_signer(f"s-{number}") for number in range(4)]
    )

    @property
    def pin(self) -> str:
        return pin_of(self.keys[0].public)

    def words(self, until: int) -> list[str]:
        return [word(self.keys[n], self.keys[n + 1]) for n in range(until)]

    def documents(
        self, by: int, *, words: list[str] | None = None, retired: bool = False
    ) -> tuple[bytes, bytes]:
        """Return key set and bundle of the `by`-th key, whose version is its number."""
        return documents(
            self.keys[by],
            version=by + 1,
            words=self.words(by) if words is None else words,
            retired=self.keys[by - 1] if retired else None,
        )


def documents(
    jws: JwsSigner, *, version: int, words: list[str], retired: JwsSigner | None = None
) -> tuple[bytes, bytes]:
    said = []
    if retired is not None:
        until = rfc3339(NOW + timedelta(hours=2))
        said = [RetiredSigningKey(kid=retired.kid, public=b64(retired.public), not_after=until)]
    key_set = sign_key_set(
        jws,
        version=version,
        issued_at=NOW,
        trust_domain=TRUST_DOMAIN,
        encryption=[HELD],
        retired=said,
    )
    bundle = sign_trust_bundle(
        jws,
        version=version,
        issued_at=NOW,
        trust_domain=TRUST_DOMAIN,
        authorities=[b"ca"],
        handovers=words,
    )
    return key_set, bundle


def test_a_machine_that_slept_through_two_rotations_follows_the_line() -> None:
    """Nobody can touch every machine when a key is replaced, nor wait for the last one to wake up."""
    line = Line()
    before = believe(line.pin, *line.documents(0))

    after = believe(line.pin, *line.documents(2), before=before)

    assert after.key_set.signing.kid == "s-2"
    assert [key.kid for key in after.line] == ["s-0", "s-1", "s-2"]


def test_a_machine_may_start_from_any_pin_of_the_line() -> None:
    """Images with the first pin stay good; those with the newest need no history."""
    line = Line()
    for first in range(3):
        found = believe(pin_of(line.keys[first].public), *line.documents(2))

        assert found.key_set.signing.kid == "s-2"


def _swapped(line: Line) -> tuple[bytes, bytes]:
    one, two = line.words(2)
    return line.documents(2, words=[two, one])


def _by_a_stranger(line: Line) -> tuple[bytes, bytes]:
    stranger = jws_signer("s-0")
    return line.documents(1, words=[word(stranger, line.keys[1])])


def _claims_to_be_by(line: Line) -> tuple[bytes, bytes]:
    """Take the statement of another key and put the pinned one's name into it."""
    header, _, signature = word(line.keys[2], line.keys[1]).split(".")
    payload = word(line.keys[0], line.keys[1]).split(".")[1]
    return line.documents(1, words=[f"{header}.{payload}.{signature}"])


REFUSED: list[tuple[str, Callable[[Line], tuple[bytes, bytes]]]] = [
    ("no handover", lambda line: line.documents(1, words=[])),
    ("a key is skipped", lambda line: line.documents(2, words=[line.words(2)[1]])),
    ("a key is left out", lambda line: line.documents(2, words=line.words(1))),
    ("another order", _swapped),
    ("a stranger's word", _by_a_stranger),
    ("a stranger's signature", _claims_to_be_by),
    (
        "of another trust domain",
        lambda line: line.documents(
            1, words=[word(line.keys[0], line.keys[1], domain="other.example")]
        ),
    ),
    (
        "round in a circle",
        lambda line: line.documents(1, words=[*line.words(1), word(line.keys[1], line.keys[0])]),
    ),
    (
        "a bundle of a key that is not in the line",
        lambda line: (
            line.documents(1)[0],
            documents(jws_signer("s-9"), version=2, words=line.words(1))[1],
        ),
    ),
]


@pytest.mark.parametrize(("_why", "made"), REFUSED, ids=[why for why, _ in REFUSED])
def test_what_the_trusted_key_did_not_vouch_for_is_refused(
    _why: str, made: Callable[[Line], tuple[bytes, bytes]]
) -> None:
    """Else whoever writes to the topic would say whom machines believe."""
    line = Line()
    before = believe(line.pin, *line.documents(0))

    with pytest.raises(SignatureBroken):
        believe(line.pin, *made(line), before=before)


def test_a_key_that_was_left_behind_leads_nowhere() -> None:
    """It was replaced because somebody may have it: with it they could hand over to a key of their own."""
    line, thiefs = Line(), jws_signer("s-9")
    before = believe(line.pin, *line.documents(1))
    old = line.keys[0]
    for key_set, bundle in (
        documents(thiefs, version=9, words=[word(old, thiefs)]),
        documents(old, version=9, words=line.words(1)),
        documents(old, version=9, words=[]),
        documents(thiefs, version=9, words=[*line.words(1), word(old, thiefs)]),
    ):
        with pytest.raises(SignatureBroken):
            believe(line.pin, key_set, bundle, before=before)


def test_a_prepared_key_that_was_given_up_leaves_its_place_to_another() -> None:
    """Only what was used counts."""
    line, other = Line(), jws_signer("s-9")
    before = believe(line.pin, *line.documents(0, words=line.words(1)))
    words = [word(line.keys[0], other)]

    after = believe(line.pin, *documents(other, version=2, words=words), before=before)

    assert after.key_set.signing.kid == "s-9"


@pytest.mark.parametrize(
    ("kid", "hours", "counts"),
    [
        ("s-1", 0, True),
        ("s-2", 0, True),  # prepared: some workers change before others
        ("s-0", 1, True),  # retired: answers are on their way
        ("s-0", 3, False),
        ("s-9", 0, False),
    ],
)
def test_answers_count_by_the_key_and_its_time(kid: str, hours: int, *, counts: bool) -> None:
    """Workers and caches change over one after another; a key that was retired must still end."""
    line = Line()
    key_set, _ = line.documents(1, retired=True)
    _, bundle = line.documents(1, words=line.words(2))
    belief = believe(line.pin, key_set, bundle)
    token = jws_signer(kid).sign(b"{}", "watchword-response")

    def found(now_hours: int) -> bytes | None:
        try:
            return belief.key_for(token, NOW + timedelta(hours=now_hours))
        except SignatureBroken:
            return None

    assert (found(hours) is not None) == counts
    if counts:
        assert found(hours) == line.keys[int(kid[-1])].public


def test_without_a_time_no_retired_key_counts() -> None:
    line = Line()
    belief: Belief = believe(line.pin, *line.documents(1, retired=True))

    with pytest.raises(SignatureBroken):
        belief.key_for(line.keys[0].sign(b"{}", "watchword-response"), None)


def test_a_line_begins_at_the_pin() -> None:
    line = Line()

    assert [
        key.kid
        for key in line_of(line.words(3), pin_of(line.keys[1].public), trust_domain=TRUST_DOMAIN)
    ] == ["s-1", "s-2", "s-3"]
    assert line_of(line.words(1), pin_of(line.keys[2].public), trust_domain=TRUST_DOMAIN) == ()
