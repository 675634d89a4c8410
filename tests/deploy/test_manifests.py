"""Manifests for Kubernetes and the Compose file: of their schemas, within their own limits, and such as our processes take."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.support.exported import DEPLOY
from tests.support.folders import ROOT
from tests.support.manifests import (
    IMAGE_USER,
    SECRETS,
    Manifest,
    containers,
    given,
    manifests,
    of_kind,
    pods,
)
from tests.support.writable import declared
from watchword.handlers.store.connection import Database
from watchword.schemas.topics import JOIN_REQUESTS, TOPICS
from watchword.streams.cli.main import make_app
from watchword.streams.console.office import Office
from watchword.streams.settings import Settings, load
from watchword.streams.wiring.console import console_options

SCHEMAS = Path(__file__).parent / "schemas"
KUBERNETES = "1.31"
"""The oldest that the manifests are for."""

WEAK_FIELDS = ("hostNetwork", "hostPID", "hostIPC", "privileged", "hostPath")


def check(found: Manifest) -> None:
    """Hold a manifest against the schema of its kind; a kind without one fails."""
    if found["apiVersion"].partition("/")[0].endswith((".sh", ".coreos.com")):
        schema = json.loads((SCHEMAS / f"{found['kind']}.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(found)
    else:
        kubernetes_validate.validate(found, KUBERNETES, strict=True)


@pytest.mark.parametrize("found", [pytest.param(found, id=name) for name, found in manifests()])
def test_a_manifest_is_of_its_schema(found: Manifest) -> None:
    """A field that is misspelt is passed over by a cluster, and what it guarded is not."""
    check(found)


def test_a_wrong_field_and_a_kind_without_a_schema_are_found() -> None:
    """The check must not pass what it does not know."""
    for _, found in manifests():
        wrong = json.loads(json.dumps(found))
        wrong["spek"] = {}
        with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
            check(wrong)
    for api, kind in (("keda.sh/v1alpha1", "ScaledThing"), ("apps/v1", "Deployments")):
        with pytest.raises((OSError, kubernetes_validate.SchemaNotFoundError)):
            check({"apiVersion": api, "kind": kind, "metadata": {"name": "x"}})


def test_the_vendored_schemas_are_what_they_were() -> None:
    """A schema that was edited until it fitted would show nothing."""
    lines = (SCHEMAS / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert {path.name for path in SCHEMAS.glob("*.json")} == set(sums)
    for name, digest in sums.items():
        assert hashlib.sha256((SCHEMAS / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize(("pod", "container"), containers())
def test_a_container_has_no_privilege_and_a_read_only_root(
    pod: Manifest, container: Manifest
) -> None:
    """What the sandbox shows of the image holds only if it is run like that."""
    security = pod["securityContext"] | container["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] >= 1000
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert pod["automountServiceAccountToken"] is False
    assert "memory" in container["resources"]["limits"]
    assert not [field for field in WEAK_FIELDS if field in json.dumps(pod)]


@pytest.mark.parametrize(("pod", "container"), containers())
def test_a_container_may_write_to_what_its_role_declares(
    pod: Manifest, container: Manifest
) -> None:
    """A volume that is writable for no reason is a place to leave something."""
    del pod
    writable = {one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")}
    role = container["name"]
    if role.startswith("unpack"):
        assert len(writable) == 1  # the memory that it unpacks into
    elif role == "worker":
        assert writable == {"/run/watchword"}  # to connect to a socket is to write to it
    else:
        commands = re.findall(r"watchword ((?:[a-z]+ ?)+)", " ".join(container["command"]))
        allowed = {str(path) for one in commands for path in declared()[one.strip()]}
        assert writable == allowed


@pytest.mark.parametrize(("pod", "container"), containers())
def test_a_role_takes_the_configuration_that_it_is_given(
    pod: Manifest, container: Manifest, tmp_path: Path
) -> None:
    """A process that refuses its configuration restarts for ever."""
    if container["name"].startswith("unpack"):
        return
    settings, secrets = given(pod, container, tmp_path)
    assert settings.signer.allowed_uids == (int(IMAGE_USER),)
    assert (settings.database.url is not None) == ("database.url" in secrets)
    assert (settings.kafka.bootstrap_servers is not None) == ("kafka.password" in secrets)
    for port in container.get("ports", ()):
        section = getattr(settings, container["name"])
        known = {"health": "health_port", "signer-health": "health_port", "http": "port"}
        assert port["containerPort"] == getattr(section, known[port["name"]])


def commands() -> list[str]:
    """Return every command of ours in manifests and in the Compose file."""
    texts = [" ".join(c.values[1]["command"]) for c in containers()]
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    for service in compose["services"].values():
        command = service.get("command", [])
        texts.append(command if isinstance(command, str) else " ".join(command))
    found = {one.strip() for text in texts for one in re.findall(r"\bwatchword [a-z][^;\n]*", text)}
    return sorted(found)


@pytest.mark.parametrize("line", commands())
def test_a_command_in_a_manifest_can_be_run(line: str) -> None:
    """A command that was renamed is found by whoever deploys, else."""
    make_app().parse_args(line.split()[1:], exit_on_error=False, print_error=False)


def test_the_image_has_the_user_of_the_manifests() -> None:
    """The signer lets in the user that the worker runs as."""
    text = (DEPLOY / "container" / "Containerfile").read_text()
    assert f"\nUSER {IMAGE_USER}:{IMAGE_USER}\n" in text
    assert {pod["spec"]["securityContext"]["runAsUser"] for _, pod in pods()} == {int(IMAGE_USER)}


def test_workers_are_scaled_by_the_lag_of_their_own_group() -> None:
    """KEDA with another group, topic or reset policy sees no lag, and scales nothing."""
    (scaled,) = (found for _, found in manifests() if found["kind"] == "ScaledObject")
    spec, (trigger,) = scaled["spec"], scaled["spec"]["triggers"]
    (workers,) = (found for _, found in manifests() if found["kind"] == "StatefulSet")
    metadata = trigger["metadata"]
    assert spec["scaleTargetRef"]["name"] == workers["metadata"]["name"]
    assert "replicas" not in workers["spec"]
    assert metadata["topic"] == JOIN_REQUESTS
    assert metadata["consumerGroup"] == Settings().worker.group_id
    assert metadata["offsetResetPolicy"] == "earliest"
    assert metadata["excludePersistentLag"] == "true"
    assert "allowIdleConsumers" not in metadata
    assert spec["minReplicaCount"] >= 1
    (topic,) = (topic for topic in TOPICS if topic.name == JOIN_REQUESTS)
    assert spec["maxReplicaCount"] == topic.partitions


@pytest.mark.parametrize("found", of_kind("Deployment", "StatefulSet"))
def test_a_role_has_a_network_policy_and_a_disruption_budget(found: Manifest) -> None:
    """A drained node must not take the last gateway with it."""
    labels = found["spec"]["template"]["metadata"]["labels"]
    for kind, key in (("NetworkPolicy", "podSelector"), ("PodDisruptionBudget", "selector")):
        chosen = [one["spec"][key] for _, one in manifests() if one["kind"] == kind]
        assert {"matchLabels": labels} in chosen, kind


def test_roles_that_can_be_traced_are_told_of_the_collector_where_there_is_one() -> None:
    """A deployment without `tracing.yaml` has to start; with it, no part of a trace may be missing."""
    wiring = ROOT / "streams" / "watchword" / "streams" / "wiring"
    traced = {
        role
        for file in wiring.glob("*.py")
        for role in re.findall(r'tracing_of\(settings\.tracing, "([a-z]+)"', file.read_text())
    }
    told = {
        container["name"]: {ref["name"]: ref.get("optional", False) for ref in refs}
        for _, pod in pods()
        for container in pod["spec"]["containers"]
        if (refs := [source["configMapRef"] for source in container.get("envFrom", ())])
    }
    assert {role for role, maps in told.items() if "watchword-tracing" in maps} == traced
    assert {name for maps in told.values() for name, may_lack in maps.items() if may_lack} == {
        "watchword-tracing"
    }


def test_consoles_share_what_signs_sessions_and_are_where_people_look_for_them(
    tmp_path: Path,
) -> None:
    """Whoever signs in at one must not be a stranger to the next, and a host that is another one's is refused."""
    ((pod, container),) = (
        (pod["spec"], pod["spec"]["containers"][0])
        for name, pod in pods()
        if name.endswith("watchword-console")
    )
    settings, secrets = given(pod, container, tmp_path)
    office = Office(database=Database("postgresql://nowhere", application_name="x"), cluster="x")

    options = console_options(settings, office)

    assert options.session_key == (tmp_path / "session.key").read_bytes()
    assert options.public_url is not None
    assert options.oidc(options.public_url) is not None
    (ingress,) = (found["spec"] for _, found in manifests() if found["kind"] == "Ingress")
    hosts = [rule["host"] for rule in ingress["rules"]]
    assert [urlsplit(options.public_url).hostname] == hosts
    assert [host for one in ingress["tls"] for host in one["hosts"]] == hosts
    # What it reads of the keys is the CA's certificate, and no more is there.
    directory = {one["name"]: one.get("value") for one in container["env"]}
    assert directory["WATCHWORD_KEYS__DIRECTORY"] == SECRETS.rstrip("/")
    assert {key for key in secrets if key.endswith(".pem")} == {"ca.cert.pem", "kafka.ca.pem"}


def test_the_operators_rules_are_those_of_prometheus() -> None:
    """Two copies of the rules would come apart, and one of them was tried."""
    (rule,) = (found for _, found in manifests() if found["kind"] == "PrometheusRule")
    tried = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    assert rule["spec"]["groups"] == tried["groups"]


def test_the_compose_file_is_of_its_specification() -> None:
    """Nobody has an engine here to try it with."""
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec",
         str(ROOT / "compose.yaml")],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_services_of_the_compose_file_take_their_configuration(tmp_path: Path) -> None:
    """The same as for pods."""
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    secret = tmp_path / "database-url"
    secret.write_text("postgresql://watchword:x@postgres/watchword")
    seen = 0
    for service in compose["services"].values():
        if "build" in service:
            environment = {
                name: str(value).replace("/run/secrets/database-url", str(secret))
                for name, value in service["environment"].items()
            }
            assert load(environment=environment).settings.database.url is not None
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
            assert (ROOT / service["build"]["dockerfile"]).exists()
            seen += 1
    assert seen == 8
