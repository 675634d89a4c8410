"""Attestors of other packages: found, loaded by name, or the worker does not start and says why."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.attestors.scripted import Scripted
from tests.support.written_settings import settings_of
from watchword.handlers.errors import ConfigRefused
from watchword.streams.settings import Settings
from watchword.streams.wiring.attestors import BUILT_IN, enabled_attestors
from watchword.streams.wiring.found_attestors import check_attestors, found_attestors, without_table

DOMAIN = "fleet.example"
MODULE = "a_strangers_package"


class Asset(Scripted):
    """The class form, registered as a class."""

    def __init__(self) -> None:
        """Have the entry point's name."""
        super().__init__("acme-asset")


class Halves:
    id = "acme-asset"
    version = "one"
    roles = frozenset(("king",))
    reasons = ("bad-tag",)

    async def verify(self) -> None: ...


def broken() -> object:
    message = "no HSM"
    raise OSError(message)


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a module that an entry point can name."""
    module: Any = ModuleType(MODULE)
    module.attestor = Scripted("acme-asset")
    module.Asset = Asset
    module.make = Asset
    module.broken = broken
    module.Halves = Halves
    module.text = "no attestor"
    module.nothing = dict
    monkeypatch.setitem(sys.modules, MODULE, module)


def entry(attribute: str, name: str = "acme-asset", module: str = MODULE) -> EntryPoint:
    return EntryPoint(name, f"{module}:{attribute}", "watchword.attestors")


def enabling(folder: Path, *names: str) -> Settings:
    return settings_of(folder, f"[attestors]\nenabled = {list(names)!r}\n")


@pytest.mark.parametrize("attribute", ["attestor", "Asset", "make"])
def test_object_class_or_function_is_loaded(tmp_path: Path, attribute: str) -> None:
    """An author registers what is nearest to hand."""
    settings = enabling(tmp_path, "acme-asset")
    [found] = enabled_attestors(settings, [entry(attribute)], trust_domain=DOMAIN)
    assert getattr(found, "id", None) == "acme-asset"
    assert callable(getattr(found, "verify", None))


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([entry("broken")], "cannot be loaded: OSError: no HSM"),
        ([entry("none")], "cannot be loaded: AttributeError"),
        ([entry("x", module="no_such_package")], "cannot be loaded: ModuleNotFoundError"),
        ([entry("text")], "is no attestor: str"),
        ([entry("nothing")], "is no attestor: dict"),
        ([entry("Halves")], "no usable version: 'one'"),
        ([entry("Halves")], "unknown roles: 'king'"),
        ([entry("attestor", "other")], "registered under another name than its id, acme-asset"),
        ([entry("attestor"), entry("Asset")], "registered by several packages"),
        ([], "acme-asset is not installed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_named_and_cannot_be_loaded_stops_the_worker(
    tmp_path: Path, entries: list[EntryPoint], said: str
) -> None:
    """A worker without the verifier that somebody relies on would refuse a fleet, politely and for hours."""
    name = entries[0].name if entries else "acme-asset"
    settings = enabling(tmp_path, "image", name)
    with pytest.raises(ConfigRefused) as caught:
        enabled_attestors(settings, entries, trust_domain=DOMAIN)
    told = [problem for problem in caught.value.problems if said in problem]
    assert len(told) == 1
    assert told[0].startswith("attestors.enabled: ")
    assert "\n" not in told[0]
    assert said in " ".join(check_attestors(settings, entries))


def test_list_says_where_each_comes_from_and_why_one_is_skipped(tmp_path: Path) -> None:
    """An operator sees what they would enable, and why a package that is there is not used."""
    settings = enabling(tmp_path, "acme-asset", "gone")
    entries = [
        entry("attestor"),
        entry("broken", "broken"),
        entry("attestor", "tpm"),
        EntryPoint("idle", "tests.unit.streams.wiring.test_strangers:idle", "watchword.attestors"),
    ]
    found = {(one.id, one.distribution): one for one in found_attestors(settings, entries)}

    ours = found["join-token", "watchword"]
    assert (ours.state, ours.roles) == ("enabled", ("node", "ramdisk", "site"))
    assert "bad-secret" in [reason.name for reason in ours.reasons]
    assert found["image", "watchword"].state == "available"
    strangers = found["acme-asset", None]
    assert (strangers.state, strangers.version, strangers.roles) == (
        "enabled",
        "1",
        ("node", "site"),
    )
    assert strangers.place == f"{MODULE}:attestor"
    assert strangers.problem is not None
    assert "may admit nobody" in strangers.problem
    for name, said in (
        ("broken", "no HSM"),
        ("tpm", "one of Watchword's own"),
        ("gone", "not installed"),
    ):
        one = found[name, None]
        assert one.state == "skipped"
        assert said in (one.problem or "")
    assert found["idle", None].state == "available"


def test_list_shows_each_of_ours(tmp_path: Path) -> None:
    """One that is enabled and left out would be told as one that is not installed."""
    settings = enabling(tmp_path, *sorted(BUILT_IN))
    found = [one for one in found_attestors(settings, []) if one.distribution == "watchword"]

    assert {one.id for one in found} == BUILT_IN | {"join-token"}
    assert len(found) == len(BUILT_IN) + 1
    for one in found:
        assert one.state == "enabled", one
        assert one.version, one
        assert one.roles, one
        assert one.reasons, one
    assert not [one for one in found_attestors(settings, []) if one.state == "skipped"]


def idle() -> Scripted:
    """Be registered and not enabled."""
    return Scripted("idle")


def test_check_finds_clashes_and_missing_tables(tmp_path: Path) -> None:
    """What loads by itself may still be in the way of another."""
    settings = settings_of(
        tmp_path,
        '[attestors]\nenabled = ["acme-asset"]\n[attestors.acme-asset]\nkinds = ["wipe"]\n',
    )
    assert check_attestors(settings, [entry("attestor")]) == [
        "attestors.acme-asset.kinds: no such kind: wipe"
    ]
    assert without_table(settings) == []
    bare = enabling(tmp_path, "acme-asset", "image")
    assert check_attestors(bare, [entry("attestor")]) == []
    assert without_table(bare) == ["acme-asset", "image"]
