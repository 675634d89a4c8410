"""The manifest of an anchor folder: `anchors.json`, one entry for each file.

Every entry says what its file must be, so that a file in the wrong place is found when it is loaded
and not when a machine of a cloud knocks.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from watchword.handlers.errors import ConfigRefused

MANIFEST = "anchors.json"
MAX_FILE_BYTES = 256 * 1024
MAX_ANCHORS = 1024

Provider = Literal["aws", "azure", "gcp"]
Purpose = Literal["rsa2048", "dsa", "rsa", "root", "intermediate", "jwks"]

PURPOSES: dict[Provider, frozenset[Purpose]] = {
    "aws": frozenset(("rsa2048", "dsa", "rsa")),
    "azure": frozenset(("root", "intermediate")),
    "gcp": frozenset(("jwks",)),
}
REGION = re.compile(r"[a-z]{2,8}(?:-[a-z]{2,16}){1,3}-[0-9]{1,2}")
"""An AWS region, such as `us-gov-west-1`; no dots, no NULs, no capitals."""


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name:
        message = "a path inside the folder"
        raise ValueError(message)
    return name


def _region(name: str) -> str:
    if name and not REGION.fullmatch(name):
        message = "no region"
        raise ValueError(message)
    return name


class Entry(BaseModel):
    """What one file of the folder is said to be. `key_type` is such as `rsa-2048`, `dsa-1024`, `ec-secp384r1`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True
    )

    file: Annotated[str, AfterValidator(_inside)]
    provider: Provider
    partition: str
    """`aws`, `aws-cn`, `aws-us-gov`; `azure`, `azure-us-gov`, `azure-cn`; `gcp`."""
    region: Annotated[str, AfterValidator(_region)] = ""
    """The region of an AWS certificate; else empty."""
    purpose: Purpose
    key_type: str
    not_before: AwareDatetime | None = None
    not_after: AwareDatetime | None = None
    """A certificate's validity, to the second; a key set has none."""
    source: str
    """Where the file was taken from, for people."""

    def misfit(self) -> str | None:
        """Return what in the entry contradicts itself, or None."""
        if self.purpose not in PURPOSES[self.provider]:
            return "no purpose of this provider"
        if self.partition.split("-", 1)[0] != self.provider:
            return "no partition of this provider"
        if (self.provider == "aws") != bool(self.region):
            return "a region belongs to AWS, and to all of AWS"
        return None


class _Manifest(BaseModel):
    anchors: Annotated[list[Any], Field(max_length=MAX_ANCHORS)]


@dataclass(frozen=True, slots=True)
class Problem:
    """A file or entry that was left out, or is worth a warning, and why."""

    file: str
    problem: str


def read_manifest(data: bytes) -> tuple[list[Entry], list[Problem]]:
    """Return the entries that make sense, and what is wrong with the others.

    Raises:
        ConfigRefused: it is no manifest at all.
    """
    try:
        listed = _Manifest.model_validate_json(data).anchors
    except ValidationError:
        raise ConfigRefused([f"{MANIFEST}: no list `anchors` of at most {MAX_ANCHORS}"]) from None
    entries: list[Entry] = []
    problems: list[Problem] = []
    for number, raw in enumerate(listed):
        try:
            entry = Entry.model_validate(raw)
        except ValidationError as error:
            fields = ", ".join(sorted({str(e["loc"][0]) for e in error.errors() if e["loc"]}))
            problems.append(
                Problem(f"{MANIFEST}[{number}]", f"not usable: {fields or 'no object'}")
            )
            continue
        misfit = entry.misfit()
        if misfit is None:
            entries.append(entry)
        else:
            problems.append(Problem(entry.file, misfit))
    return entries, problems


def same_second(one: datetime | None, other: datetime) -> bool:
    """Tell whether a time of the manifest is a certificate's; none is fine."""
    return one is None or one.replace(microsecond=0) == other
