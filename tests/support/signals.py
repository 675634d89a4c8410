"""The signals that are shipped: alert rules, the scrape configuration and the dashboard, as they are read."""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from tests.support.exported import DEPLOY

RULES = DEPLOY / "prometheus" / "alerts.yaml"
SCRAPE = DEPLOY / "prometheus" / "prometheus.yaml"
DASHBOARD = DEPLOY / "grafana" / "watchword.json"


@dataclass(frozen=True)
class Alert:
    """One rule."""

    name: str
    expr: str
    labels: dict[str, str]
    annotations: dict[str, str]


@cache
def alerts() -> tuple[Alert, ...]:
    """Return every rule, in their order."""
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
