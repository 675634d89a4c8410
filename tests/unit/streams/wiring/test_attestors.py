"""Which attestors a worker has, by its settings: all of them and right, or none and every reason."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from tests.support.certificates import OperatorCa
from tests.support.written_settings import settings_of
from watchword.handlers.attestor import Admission
from watchword.handlers.attestors.discovery.verifier import KINDS
from watchword.handlers.attestors.x509pop.verifier import X509PopAttestor
from watchword.handlers.errors import ConfigRefused
from watchword.schemas.ids import AttestorId, Role, TenantId
from watchword.streams.wiring.attestors import enabled_attestors, join_policy

HOME = {"HOME": "/nonexistent"}
DOMAIN = "fleet.example"


def pem(folder: Path, name: str, *authorities: OperatorCa) -> Path:
    file = folder / name
    file.write_bytes(b"".join(ca.certificate.public_bytes(Encoding.PEM) for ca in authorities))
    return file


def rule(file: Path, more: str = "", match: str = '{ dns = "*.web.example" }') -> str:
    return (
        f'[[attestors.x509pop.rules]]\nauthorities_file = "{file}"\nmatch = {match}\n'
        f'tenant = "acme"\npool = "web"\n{more}\n'
    )


def test_attestor_runs_only_if_it_is_enabled(tmp_path: Path) -> None:
    """A table alone turns nothing on; what is on comes in the order of the setting, each once."""
    text = "[attestors]\nenabled = {0}\n[attestors.image]\n[attestors.discovery]\n"
    none = settings_of(tmp_path, text.format("[]"))
    some = settings_of(tmp_path, text.format('["discovery", "image", "discovery"]'))

    assert enabled_attestors(none, (), trust_domain=DOMAIN) == []
    found = enabled_attestors(some, (), trust_domain=DOMAIN)
    assert [getattr(attestor, "id", None) for attestor in found] == ["discovery", "image"]


def test_rules_become_what_they_say(tmp_path: Path) -> None:
    """Rules that name one file share its CAs, and so one verification."""
    bundle = pem(tmp_path, "ca.pem", OperatorCa(), OperatorCa("second"))
    text = '[attestors]\nenabled = ["x509pop"]\n[attestors.x509pop]\nown_grace_s = 3600\n'
    text += rule(bundle, 'site = "berlin"\nroles = ["node", "site"]\nkinds = ["diag.*"]\n')
    text += rule(bundle, "reattest = true\nunsafe_unrestricted_kinds = true\n")
    [found] = enabled_attestors(settings_of(tmp_path, text), (), trust_domain=DOMAIN)

    assert isinstance(found, X509PopAttestor)
    config = found._config
    first, second = config.rules
    assert (config.trust_domain, config.own_grace.total_seconds()) == (DOMAIN, 3600)
    assert first.authorities is second.authorities
    assert len(first.authorities) == 2
    assert (first.tenant, first.pool, first.site) == ("acme", "web", "berlin")
    assert first.roles == {"node", "site"}
    assert (first.allowed_kinds, second.allowed_kinds) == (("diag.*",), None)
    assert (first.reattest, second.reattest) == (False, True)


def test_all_problems_of_rules_are_told_at_once(tmp_path: Path) -> None:
    """Or an operator mends one, restarts, and meets the next."""
    good = pem(tmp_path, "ca.pem", OperatorCa())
    edwards = pem(tmp_path, "ed.pem", OperatorCa(key=Ed25519PrivateKey.generate()))
    leaf = tmp_path / "leaf.pem"
    leaf.write_bytes(OperatorCa().give().pem)
    junk = tmp_path / "junk.pem"
    junk.write_text("nothing\n")
    text = '[attestors]\nenabled = ["x509pop", "asset"]\n'
    text += rule(tmp_path / "none.pem") + rule(junk) + rule(leaf) + rule(edwards)
    text += rule(good, 'kinds = ["wipe"]\n', match='{ CN = "*" }') + rule(good, match="{}")
    with pytest.raises(ConfigRefused) as caught:
        enabled_attestors(settings_of(tmp_path, text), (), trust_domain=DOMAIN)

    said = caught.value.problems
    for number, part in (
        (1, "none.pem: No such file"),
        (2, "no PEM file"),
        (3, "is no CA"),
        (4, "Ed25519"),
        (5, "match: no such field: CN"),
        (5, "kinds: no such kind: wipe"),
        (6, "match: empty"),
    ):
        assert [
            p for p in said if p.startswith(f"attestors.x509pop.rules[{number}].") and part in p
        ]
    assert [p for p in said if "asset is not installed" in p]
    assert len(said) == 8


@pytest.mark.parametrize(
    "more", ['roles = ["ramdisk"]', "roles = []", 'tenant = "ACME"', 'colour = "red"']
)
def test_settings_of_a_rule_are_checked_by_their_form(tmp_path: Path, more: str) -> None:
    """A misspelt or impossible setting is refused when it is read, not when a machine comes."""
    text = rule(tmp_path / "ca.pem", more).replace('tenant = "acme"\n', "", int("tenant" in more))
    with pytest.raises(ConfigRefused):
        settings_of(tmp_path, text)


def test_limits_of_built_in_attestors_stand_in_their_tables(tmp_path: Path) -> None:
    """An attestor without a table may admit nobody, ours too; with one it may what the table says."""
    text = '[attestors.x509pop]\ntenants = ["acme"]\n[attestors.discovery]\n'
    policy = join_policy(settings_of(tmp_path, text))

    def allows(attestor: str, tenant: str, kinds: tuple[str, ...] | None, role: Role) -> bool:
        grant = Admission(TenantId(tenant), role, "web", allowed_kinds=kinds)
        return policy.allows(AttestorId(attestor), grant)

    assert allows("x509pop", "acme", (), "node")
    assert not allows("x509pop", "globex", (), "node")
    assert not allows("x509pop", "acme", None, "node")
    assert allows("discovery", "acme", KINDS, "ramdisk")
    assert not allows("image", "acme", (), "node")
