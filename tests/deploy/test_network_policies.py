"""Network policies for Kubernetes: a role reaches what it needs, is reached where it listens, and no more."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.manifests import Manifest, given, manifests, pods


def rules_of(pod: Manifest, direction: str) -> list[Manifest]:
    """Return what the network policies that choose a pod let through."""
    labels = pod["metadata"]["labels"]
    return [
        rule
        for _, found in manifests()
        if found["kind"] == "NetworkPolicy" and _chooses(found["spec"]["podSelector"], labels)
        for rule in found["spec"].get(direction, ())
    ]


def _chooses(selector: Manifest, labels: dict[str, str]) -> bool:
    expressions = selector.get("matchExpressions", [])
    assert all(one["operator"] == "In" for one in expressions)
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels[one["key"]] in one["values"] for one in expressions
    )


def outlets(pod: Manifest) -> set[tuple[str, int]]:
    """Return the namespaces that a pod reaches, and where; a rule that names no namespace fails."""
    return {
        (to["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"], one["port"])
        for rule in rules_of(pod, "egress")
        for to in rule["to"]
        for one in rule["ports"]
    }


@pytest.mark.parametrize("pod", [pytest.param(pod, id=name) for name, pod in pods()])
def test_a_role_reaches_what_it_is_told_of_and_nothing_else(pod: Manifest, tmp_path: Path) -> None:
    """A way that is missing is a role that never gets ready; one too many is what an intruder goes on by."""
    wanted = {("kube-system", 53)}
    for container in pod["spec"]["containers"]:
        role = container["name"]
        (tmp_path / role).mkdir()
        settings, _ = given(pod["spec"], container, tmp_path / role)
        if settings.database.url is not None:
            wanted.add(("postgresql", 5432))
        if settings.kafka.bootstrap_servers is not None:
            wanted.add(_named_by(f"//{settings.kafka.bootstrap_servers}"))
        if settings.tracing.url is not None:
            wanted.add(_named_by(settings.tracing.url))
        if role == "console":
            wanted.add(("identity", 443))

    assert outlets(pod) == wanted
    listening = {
        port["containerPort"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports", ())
    }
    assert {one["port"] for rule in rules_of(pod, "ingress") for one in rule["ports"]} == listening


def _named_by(address: str) -> tuple[str, int]:
    """Return the namespace of a service's name, and the port."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname.split(".")[1], parts.port


def test_a_gateway_cannot_reach_the_database_nor_the_signer() -> None:
    """It is what the outside talks to; it holds nothing, and reaches nothing."""
    (gateway,) = (pod for name, pod in pods() if name.endswith("watchword-gateway"))
    assert {port for _, port in outlets(gateway)} == {53, 9093, 4318}
    (nothing,) = (
        found for _, found in manifests()
        if found["kind"] == "NetworkPolicy" and found["spec"]["podSelector"] == {}
    )  # fmt: skip
    assert set(nothing["spec"]) == {"podSelector", "policyTypes"}
