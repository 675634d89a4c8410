"""The attestors that the configuration names, and what each may return."""

import contextlib
from collections.abc import Iterable
from importlib.metadata import EntryPoint

from watchword.handlers.attestors.discovery.verifier import DiscoveryAttestor
from watchword.handlers.attestors.image.verifier import ImageAttestor
from watchword.handlers.attestors.tpm.verifier import TpmAttestor
from watchword.handlers.attestors.x509pop.verifier import X509PopAttestor
from watchword.handlers.errors import ConfigRefused
from watchword.handlers.join.policy import JoinPolicy, Limits
from watchword.handlers.kinds import known_kind, registry
from watchword.schemas.ids import ROLES, AttestorId
from watchword.streams.settings import Settings
from watchword.streams.settings.cloud import CloudIidSettings
from watchword.streams.settings.limits import AttestorLimits
from watchword.streams.settings.policies import TpmSettings, X509PopSettings
from watchword.streams.wiring.cloud_iid import cloud_iid_attestor
from watchword.streams.wiring.strangers import load, registrations
from watchword.streams.wiring.tpm import tpm_config
from watchword.streams.wiring.x509pop import x509pop_config

BUILT_IN = frozenset(("x509pop", "image", "discovery", "tpm", "cloud-iid"))
"""Ids of ours that `attestors.enabled` may name; a package that registers one of them is not asked."""


def enabled_attestors(
    settings: Settings, installed: Iterable[EntryPoint] | None = None, *, trust_domain: str
) -> list[object]:
    """Return the attestors of `attestors.enabled`; half of them is none.

    Raises:
        ConfigRefused: one is not installed, cannot be loaded, or its settings cannot be used.
    """
    found = registrations(installed)
    problems: list[str] = []
    attestors: list[object] = []
    for name in dict.fromkeys(settings.attestors.enabled):
        if name in BUILT_IN:
            attestors.append(_built_in(name, settings, trust_domain, problems))
        elif name in found:
            try:
                attestors.append(load(found[name]))
            except ConfigRefused as refused:
                problems += [f"attestors.enabled: {problem}" for problem in refused.problems]
        else:
            known = ", ".join(sorted(BUILT_IN | found.keys()))
            problems.append(f"attestors.enabled: {name} is not installed (there is: {known})")
    if problems:
        raise ConfigRefused(problems)
    return attestors


def installed_attestors(settings: Settings) -> list[object]:
    """Return the strangers' attestors of `attestors.enabled` that can be loaded: for the reasons that they declare.

    One that cannot be loaded is passed over: who looks at refusals judges nobody.
    """
    found = registrations(None)
    loaded: list[object] = []
    for name in settings.attestors.enabled:
        if name not in BUILT_IN and name in found:
            with contextlib.suppress(ConfigRefused):
                loaded.append(load(found[name]))
    return loaded


def packages_with_tables(settings: Settings) -> list[tuple[str, str]]:
    """Return the enabled attestors of other packages that have tables, with the package that ships them.

    Raises:
        ConfigRefused: one cannot be loaded.
    """
    found = registrations(None)
    strangers = [
        load(found[name])
        for name in dict.fromkeys(settings.attestors.enabled)
        if name not in BUILT_IN and name in found
    ]
    packages = ((one.id, getattr(one, "package", None)) for one in strangers)
    return [(name, package) for name, package in packages if package is not None]


def _built_in(name: str, settings: Settings, trust_domain: str, problems: list[str]) -> object:
    """Return one of ours; what is wrong with its settings goes to `problems`."""
    registered = registry(settings.deployment.kinds)
    match name:
        case "x509pop":
            certificates = settings.attestors.x509pop or X509PopSettings()
            return X509PopAttestor(x509pop_config(certificates, trust_domain, registered, problems))
        case "tpm":
            section = settings.attestors.tpm or TpmSettings()
            return TpmAttestor(tpm_config(section, registered, problems))
        case "cloud-iid":
            return cloud_iid_attestor(settings.attestors.cloud_iid or CloudIidSettings(), problems)
        case "image":
            return ImageAttestor()
        case _:
            return DiscoveryAttestor()


def join_policy(settings: Settings) -> JoinPolicy:
    """Return the limits of `[attestors.<id>]`.

    Raises:
        ConfigRefused: a kind is not registered.
    """
    registered = registry(settings.deployment.kinds)
    problems: list[str] = []
    limits: dict[AttestorId, Limits] = {}
    sections: dict[str, AttestorLimits] = dict(settings.attestors.limits)
    if settings.attestors.x509pop is not None:
        sections["x509pop"] = settings.attestors.x509pop
    if settings.attestors.tpm is not None:
        sections["tpm"] = settings.attestors.tpm
    if settings.attestors.cloud_iid is not None:
        sections["cloud-iid"] = settings.attestors.cloud_iid
    for name, section in sections.items():
        problems += [
            f"attestors.{name}.kinds: no such kind: {kind}"
            for kind in section.kinds or ()
            if not known_kind(kind, registered)
        ]
        limits[AttestorId(name)] = Limits(
            tenants=_set(section.tenants),
            pools=_set(section.pools),
            sites=_set(section.sites),
            roles=ROLES if section.roles is None else frozenset(section.roles),
            kinds=_set(section.kinds),
            unrestricted_kinds=section.unsafe_unrestricted_kinds,
        )
    if problems:
        raise ConfigRefused(problems)
    return JoinPolicy(limits, registered)


def _set(names: tuple[str, ...] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)
