"""Whatever bytes come as evidence: an answer or a refusal, and never an admission that they do not deserve."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import (
    TARGETS,
    Target,
    discovery,
    each_field,
    each_part,
    image,
    image_proof,
    x509pop,
)
from watchword.handlers.attestor import Admission
from watchword.handlers.attestors.discovery.evidence import TYP
from watchword.handlers.errors import Refused
from watchword.schemas.canonical import b64url, canonical, length_prefixed, read_length_prefixed

_HEADER = {"alg": "Ed25519", "kid": "k1", "typ": TYP}


@pytest.mark.parametrize("name", TARGETS)
def test_unmutated_evidence_is_admitted(name: str) -> None:
    """What is mutated below is good to begin with: else nothing would be tested."""
    target = TARGETS[name]()
    assert isinstance(target.hold(target.good), Admission)


def _refused(target: Target, payload: bytes) -> None:
    found = target.hold(payload)
    assert isinstance(found, Refused), payload


@pytest.mark.case("B54")
def test_every_part_of_an_images_evidence_counts() -> None:
    """Dropped, doubled, retyped, oversized: refused."""
    target = image()
    for parts in each_part(read_length_prefixed(target.good, 2)):
        _refused(target, length_prefixed(*parts))


@pytest.mark.case("B54")
def test_every_part_of_an_image_with_a_second_fact_counts() -> None:
    """The same with another attestor's evidence behind it, and without."""
    target = image_proof()
    for parts in each_part(read_length_prefixed(target.good, 4)):
        _refused(target, length_prefixed(*parts))
    _refused(target, image().good)


@pytest.mark.case("B54")
def test_every_part_of_certified_evidence_counts() -> None:
    """Dropped, doubled, retyped, oversized: refused, but for the first round, which has no signature."""
    target = x509pop()
    parts = read_length_prefixed(target.good, 4)
    [intermediate] = read_length_prefixed(parts[2], 1)
    chains = [length_prefixed(*chain) for chain in each_part((intermediate,))]
    changed = [*each_part(parts), *((*parts[:2], chain, parts[3]) for chain in chains)]
    for mutated in changed:
        payload = length_prefixed(*mutated)
        is_first_round = mutated == (*parts[:3], b"")
        # Beyond the one that the CA has issued, nothing is looked at: the doubled intermediate is left out.
        is_longer = mutated == (*parts[:2], length_prefixed(intermediate, intermediate), parts[3])
        if is_first_round:
            target.hold(payload)
        elif not is_longer:
            _refused(target, payload)


def _is_good(said: dict[str, Any]) -> bool:
    """Tell whether a mutated assertion is another good one: a machine may lack a UUID, MACs or a controller."""
    good = json.loads(_body(discovery().good))
    changed = [n for n in good.keys() | said.keys() if said.get(n, ...) != good.get(n, ...)]
    name = changed[0] if len(changed) == 1 else ""
    return name in said and (
        (name == "productUuid" and said[name] is None)
        or (name == "bmc" and said[name] is None)
        or (name == "macs" and said[name] == [])
    )


def _body(token: bytes) -> bytes:
    body = token.split(b".")[1]
    return urlsafe_b64decode(body + b"=" * (-len(body) % 4))


def _assertions() -> Iterator[bytes]:
    target = discovery()
    assert target.key is not None
    header, body, signature = target.good.split(b".")
    said = json.loads(_body(target.good))
    # The site's key signs whatever its agent says, also nonsense.
    for mutated in each_field(said):
        if not _is_good(mutated):
            yield target.key.sign(canonical(mutated), TYP)
    doubled = canonical(said)[:-1] + b',"version":1}'
    yield target.key.sign(doubled, TYP)
    yield target.key.sign(canonical(said) + b" ", TYP)
    # The header is nobody's to choose.
    for head in each_field(_HEADER):
        yield b".".join((b64url(canonical(head)), body, signature))
    for parts in each_part((header, body, signature)):
        yield b".".join(parts)


@pytest.mark.case("B54")
def test_every_field_of_an_assertion_counts() -> None:
    """Dropped, doubled, retyped, oversized, also under the right signature: refused."""
    for payload in _assertions():
        _refused(discovery(), payload)


_BYTES = st.binary(max_size=2048)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=150)
@given(data=st.data())
def test_cut_spliced_and_flipped_evidence_never_admits(name: str, data: st.DataObject) -> None:
    """Random damage to good evidence, at any place."""
    target = TARGETS[name]()
    good = target.good
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, min(len(good), start + 64)))
    target.hold(good[:start] + data.draw(st.binary(max_size=64)) + good[end:])


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=100)
@given(payload=_BYTES)
def test_random_bytes_never_admit(name: str, payload: bytes) -> None:
    """Bytes that nobody made on purpose."""
    assert isinstance(TARGETS[name]().hold(payload), Refused)


@settings(max_examples=200)
@given(
    parts=st.tuples(
        st.sampled_from([b"x509pop/1", b"x509pop/2"]),
        st.binary(max_size=600),
        st.binary(max_size=600),
        st.binary(max_size=80),
    )
)
def test_certificates_of_any_bytes_never_break_the_verifier(
    parts: tuple[bytes, bytes, bytes, bytes],
) -> None:
    """Parts of the right form with any content: the parser below must not be what answers."""
    assert isinstance(x509pop().hold(length_prefixed(*parts)), Refused)


@settings(max_examples=300)
@given(at=st.integers(0, 700), byte=st.integers(0, 255), which=st.sampled_from([1, 2]))
def test_certificate_with_one_byte_changed_never_admits(at: int, byte: int, which: int) -> None:
    """One byte of the leaf or the intermediate, wherever it is: no signature holds over it."""
    target = x509pop()
    parts = list(read_length_prefixed(target.good, 4))
    changed = bytearray(parts[which])
    changed[at % len(changed)] = byte
    if bytes(changed) == parts[which]:
        return
    parts[which] = bytes(changed)
    target.hold(length_prefixed(*parts))
