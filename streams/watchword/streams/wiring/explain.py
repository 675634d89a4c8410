"""Who explains, by the worker's own settings or by a draft of them."""

import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from watchword.handlers.attestors.cloud_iid.verifier import CloudIidAttestor
from watchword.handlers.attestors.join_token.verifier import JoinTokenAttestor
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.errors import BadArgument, ConfigRefused
from watchword.handlers.explain.drafts import Draft, Files
from watchword.handlers.explain.explaining import Explainer
from watchword.handlers.join.approvals import ApprovalRules
from watchword.handlers.join.issuing import Validity
from watchword.handlers.join.judging import JudgingOptions
from watchword.handlers.join.policy import JoinPolicy
from watchword.handlers.service import TOKEN_LIMITS
from watchword.schemas.ids import AttestorId
from watchword.streams.settings import Settings
from watchword.streams.settings.policies import AttestorsSettings, TpmSettings
from watchword.streams.wiring.attestors import enabled_attestors, join_policy

_WITH_ANCHORS = ("cloud-iid", "tpm")


def explainer(
    settings: Settings, crypto: JoinCrypto, attestors: list[object], policy: JoinPolicy
) -> Explainer:
    """Return who explains with these attestors and limits."""
    deployment = settings.deployment
    if not any(getattr(one, "id", None) == "join-token" for one in attestors):
        attestors = [JoinTokenAttestor(), *attestors]
    limits = {AttestorId("join-token"): TOKEN_LIMITS, **policy.attestors}
    return Explainer(
        crypto,
        attestors,
        JoinPolicy(limits, policy.registered_kinds),
        JudgingOptions(
            Validity(
                timedelta(seconds=deployment.certificate_lifetime_s), deployment.renew_fraction
            ),
            deployment.verify_timeout_s,
            deployment.approval_retry_after_s,
        ),
        ApprovalRules(
            timedelta(seconds=deployment.approval_ttl_s),
            deployment.waiting_per_tenant,
            deployment.waiting_per_site,
        ),
    )


@contextmanager
def drafted(
    settings: Settings, crypto: JoinCrypto, running: list[object], draft: Draft
) -> Generator[Explainer]:
    """Give who explains by a draft. Files that came with it are in a folder of their own, and gone afterwards.

    Raises:
        BadArgument: a file is named as no draft names one.
        ConfigRefused: with every problem of the draft.
    """
    with tempfile.TemporaryDirectory(prefix="watchword-draft-") as folder:
        changed = _drafted(settings, draft, Path(folder))
        attestors = enabled_attestors(changed, trust_domain=crypto.trust_domain)
        _lend_keys(attestors, running)
        yield explainer(changed, crypto, attestors, join_policy(changed))


def _drafted(settings: Settings, draft: Draft, folder: Path) -> Settings:
    """Return the settings with the draft's tables in the place of their own."""
    tables: dict[str, Any] = _with_files(dict(draft.attestors), draft.files, folder)
    try:
        said = AttestorsSettings.model_validate(tables)
    except ValidationError as error:
        raise ConfigRefused(
            [
                f"attestors.{'.'.join(str(part) for part in one['loc'])}: {one['msg']}"
                for one in error.errors(include_url=False, include_input=False)
            ]
        ) from None
    was = settings.attestors
    changes: dict[str, Any] = {name: getattr(said, name) for name in said.model_fields_set}
    changes["limits"] = {**was.limits, **said.limits}
    merged = was.model_copy(update=changes)
    for name, files in draft.anchors.items():
        # Before anything is written: the name becomes part of a path.
        if name not in _WITH_ANCHORS:
            message = f"anchors: {name!r:.80} has none (there is: {', '.join(_WITH_ANCHORS)})"
            raise BadArgument(message)
        merged = _with_anchors(merged, name, _written(files, folder / f"anchors-{name}"))
    return settings.model_copy(update={"attestors": merged})


def _with_files(tables: dict[str, Any], files: Files, folder: Path) -> dict[str, Any]:
    """Return the tables with the draft's own files where they name them."""
    section = tables.get("x509pop")
    if not isinstance(section, dict) or not files:
        return tables
    named = cast("dict[str, Any]", section)
    names: dict[str, str] = {}
    for nth, (name, content) in enumerate(files.items()):
        made = folder / f"file-{nth}.pem"
        made.write_bytes(content)
        names[name] = str(made)
    # What is malformed stays as it is: the settings say what is wrong with it.
    given = named.get("rules")
    if not isinstance(given, list):
        return tables
    rules = [_with_file(rule, names) for rule in cast("list[object]", given)]
    return {**tables, "x509pop": {**named, "rules": rules}}


def _with_file(rule: object, names: Mapping[str, str]) -> object:
    if not isinstance(rule, dict):
        return rule
    said = cast("dict[str, Any]", rule)
    made = names.get(str(said.get("authorities_file")))
    return said if made is None else {**said, "authorities_file": made}


def _with_anchors(attestors: AttestorsSettings, name: str, folder: Path) -> AttestorsSettings:
    if name == "tpm":
        section: Any = attestors.tpm or TpmSettings()
        field = "tpm"
    elif name == "cloud-iid" and attestors.cloud_iid is not None:
        section, field = attestors.cloud_iid, "cloud_iid"
    else:
        message = f"anchors: {name} is not configured"
        raise BadArgument(message)
    return attestors.model_copy(
        update={field: section.model_copy(update={"anchors_folder": folder})}
    )


def _written(files: Mapping[str, bytes], folder: Path) -> Path:
    folder.mkdir()
    for name, content in files.items():
        path = folder / name
        if (path.is_absolute() and not path.is_relative_to(folder)) or ".." in Path(name).parts:
            message = f"anchors: {name!r:.80} is no path inside the folder"
            raise BadArgument(message)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def _lend_keys(attestors: list[object], running: list[object]) -> None:
    """Give a drafted `cloud-iid` the keys that the worker has fetched: a draft fetches nothing."""
    theirs = next((one for one in running if isinstance(one, CloudIidAttestor)), None)
    ours = next((one for one in attestors if isinstance(one, CloudIidAttestor)), None)
    if ours is not None and theirs is not None:
        ours.anchors.put_keys("the worker's", theirs.anchors.google_keys)
