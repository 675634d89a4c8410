"""Rules, configuration and queries before Prometheus' own tool: each alert fires when it should, and all of it is taken."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.alert_cases import CASES, Case
from tests.support.signals import RULES, SCRAPE, alerts, dashboard

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not here")


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
