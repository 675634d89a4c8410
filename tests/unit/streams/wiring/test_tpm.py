"""What `tpm` is told by a worker's settings."""

from pathlib import Path

import pytest

from tests.support.tpm import Maker
from watchword.handlers.attestor import Admission
from watchword.handlers.attestors.tpm.verifier import TpmAttestor
from watchword.handlers.errors import ConfigRefused
from watchword.schemas.ids import AttestorId, TenantId
from watchword.streams.settings import Settings, load
from watchword.streams.wiring.attestors import enabled_attestors, join_policy

ROOM = '[attestors.tpm.waiting_room]\ntenant = "acme"\npool = "web"\nkinds = ["{0}"]\n'


def _settings(folder: Path, text: str) -> Settings:
    file = folder / "watchword.toml"
    file.write_text(f'[attestors]\nenabled = ["tpm"]\n[attestors.tpm]\n{text}')
    return load(environment={"HOME": "/nonexistent"}, file=file).settings


def _anchors(folder: Path) -> Path:
    anchors = folder / "vendors"
    anchors.mkdir()
    (anchors / "root.der").write_bytes(Maker().root)
    (anchors / "junk.pem").write_bytes(b"no certificate")
    return anchors


def test_folder_and_waiting_room_reach_the_attestor(tmp_path: Path) -> None:
    """One bad file among the CAs keeps no worker from starting."""
    text = f'anchors_folder = "{_anchors(tmp_path)}"\ntenants = ["acme"]\n{ROOM.format("diag.*")}'
    settings = _settings(tmp_path, text)
    [attestor] = enabled_attestors(settings, (), trust_domain="fleet.example")

    assert isinstance(attestor, TpmAttestor)
    assert len(attestor._config.anchors.by_subject) == 1
    assert attestor._config.waiting_room is not None
    assert attestor._config.waiting_room.allowed_kinds == ("diag.*",)


def test_limits_hold_for_tpm(tmp_path: Path) -> None:
    """Its table has limits like any other's, and they are not lost beside its own settings."""
    policy = join_policy(_settings(tmp_path, 'tenants = ["acme"]\n'))

    def allowed(tenant: str) -> bool:
        grant = Admission(tenant=TenantId(tenant), role="node", pool="web", allowed_kinds=())
        return policy.allows(AttestorId("tpm"), grant)

    assert allowed("acme")
    assert not allowed("other")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ROOM.format("diag.*"), "needs CAs"),
        (ROOM.format("no-such-kind"), "no such kind: no-such-kind"),
        ('anchors_folder = "/nonexistent"\n', "No such file"),
    ],
)
def test_half_a_configuration_starts_no_worker(tmp_path: Path, text: str, said: str) -> None:
    """A folder that is not there, or a waiting room for anybody, is told and not guessed around."""
    with pytest.raises(ConfigRefused, match=said):
        enabled_attestors(_settings(tmp_path, text), (), trust_domain="fleet.example")
