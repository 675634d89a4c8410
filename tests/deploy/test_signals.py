"""Alert rules, dashboard and runbooks: of metrics that there are, and one page for each."""

import re
from functools import cache
from typing import Any

import pytest
import yaml

from tests.support.exported import PROMETHEUS, TARGET, Exported, exported
from tests.support.folders import ROOT
from tests.support.signals import SCRAPE, Alert, alerts, dashboard
from watchword.handlers.journal import SHARDS

RUNBOOKS = ROOT / "docs" / "runbooks"

_METRIC = re.compile(r"\b(watchword_[a-z0-9_]+|process_[a-z_]+|up)\b(?:\{([^}]*)\})?")
_LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
_GROUPED = re.compile(r"\b(?:by|on) \(([a-z_, ]+)\)")

MAY_LACK = {"watchword-console"}
"""Jobs that a deployment may do without: that there is none is no alert."""


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
