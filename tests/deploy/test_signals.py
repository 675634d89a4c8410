"""Alert rules, dashboard and runbooks: of metrics that there are, tried by Prometheus' own tool, one page for each."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.exported import DEPLOY, PROMETHEUS, TARGET, Exported, exported
from tests.support.folders import ROOT
from watchword.handlers.journal import SHARDS

RULES = DEPLOY / "prometheus" / "alerts.yaml"
SCRAPE = DEPLOY / "prometheus" / "prometheus.yaml"
DASHBOARD = DEPLOY / "grafana" / "watchword.json"
RUNBOOKS = ROOT / "docs" / "runbooks"

_METRIC = re.compile(r"\b(watchword_[a-z0-9_]+|process_[a-z_]+|up)\b(?:\{([^}]*)\})?")
_LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
_GROUPED = re.compile(r"\b(?:by|on) \(([a-z_, ]+)\)")

MAY_LACK = {"watchword-console"}
"""Jobs that a deployment may do without: that there is none is no alert."""

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not here")


@dataclass(frozen=True)
class Alert:
    """One rule."""

    name: str
    expr: str
    labels: dict[str, str]
    annotations: dict[str, str]


@cache
def alerts() -> tuple[Alert, ...]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return tuple(
        Alert(rule["alert"], rule["expr"], rule["labels"], rule["annotations"])
        for group in groups
        for rule in group["rules"]
    )


@cache
def dashboard() -> tuple[tuple[str, str], ...]:
    """Return title and expression of every target of every panel."""
    board: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return tuple(
        (panel["title"], target["expr"])
        for panel in board["panels"]
        for target in panel.get("targets", ())
    )


def queries() -> list[Any]:
    found = [(alert.name, alert.expr) for alert in alerts()] + list(dashboard())
    return [pytest.param(expr, id=f"{title}-{n}") for n, (title, expr) in enumerate(found)]


@cache
def series() -> dict[str, frozenset[str]]:
    """Return every name with the labels that it has."""
    every: set[Exported] = set().union(*exported().values())
    return {one.name: one.labels for one in every} | dict.fromkeys(PROMETHEUS, frozenset())


@pytest.mark.parametrize("expr", queries())
def test_alerts_and_dashboard_ask_for_metrics_and_labels_that_there_are(expr: str) -> None:
    """An alert on a metric that was renamed never fires, and nobody notices."""
    used = _METRIC.findall(expr)
    assert used
    has: set[str] = set(TARGET)
    for name, selector in used:
        assert name in series(), name
        has |= series()[name]
        assert set(_LABEL.findall(selector)) <= series()[name] | TARGET, (name, selector)
    for grouped in _GROUPED.findall(expr):
        assert {label.strip() for label in grouped.split(",")} <= has, grouped


def test_jobs_of_rules_and_dashboard_are_scraped() -> None:
    """A job that is named otherwise is an alert that always fires, or never."""
    scraped = {job["job_name"] for job in yaml.safe_load(SCRAPE.read_text())["scrape_configs"]}
    assert scraped == set(exported())
    named = set(re.findall(r"watchword-[a-z]+", "".join(alert.expr for alert in alerts())))
    assert named == scraped - MAY_LACK


def test_the_ports_scraped_are_the_processes_own() -> None:
    """Whoever copies the file must not look at the relay and believe that it is the keeper."""
    from watchword.streams.settings import Settings  # noqa: PLC0415 - for this alone

    settings = Settings()
    for job in yaml.safe_load(SCRAPE.read_text())["scrape_configs"]:
        section = getattr(settings, job["job_name"].removeprefix("watchword-"))
        assert job["static_configs"] == [{"targets": [f"127.0.0.1:{section.health_port}"]}]


def test_the_rule_on_shards_knows_how_many_there_are() -> None:
    """The number stands in the rule as well as in the code."""
    rule = next(alert for alert in alerts() if alert.name == "WatchwordShardsUnowned")
    assert rule.expr == f"sum(watchword_relay_shards) < {SHARDS}"


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert.name)
def test_every_alert_has_a_runbook_and_says_how_urgent_it_is(alert: Alert) -> None:
    """Whoever is woken at night should not have to think of the first step."""
    assert alert.labels["severity"] in {"page", "ticket"}
    assert alert.annotations["runbook"] == f"docs/runbooks/{alert.name}.md"
    page = (ROOT / alert.annotations["runbook"]).read_text("utf-8")
    assert page.startswith(f"# {alert.name}\n")
    assert "\n## Look\n" in page
    assert "\n## Do\n" in page
    assert f"({alert.name}.md)" in (RUNBOOKS / "README.md").read_text("utf-8")


def test_every_runbook_has_an_alert() -> None:
    """A page of an alert that is gone misleads."""
    pages = {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"}
    assert pages == {alert.name for alert in alerts()}


@dataclass(frozen=True)
class Case:
    """Series under which an alert fires, and others under which it does not."""

    alert: str
    fires: dict[str, str]
    quiet: dict[str, str]
    at: str = "20m"
    every: str = "1m"
    """Between two samples, and between two evaluations."""
    labels: dict[str, str] = field(default_factory=dict[str, str])
    """Of the alert that fires, beside its severity."""


_ALL_UP = {f'up{{job="{job}", instance="{job}"}}': "1x30" for job in sorted(exported())}
_WORKER = 'job="watchword-worker", instance="w"'
_KEEPER = 'job="watchword-keeper", instance="k"'
_STANDBY = 'job="watchword-keeper", instance="s"'
_W = {"job": "watchword-worker", "instance": "w"}
_K = {"job": "watchword-keeper", "instance": "k"}
_ACTIVE = {
    f"watchword_keeper_active{{{_KEEPER}}}": "1x90",
    f"watchword_keeper_active{{{_STANDBY}}}": "0x90",
}
_REQUESTS = "watchword_join_requests_total"

CASES = (
    Case(
        "WatchwordNoProcess",
        _ALL_UP | {'up{job="watchword-signer", instance="watchword-signer"}': "0x30"},
        _ALL_UP | {'up{job="watchword-worker", instance="other"}': "0x30"},
        labels={"job": "watchword-signer"},
    ),
    Case(
        "WatchwordNoneReady",
        {f"watchword_ready{{{_WORKER}}}": "0x30", f"watchword_ready{{{_KEEPER}}}": "1x30"},
        {
            f"watchword_ready{{{_WORKER}}}": "0x30",
            'watchword_ready{job="watchword-worker", instance="w2"}': "1x30",
        },
        labels={"job": "watchword-worker"},
    ),
    Case(
        "WatchwordNotReady",
        {f'watchword_failing_check{{{_WORKER}, check="service"}}': "1x30"},
        {f'watchword_failing_check{{{_WORKER}, check="service"}}': "1x5 _x25"},
        labels=_W | {"check": "service"},
    ),
    Case(
        "WatchwordRestarts",
        {f"process_start_time_seconds{{{_WORKER}}}": "0x10 1x3 2x3 3x20"},
        {f"process_start_time_seconds{{{_WORKER}}}": "0x10 1x30"},
        labels=_W,
    ),
    Case(
        "WatchwordMixedVersions",
        {
            f'watchword_build_info{{{_WORKER}, version="1"}}': "1x150",
            f'watchword_build_info{{{_KEEPER}, version="2"}}': "1x150",
        },
        {
            f'watchword_build_info{{{_WORKER}, version="1"}}': "1x60 _x90",
            f'watchword_build_info{{{_KEEPER}, version="2"}}': "1x150",
        },
        at="130m",
    ),
    Case(
        "WatchwordBacklog",
        {
            f"watchword_worker_lag_records{{{_WORKER}}}": "900x30",
            f"watchword_worker_records_received_total{{{_WORKER}}}": "0x30",
        },
        {
            f"watchword_worker_lag_records{{{_WORKER}}}": "900x30",
            f"watchword_worker_records_received_total{{{_WORKER}}}": "0+6000x30",
        },
    ),
    Case(
        "WatchwordRequestsLost",
        {f"watchword_worker_records_lost_total{{{_WORKER}}}": "0x15 7x15"},
        {f"watchword_worker_records_lost_total{{{_WORKER}}}": "7x30"},
        labels=_W,
    ),
    Case(
        "WatchwordDeadLetters",
        {f'watchword_worker_records_sent_total{{{_WORKER}, kind="dead-letter"}}': "0x15 1x15"},
        {f'watchword_worker_records_sent_total{{{_WORKER}, kind="answer"}}': "0+9x30"},
    ),
    Case(
        "WatchwordAnswersTooLarge",
        {f'watchword_worker_records_unsendable_total{{{_WORKER}, kind="answer"}}': "0x15 1x15"},
        {f'watchword_worker_records_unsendable_total{{{_WORKER}, kind="answer"}}': "1x30"},
        labels={"kind": "answer"},
    ),
    Case(
        "WatchwordUnavailableAnswers",
        {
            f'{_REQUESTS}{{{_WORKER}, attestor="tpm", outcome="unavailable", reason="none"}}': "0+6x30",
            f'{_REQUESTS}{{{_WORKER}, attestor="tpm", outcome="joined", reason="none"}}': "0+60x30",
        },
        {
            f'{_REQUESTS}{{{_WORKER}, attestor="tpm", outcome="unavailable", reason="none"}}': "0+1x30",
            f'{_REQUESTS}{{{_WORKER}, attestor="tpm", outcome="joined", reason="none"}}': "0+60x30",
        },
        labels={"attestor": "tpm"},
    ),
    Case(
        "WatchwordAttestorFails",
        {
            f'watchword_attestor_verifications_total{{{_WORKER}, attestor="tpm", outcome="failed"}}': "0x15 1x15"
        },
        {
            f'watchword_attestor_verifications_total{{{_WORKER}, attestor="tpm", outcome="refused"}}': "0+9x30"
        },
        labels={"attestor": "tpm"},
    ),
    Case(
        "WatchwordMostJoinsRefused",
        {
            f'{_REQUESTS}{{{_WORKER}, attestor="image", outcome="refused", reason="expired"}}': "0+60x60",
            f'{_REQUESTS}{{{_WORKER}, attestor="image", outcome="joined", reason="none"}}': "0+6x60",
        },
        {
            f'{_REQUESTS}{{{_WORKER}, attestor="image", outcome="refused", reason="expired"}}': "0+60x60",
            f'{_REQUESTS}{{{_WORKER}, attestor="image", outcome="joined", reason="none"}}': "0+90x60",
        },
        at="40m",
        labels={"attestor": "image"},
    ),
    Case(
        "WatchwordKeyConflict",
        {
            f'{_REQUESTS}{{{_WORKER}, attestor="renew", outcome="refused", reason="key-conflict"}}': "0x15 1x15"
        },
        {
            f'{_REQUESTS}{{{_WORKER}, attestor="renew", outcome="refused", reason="expired"}}': "0+9x30"
        },
    ),
    Case(
        "WatchwordJoinsWait",
        _ACTIVE | {f"watchword_oldest_waiting_join_seconds{{{_KEEPER}}}": "4000x90"},
        _ACTIVE | {f"watchword_oldest_waiting_join_seconds{{{_STANDBY}}}": "4000x90"},
        labels=_K,
    ),
    Case(
        "WatchwordNotRenewed",
        _ACTIVE | {f'watchword_certificates_expiring{{{_KEEPER}, days="1"}}': "3x90"},
        _ACTIVE | {f'watchword_certificates_expiring{{{_KEEPER}, days="7"}}': "3x90"},
        at="80m",
        labels=_K | {"days": "1"},
    ),
    Case(
        "WatchwordEventsLate",
        {'watchword_relay_oldest_unpublished_seconds{instance="r"}': "90x30"},
        {'watchword_relay_oldest_unpublished_seconds{instance="r"}': "30x30"},
    ),
    Case(
        "WatchwordShardBlocked",
        {'watchword_relay_blocked_shards{instance="r"}': "1x30"},
        {'watchword_relay_blocked_shards{instance="r"}': "1x3 0x27"},
    ),
    Case(
        "WatchwordShardsUnowned",
        {
            'watchword_relay_shards{instance="r"}': "16x30",
            'watchword_relay_shards{instance="r2"}': "15x30",
        },
        {
            'watchword_relay_shards{instance="r"}': "16x30",
            'watchword_relay_shards{instance="r2"}': "16x30",
        },
    ),
    Case(
        "WatchwordKeeperIdle",
        {f"watchword_keeper_last_round_timestamp_seconds{{{_KEEPER}}}": "60x30"},
        {
            f"watchword_keeper_last_round_timestamp_seconds{{{_KEEPER}}}": "60x30",
            f"watchword_keeper_last_round_timestamp_seconds{{{_STANDBY}}}": "0+60x30",
        },
    ),
    Case(
        "WatchwordPartitionsShort",
        _ACTIVE | {f"watchword_partition_days_ahead{{{_KEEPER}}}": "2x30"},
        _ACTIVE
        | {
            f"watchword_partition_days_ahead{{{_KEEPER}}}": "7x30",
            f"watchword_partition_days_ahead{{{_STANDBY}}}": "0x30",
        },
        labels=_K,
    ),
    Case(
        "WatchwordSecurityAlert",
        {f'watchword_alerts_total{{{_KEEPER}, kind="new-reason"}}': "0x15 1x15"},
        {f'watchword_alerts_total{{{_KEEPER}, kind="new-reason"}}': "1x30"},
        labels={"kind": "new-reason"},
    ),
    Case(
        "WatchwordGatewaySheds",
        {'watchword_gateway_rejected_total{instance="g", reason="busy"}': "0+60x30"},
        {'watchword_gateway_rejected_total{instance="g", reason="undecodable"}': "0+60x30"},
        labels={"reason": "busy"},
    ),
    Case(
        "WatchwordGatewayBehind",
        {'watchword_gateway_tail_behind_records{instance="g", topic="join.responses"}': "5000x30"},
        {'watchword_gateway_tail_behind_records{instance="g", topic="join.responses"}': "9x30"},
        labels={"instance": "g", "topic": "join.responses"},
    ),
    Case(
        "WatchwordSignerFails",
        {'watchword_signer_orders_refused_total{instance="s"}': "0x15 1x15"},
        {'watchword_signer_orders_refused_total{instance="s"}': "1x30"},
        labels={"instance": "s"},
    ),
    Case(
        "WatchwordCaEnds",
        {
            'watchword_signer_ca_not_after_timestamp_seconds{instance="s"}': f"{59 * 86400}x30",
            'watchword_signer_ca_not_after_timestamp_seconds{instance="s2"}': f"{900 * 86400}x30",
        },
        {'watchword_signer_ca_not_after_timestamp_seconds{instance="s"}': f"{61 * 86400}x30"},
    ),
    Case(
        "WatchwordCloudAnchorEnds",
        {
            'watchword_cloud_anchor_days_left{instance="w", provider="aws", partition="aws", region="*", purpose="rsa", source="a"}': "29x30"
        },
        {
            'watchword_cloud_anchor_days_left{instance="w", provider="aws", partition="aws", region="*", purpose="rsa", source="a"}': "31x30"
        },
        labels={
            "provider": "aws",
            "partition": "aws",
            "region": "*",
            "purpose": "rsa",
            "source": "a",
        },
    ),
    Case(
        "WatchwordCloudAnchorsLeftOut",
        {'watchword_cloud_anchors_left_out{instance="w"}': "2x30"},
        {'watchword_cloud_anchors_left_out{instance="w"}': "0x30"},
    ),
    Case(
        "WatchwordCloudKeysOld",
        {'watchword_cloud_key_set_fetched_timestamp_seconds{instance="w", source="u"}': "0x80"},
        {
            'watchword_cloud_key_set_fetched_timestamp_seconds{instance="w", source="u"}': "0x80",
            'watchword_cloud_key_set_fetched_timestamp_seconds{instance="w2", source="u"}': "0+3600x80",
        },
        at="76h",
        every="1h",
        labels={"source": "u"},
    ),
)


def test_every_alert_is_tried() -> None:
    """A rule that was never seen to fire is a hope."""
    assert [case.alert for case in CASES] == [alert.name for alert in alerts()]


@needs_promtool
def test_every_alert_fires_when_it_should_and_is_quiet_when_it_should(tmp_path: Path) -> None:
    """Prometheus' own evaluation, of the file that is shipped."""
    files: list[str] = []
    for every in ("1m", "1h"):  # whole days, minute by minute, would take a minute
        file = tmp_path / f"alerts_{every}.yaml"
        cases = [case for case in CASES if case.every == every]
        file.write_text(
            yaml.safe_dump(
                {
                    "rule_files": [str(RULES)],
                    "evaluation_interval": every,
                    "tests": [one for case in cases for one in _both(case)],
                }
            )
        )
        files.append(str(file))
    done = _promtool("test", "rules", *files)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_takes_what_is_shipped(tmp_path: Path) -> None:
    """Prometheus would not start with a file that it cannot parse."""
    configuration = _promtool("check", "config", str(SCRAPE))
    assert configuration.returncode == 0, configuration.stdout + configuration.stderr

    # Grafana puts a range in place of its variable; what is left has to be PromQL.
    rules = [
        {"record": f"panel:{n}", "expr": expr.replace("$__rate_interval", "1m")}
        for n, (_, expr) in enumerate(dashboard())
    ]
    panels = tmp_path / "panels.yaml"
    panels.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = _promtool("check", "rules", str(panels))
    assert done.returncode == 0, done.stdout + done.stderr


def _both(case: Case) -> Iterator[dict[str, Any]]:
    alert = next(one for one in alerts() if one.name == case.alert)
    labels = alert.labels | case.labels
    annotations = {
        name: re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)
        for name, text in alert.annotations.items()
    }
    for given, expected in (
        (case.fires, [{"exp_labels": labels, "exp_annotations": annotations}]),
        (case.quiet, []),
    ):
        yield {
            "interval": case.every,
            "input_series": [{"series": name, "values": values} for name, values in given.items()],
            "alert_rule_test": [
                {"eval_time": case.at, "alertname": case.alert, "exp_alerts": expected}
            ],
        }


def _promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run(
        [PROMTOOL, *arguments], check=False, capture_output=True, text=True, timeout=110
    )
