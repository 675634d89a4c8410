"""The shipped pipelines, as they are shipped, read every refusal: from the first record, over TLS, as a role that may only read."""

import asyncio
import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from aiokafka import AIOKafkaProducer

from tests.support import collector
from tests.support.folders import ROOT
from tests.support.secure_kafka import Login, secure_broker
from tests.support.waiting import until
from watchword.handlers.journal import Entry, new_event_id
from watchword.handlers.windows import Counts, Due, Limit, summary
from watchword.schemas.times import parse_rfc3339
from watchword.schemas.topics import JOIN_REFUSED, JOIN_REFUSED_OCSF, TOPICS
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.topics.access import Access
from watchword.streams.topics.admin import apply
from watchword.streams.topics.plan import Wish

pytestmark = pytest.mark.kafka

SIEM = ROOT / "deploy" / "siem"
BEFORE, AFTER = 40, 10
IMKAFKA = [*Path("/usr/lib").glob("*/rsyslog/imkafka.so")]
NOW = parse_rfc3339("2026-01-02T03:04:05.678Z")


@dataclass(frozen=True)
class Stream:
    """A broker with refusals on it, and who may read them."""

    login: Login
    inside: KafkaConnection
    before: list[Entry]
    plain_password: str
    """Of `rsyslog`, whose library cannot do SCRAM with this Kafka."""

    def environment(self, folder: Path) -> dict[str, str]:
        """Return what the configurations ask for."""
        librdkafka = self.login.settings("siem")
        password = folder / "password"
        password.touch(mode=0o600)
        password.write_text(librdkafka["sasl.password"])
        return {
            "PATH": os.defpath,
            "KAFKA_BOOTSTRAP_SERVERS": librdkafka["bootstrap.servers"],
            "SIEM_USERNAME": "siem",
            "SIEM_PASSWORD": librdkafka["sasl.password"],
            "SIEM_PASSWORD_FILE": str(password),
            "SIEM_CA_FILE": librdkafka["ssl.ca.location"],
        }


def entries(count: int) -> list[Entry]:
    """Return summaries as the keeper writes them; names with signs that a pipeline could trip over."""
    counts = Counts(3, 1, 2, 1, NOW, NOW, (str(new_event_id()),))
    return [
        summary(
            ("root", "join-token", f"reason-{n}"),
            Due("1:1:", None),
            counts,
            now=NOW,
            limit=Limit(60, 60),
            source='/watchword/"quoted" = \\ | %msg% ${env:HOME}/keeper',
        )
        for n in range(count)
    ]


async def publish(kafka: KafkaConnection, made: list[Entry]) -> None:
    """Write entries as the relay does."""
    producer = AIOKafkaProducer(**kafka.client_options(), acks="all", enable_idempotence=True)
    await producer.start()
    try:
        for entry in made:
            headers = [(name, value.encode()) for name, value in json.loads(entry.headers).items()]
            await producer.send(JOIN_REFUSED, entry.value, key=entry.key, headers=headers)
        await producer.flush()
    finally:
        await producer.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stream(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stream]:
    folder = tmp_path_factory.mktemp("siem")
    plain = secrets.token_urlsafe(16)
    broker = secure_broker(folder, plain={"rsyslog": plain})
    try:
        await broker.start()
        login = Login(broker, folder)
        await login.create("siem")
        inside = KafkaConnection(broker.internal_bootstrap_servers)
        topics = [t for t in TOPICS if t.name in (JOIN_REFUSED, JOIN_REFUSED_OCSF)]
        await apply(inside, Wish(1, 1, {}), topics, Access(siems=("User:siem", "User:rsyslog")))
        before = entries(BEFORE)
        await publish(inside, before)
        yield Stream(login, inside, before, plain)
    finally:
        await broker.remove()


