"""What a simulation is asked for, as it is written on a command line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from watchword.handlers.errors import BadArgument

Kind = Literal["token", "tpm", "discovery", "restricted"]
"""How a machine joins; `restricted` is the attestor `sim-restricted`, which is a stranger's as any other."""

Fault = Literal["duplicate", "forged", "moved", "vanish"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
FAULTS: Final[Mapping[Fault, str]] = {
    "duplicate": "the same bytes are sent twice",
    "forged": "the proof is made with a key or a secret that nobody knows: refused",
    "moved": "the evidence was sealed for another CSR: refused",
    "vanish": "nobody waits for the answer",
}
"""What may be wrong with a machine, and what becomes of it."""

_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)/(s|min)")
_ALL = 100.0


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulation. Shares are in percent; the kinds' are all, the faults' what they are."""

    nodes: int
    per_second: float
    mix: Mapping[Kind, float]
    faults: Mapping[Fault, float]
    renew: float = 20.0
    leave: float = 10.0
    seed: int = 0


def parse_rate(text: str) -> float:
    """Return machines a second of `200/s` or `90/min`; raises `BadArgument`."""
    found = _RATE.fullmatch(text.strip())
    per_second = 0.0 if found is None else float(found[1]) / (60 if found[2] == "min" else 1)
    if per_second <= 0:
        message = f"a rate is written 200/s or 90/min, not {text[:40]!r}"
        raise BadArgument(message)
    return per_second


def parse_mix(text: str) -> dict[Kind, float]:
    """Return the share of each kind in `token=70,discovery=30`; they are 100 together. Raises `BadArgument`."""
    found = _shares(text, KINDS, "mix")
    if abs(sum(found.values()) - _ALL) > 1e-6:  # noqa: PLR2004 - decimal fractions
        message = f"the shares of the mix are {sum(found.values()):g} together, not 100"
        raise BadArgument(message)
    return {cast("Kind", name): share for name, share in found.items() if share}


def parse_faults(text: str) -> dict[Fault, float]:
    """Return the share of each fault in `duplicate=5,forged=1`; raises `BadArgument`."""
    found = _shares(text, tuple(FAULTS), "faults") if text.strip() else {}
    if sum(found.values()) > _ALL:
        message = "the shares of faults are more than 100 together"
        raise BadArgument(message)
    return {cast("Fault", name): share for name, share in found.items() if share}


def check_share(share: float, name: str) -> float:
    """Return a share in percent; raises `BadArgument`."""
    if not 0 <= share <= _ALL:
        message = f"{name}: 0 to 100 percent"
        raise BadArgument(message)
    return share


def _shares(text: str, known: tuple[str, ...], what: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = (word.strip() for word in part.partition("="))
        if name not in known:
            message = f"{what}: {name[:40]!r} is none of {', '.join(known)}"
            raise BadArgument(message)
        if name in found:
            message = f"{what}: {name} is there twice"
            raise BadArgument(message)
        try:
            found[name] = check_share(float(share), f"{what}: {name}")
        except ValueError:
            message = f"{what}: {name} needs a share in percent, such as {name}=20"
            raise BadArgument(message) from None
    return found
