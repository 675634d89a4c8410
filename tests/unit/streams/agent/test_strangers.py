"""Provers of other packages: found under the attestor's id, or the agent says in one sentence why there is none."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from watchword.handlers.errors import BadArgument, ConfigRefused
from watchword.handlers.prover import Prover, ProverSettings, text_setting
from watchword.schemas.ids import Role
from watchword.streams.agent.strangers import GROUP, load_prover, provers, read_settings

MODULE = "a_strangers_prover"


class Tag:
    def __init__(self, settings: ProverSettings) -> None:
        """Have a tag."""
        self.id = "acme-asset"
        self.tag = text_setting(settings, "tag")

    async def evidence(self, csr_sha256: bytes, role: Role) -> bytes:
        return csr_sha256 + role.encode() + self.tag.encode()

    async def answer(self, challenge: bytes, csr_sha256: bytes, role: Role) -> bytes:
        return challenge + csr_sha256 + role.encode()


class Another(Tag):
    def __init__(self, settings: ProverSettings) -> None:
        """Have another id."""
        super().__init__(settings)
        self.id = "acme-rack"


class Silent(Tag):
    def answer(self, *_: object) -> bytes:  # type: ignore[override]
        return b""


def broken(settings: ProverSettings) -> Prover:
    raise KeyError(settings["tag"])


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a module that an entry point can name."""
    module: Any = ModuleType(MODULE)
    for made in (Tag, Another, Silent, broken):
        setattr(module, made.__name__, made)
    module.text = "no prover"
    monkeypatch.setitem(sys.modules, MODULE, module)


def loaded(attribute: str, settings: ProverSettings, *, times: int = 1) -> Prover:
    entry = EntryPoint("acme-asset", f"{MODULE}:{attribute}", GROUP)
    return load_prover(provers([entry] * times)["acme-asset"], settings)


async def test_prover_is_made_of_what_its_operator_says() -> None:
    prover = loaded("Tag", read_settings(["tag=ACME-1=x"], None))
    assert await prover.evidence(bytes(32), "node") == bytes(32) + b"nodeACME-1=x"


@pytest.mark.parametrize(
    ("attribute", "says"),
    [
        ("nowhere", "cannot be loaded: AttributeError"),
        ("text", "nothing that makes a prover"),
        ("Another", "makes a prover of 'acme-rack'"),
        ("Silent", "no `async def` evidence and answer"),
        ("broken", "makes no prover of these settings: KeyError"),
    ],
)
def test_what_cannot_be_used_is_said_before_anything_is_asked(attribute: str, says: str) -> None:
    with pytest.raises(ConfigRefused, match=says) as caught:
        loaded(attribute, {"tag": "a-secret"})
    assert "a-secret" not in str(caught.value)


def test_setting_that_is_not_there_is_named() -> None:
    with pytest.raises(BadArgument, match="--option tag="):
        loaded("Tag", {})


def test_two_packages_cannot_both_be_meant() -> None:
    """Which of them runs must not be left to the order of installation."""
    with pytest.raises(ConfigRefused, match="several packages"):
        loaded("Tag", {"tag": "x"}, times=2)


def test_settings_come_from_a_file_and_from_options(tmp_path: Path) -> None:
    file = tmp_path / "prover.toml"
    file.write_text('pin = "1234"\nslot = 2\n')
    assert read_settings(["tag=x"], file) == {"pin": "1234", "slot": 2, "tag": "x"}


@pytest.mark.parametrize(
    ("options", "text", "says"),
    [
        (["tag"], "", "name=value"),
        (["=x"], "", "name=value"),
        (["tag=x", "tag=y"], "", "said twice"),
        (["pin=1"], 'pin = "2"', "said twice"),
        ([], "pin = secret", "is not TOML"),
    ],
)
def test_unclear_settings_are_refused(
    tmp_path: Path, options: list[str], text: str, says: str
) -> None:
    file = tmp_path / "prover.toml"
    file.write_text(text)
    with pytest.raises(BadArgument, match=says) as caught:
        read_settings(options, file)
    assert "secret" not in str(caught.value)


def test_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="No such file"):
        read_settings([], tmp_path / "none.toml")
