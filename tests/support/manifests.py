"""The manifests for Kubernetes as they are shipped, and the settings that a role gets of them."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.exported import DEPLOY
from watchword.streams.settings import Settings, load

FOLDER = DEPLOY / "kubernetes"

IMAGE_USER = "65532"
SECRETS = "/run/secrets/watchword/"

Manifest = dict[str, Any]


@cache
def manifests() -> tuple[tuple[str, Manifest], ...]:
    """Return every manifest with a name to tell it by."""
    return tuple(
        (f"{file.stem}-{found['kind']}-{found['metadata']['name']}", found)
        for file in sorted(FOLDER.glob("*.yaml"))
        for found in yaml.safe_load_all(file.read_text())
    )


def of_kind(*kinds: str) -> list[Any]:
    """Return the manifests of these kinds, as parameters."""
    return [pytest.param(found, id=name) for name, found in manifests() if found["kind"] in kinds]


def pods() -> Iterator[tuple[str, Manifest]]:
    """Give the template of every pod, with its manifest's name."""
    for name, found in manifests():
        if found["kind"] in {"Deployment", "StatefulSet", "Job"}:
            yield name, found["spec"]["template"]


def containers() -> list[Any]:
    """Return every container of every pod, with its pod."""
    return [
        pytest.param(pod["spec"], one, id=f"{name}-{one['name']}")
        for name, pod in pods()
        for one in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"])
    ]


def given(pod: Manifest, container: Manifest, folder: Path) -> tuple[Settings, set[str]]:
    """Return the settings of a role that has what its manifest gives it, and the keys of its secret."""
    mounted = {one["name"] for one in container["volumeMounts"]}
    secrets = _secret_of(pod) if "secrets" in mounted else set[str]()
    for key in secrets:
        content = "postgresql://watchword@db/watchword" if key == "database.url" else "x" * 48
        (folder / key).write_text(content)
    maps = config_maps()
    file = folder / "config.toml"
    file.write_text(maps["watchword"]["config.toml"].replace(SECRETS, f"{folder}/"))
    environment: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        environment |= maps[source["configMapRef"]["name"]]
    for variable in container.get("env", ()):
        environment[variable["name"]] = variable.get("value", "watchword-worker-0")
    environment = {
        name: value.replace(SECRETS, f"{folder}/") for name, value in environment.items()
    }
    return load(file=file, environment=environment).settings, secrets


def config_maps() -> dict[str, dict[str, str]]:
    """Return what each ConfigMap has."""
    return {
        found["metadata"]["name"]: found["data"]
        for _, found in manifests()
        if found["kind"] == "ConfigMap"
    }


def _secret_of(pod: Manifest) -> set[str]:
    """Return the keys of the secret that a pod's `secrets` volume names, as README.md says."""
    text = (FOLDER / "README.md").read_text("utf-8")
    names = {v["secret"]["secretName"] for v in pod["volumes"] if v["name"] == "secrets"}
    for row in re.findall(r"^\| (`watchword-.*?) \| (.*?) \|$", text, re.MULTILINE):
        if names & set(re.findall(r"`([^`]+)`", row[0])):
            return set(re.findall(r"`([^`]+)`", row[1]))
    raise AssertionError(names)
