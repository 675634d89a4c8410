"""What `cloud-iid` is told by its settings: all of it right, or every reason at once."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.cloud_desks import Clouds
from watchword.handlers.attestor import Admission
from watchword.handlers.attestors.cloud_iid.verifier import CloudIidAttestor
from watchword.handlers.errors import ConfigRefused
from watchword.schemas.ids import AttestorId, TenantId
from watchword.streams.settings import Settings, load, shown
from watchword.streams.wiring.attestors import enabled_attestors, join_policy

HOME = {"HOME": "/nonexistent"}
ENABLED = '[attestors]\nenabled = ["cloud-iid"]\n'


def settings_of(folder: Path, text: str, **variables: str) -> Settings:
    file = folder / "watchword.toml"
    file.write_text(text)
    return load(environment=HOME | variables, file=file).settings


def made(folder: Path, text: str, **variables: str) -> CloudIidAttestor:
    settings = settings_of(folder, ENABLED + text, **variables)
    (found,) = enabled_attestors(settings, (), trust_domain="fleet.example")
    assert isinstance(found, CloudIidAttestor)
    return found


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigRefused) as caught:
        made(folder, text)
    return caught.value.problems


def test_settings_become_what_they_say(tmp_path: Path) -> None:
    """Also those from variables: a table's name has a hyphen, which no variable can have."""
    clouds = Clouds.at(tmp_path)
    text = (
        f'[attestors.cloud-iid]\nanchors_folder = "{tmp_path}"\ntenants = ["acme"]\n'
        "[attestors.cloud-iid.aws]\nmax_age_s = 600\nunsafe_dsa = true\n"
        '[attestors.cloud-iid.gcp]\naudience = "doorman"\n'
        '[attestors.cloud-iid.azure.names]\nazure-cn = "metadata.azure.cn"\n'
    )
    found = made(tmp_path, text, WATCHWORD_ATTESTORS__CLOUD_IID__AZURE__NONCE="true")

    config = found._config
    assert config.aws.max_age == timedelta(minutes=10)
    assert (config.aws.unsafe_dsa, config.azure.nonce) == (True, True)
    assert config.gcp.audience == "doorman"
    assert config.azure.names == (("azure-cn", "metadata.azure.cn"),)
    assert set(found.anchors.current.anchors) == set(clouds.anchors().current.anchors)
    policy = join_policy(settings_of(tmp_path, text))
    for tenant in ("acme", "globex"):
        grant = Admission(TenantId(tenant), "node", "web", allowed_kinds=())
        assert policy.allows(AttestorId("cloud-iid"), grant) == (tenant == "acme")


def test_a_variable_is_shown_under_the_tables_own_name(tmp_path: Path) -> None:
    """Whoever looks for where a value came from looks for what they wrote."""
    loaded = load(environment=HOME | {"WATCHWORD_ATTESTORS__CLOUD_IID__EXPIRED": "accept"})
    (found,) = (each for each in shown(loaded) if each.name == "attestors.cloud-iid")
    assert found.source == "variable WATCHWORD_ATTESTORS__CLOUD_IID__EXPIRED"
    with pytest.raises(ConfigRefused, match=r"attestors\.cloud-iid\.expired"):
        settings_of(tmp_path, '[attestors.cloud-iid]\nexpired = "maybe"\n')


def test_a_folder_of_nothing_starts_no_worker(tmp_path: Path) -> None:
    """It would consume requests and refuse each for good."""
    assert "not set" in problems(tmp_path, "")[0]
    text = f'[attestors.cloud-iid]\nanchors_folder = "{tmp_path}"\n'
    assert "anchors.json" in problems(tmp_path, text)[0]
    (tmp_path / "anchors.json").write_text('{"anchors": []}')
    assert "not one anchor" in problems(tmp_path, text)[0]


def test_addresses_alone_are_enough(tmp_path: Path) -> None:
    """Whoever has machines with Google only needs no file at all."""
    urls = '[attestors.cloud-iid.gcp]\njwks_urls = ["https://www.googleapis.com/oauth2/v3/certs"]\n'
    assert made(tmp_path, urls).anchors.google_keys == {}


@pytest.mark.parametrize(
    "url",
    [
        "http://www.googleapis.com/oauth2/v3/certs",
        "https://user:secret@www.googleapis.com/",
        "https:///certs",
        "file:///etc/passwd",
        "https://example.com/#a",
        "https://[::1",
    ],
)
def test_an_address_that_others_could_answer_for_is_refused(tmp_path: Path, url: str) -> None:
    """Who answers instead of Google says which machines are Google's."""
    with pytest.raises(ConfigRefused, match="https://host/path"):
        settings_of(tmp_path, f'[attestors.cloud-iid.gcp]\njwks_urls = ["{url}"]\n')


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("", 'expired = "no"'),
        ("", "reload_s = 0"),
        (".aws", "max_age_s = 0"),
        (".aws", "dsa = true"),
        (".gcp", 'audience = "a/b"'),
        (".gcp", "max_life_s = 100000"),
        (".azure", 'names = { aws = "metadata.azure.com" }'),
        (".azure", 'names = { azure = "*.azure.com" }'),
    ],
)
def test_settings_are_checked_by_their_form(tmp_path: Path, table: str, said: str) -> None:
    """A misspelt or impossible setting is refused when it is read, not when a machine comes."""
    with pytest.raises(ConfigRefused, match=r"attestors\.cloud-iid"):
        settings_of(tmp_path, f"[attestors.cloud-iid{table}]\n{said}\n")