@contextlib.asynccontextmanager
async def running(
    command: list[str], environment: dict[str, str], log: Path
) -> AsyncGenerator[None]:
    """Run a pipeline, and stop it as its service manager would."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, 20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def read_all(stream: Stream, found: Callable[[], set[str]], log: Path) -> None:
    """Wait until a pipeline has delivered what was there before it came, and what came after."""
    wanted = {str(entry.event_id) for entry in stream.before}
    await until(lambda: wanted <= found(), f"what was there before: {log}", within_s=90)
    after = entries(AFTER)
    await publish(stream.inside, after)
    wanted |= {str(entry.event_id) for entry in after}
    await until(lambda: wanted <= found(), f"what came after: {log}", within_s=90)


@pytest.mark.timeout(300)
@pytest.mark.asyncio(loop_scope="module")
async def test_rsyslog_reads_every_refusal(stream: Stream, tmp_path: Path) -> None:
    """Its default would begin at the end, take the first word for a host, and read nothing over TLS."""
    if not IMKAFKA:
        pytest.skip("rsyslog's imkafka is not here")
    out, log = tmp_path / "out.jsonl", tmp_path / "rsyslog.log"
    environment = stream.environment(tmp_path) | {
        "WATCHWORD_OUT": str(out),
        "SIEM_USERNAME": "rsyslog",
        "SIEM_PASSWORD": stream.plain_password,
    }
    command = ["rsyslogd", "-n", "-f", str(SIEM / "rsyslog" / "watchword.conf"), "-i", str(tmp_path / "pid")]  # fmt: skip
    environment["PATH"] = f"{os.defpath}:/usr/sbin:/sbin"

    def found() -> set[str]:
        text = out.read_text("utf-8") if out.exists() else ""
        return {json.loads(line)["id"] for line in text.split("\n")[:-1]}

    async with running(command, environment, log):
        await read_all(stream, found, log)
    assert json.loads(out.read_text("utf-8").split("\n")[0]) in [
        json.loads(entry.value) for entry in stream.before
    ]


@pytest.mark.timeout(300)
@pytest.mark.asyncio(loop_scope="module")
async def test_the_opentelemetry_collector_reads_every_refusal(
    stream: Stream, tmp_path: Path
) -> None:
    """Its default would begin at the end, and drop each record as malformed protobuf."""
    if not collector.binary().exists():
        pytest.skip("the OpenTelemetry Collector is not built here")
    log = tmp_path / "otelcol.log"
    command = [str(collector.binary()), "--config", str(SIEM / "opentelemetry" / "collector.yaml")]

    def bodies() -> list[dict[str, Any]]:
        text = log.read_text("utf-8", errors="replace")
        return [json.loads(body) for body in re.findall(r"^Body: Str\((.*)\)$", text, re.MULTILINE)]

    async with running(command, stream.environment(tmp_path), log):
        await read_all(stream, lambda: {body["id"] for body in bodies()}, log)
    first = json.loads(stream.before[0].value)
    assert first in bodies()
    assert f"kafka.header.ce_id: Str({first['id']})" in log.read_text("utf-8", errors="replace")


def _files() -> list[Path]:
    return sorted(
        path for path in SIEM.rglob("*") if path.suffix in (".yaml", ".yml", ".conf", ".json")
    )


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(SIEM)))
def test_a_pipeline_says_whether_it_was_run_and_can_be_read(path: Path) -> None:
    """Nobody should take a file that was never started for one that was."""
    text = path.read_text("utf-8")
    is_run = path.parent.name in ("rsyslog", "opentelemetry")
    assert ("*Not run*" in text.split("\n")[0]) != is_run
    match path.suffix:
        case ".json":
            assert json.loads(text)["processors"]
        case ".conf":
            assert text.count("{") == text.count("}")
        case _:
            assert yaml.safe_load(text)
    if path.name not in ("builder.yaml", "ingest-pipeline.json"):
        assert JOIN_REFUSED in text
        assert re.search(r"earliest|beginning|oldest", text)


def test_what_is_not_run_names_fields_that_events_have() -> None:
    """A misspelt field is an empty column."""
    from watchword.schemas.events import JoinAlert, JoinRefused, RefusalWindow  # noqa: PLC0415

    names = {
        name
        for model in (JoinRefused, RefusalWindow, JoinAlert)
        for name in model.model_json_schema(by_alias=True)["properties"]
    }
    pipeline = json.loads((SIEM / "elastic" / "ingest-pipeline.json").read_text("utf-8"))
    renamed = {step["rename"]["field"] for step in pipeline["processors"] if "rename" in step}
    vector = set(re.findall(r"\be\.(\w+)", (SIEM / "vector" / "vector.yaml").read_text("utf-8")))
    logstash = set(
        re.findall(r'^\s+"(\w+)" => "\[', (SIEM / "logstash" / "watchword.conf").read_text("utf-8"), re.MULTILINE)
    )  # fmt: skip
    assert renamed | vector | logstash <= names
    assert min(map(len, (renamed, vector, logstash))) > 5
