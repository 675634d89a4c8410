"""The metrics that each process really has: read from the objects that its modules register."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from prometheus_client import REGISTRY, CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase

from tests.support.crypto import authority
from watchword.handlers.attestors.join_token.verifier import JoinTokenAttestor
from watchword.handlers.metered import metered
from watchword.streams.gateway import metrics as gateway
from watchword.streams.health import Health, HealthListener
from watchword.streams.keeper import metrics as keeper
from watchword.streams.relay import metrics as relay
from watchword.streams.signer.authorities import Authorities
from watchword.streams.signer.server import SignerCounters
from watchword.streams.wiring.signer import SignerMetrics
from watchword.streams.worker import cloud_anchors, join_metrics
from watchword.streams.worker import metrics as worker

_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


@dataclass(frozen=True)
class Exported:
    """One series as Prometheus sees it."""

    name: str
    labels: frozenset[str]


def exported() -> dict[str, set[Exported]]:
    """Return what each job's processes export, `process_…` included."""
    common = {*_of_health(), *_of_metrics(ProcessCollector(registry=None).collect())}
    return {
        "watchword-gateway": common | _of_module(gateway),
        "watchword-worker": common
        | _of_module(worker)
        | _of_module(join_metrics)
        | _of_module(cloud_anchors)
        | _of_attestors()
        | _of_anchors(),
        "watchword-relay": common | _of_module(relay),
        "watchword-keeper": common | _of_module(keeper),
        "watchword-console": common,
        "watchword-signer": common
        | _of_metrics(SignerMetrics(SignerCounters(), Authorities([authority()])).collect()),
    }


def _of_module(module: ModuleType) -> set[Exported]:
    found: set[Exported] = set()
    for value in vars(module).values():
        if isinstance(value, MetricWrapperBase):
            assert value in REGISTRY._collector_to_names
            for metric in value.describe():
                found |= _series(metric, value._labelnames)
    assert found, module
    return found


def _of_attestors() -> set[Exported]:
    registry = CollectorRegistry()
    metered(JoinTokenAttestor(), registry)
    return {
        series
        for collector in list(registry._collector_to_names)
        if isinstance(collector, MetricWrapperBase)
        for metric in collector.describe()
        for series in _series(metric, collector._labelnames)
    }


def _of_anchors() -> set[Exported]:
    """Return what comes of an anchor folder with one certificate: an empty one has no series."""
    status = SimpleNamespace(
        provider="aws", partition="aws", region="*", purpose="rsa2048", source="", days_left=1,
        last_used=None,
    )  # fmt: skip
    folder = SimpleNamespace(status=lambda _: [status], current=SimpleNamespace(problems=[]))
    keys = SimpleNamespace(urls=["https://keys.example"])
    tended = SimpleNamespace(_anchors=folder, _keys=keys, _fetched={})
    return _of_metrics(cloud_anchors.CloudAnchors.collect(cast("Any", tended)))


def _of_health() -> set[Exported]:
    health = Health()
    health.add_check("always", lambda: "fails")
    listener = HealthListener(health, "127.0.0.1", 0, registry=CollectorRegistry())
    return _of_metrics(listener._own.collect())


def _of_metrics(metrics: Iterable[Metric]) -> set[Exported]:
    return {
        Exported(sample.name, frozenset(sample.labels))
        for metric in metrics
        for sample in metric.samples
    }


def _series(metric: Metric, labels: Iterable[str]) -> set[Exported]:
    return {
        Exported(
            metric.name + suffix, frozenset(labels) | ({"le"} if suffix == "_bucket" else set())
        )
        for suffix in _SUFFIXES[metric.type]
    }


PROMETHEUS = ("up",)
"""What Prometheus itself adds."""
TARGET = frozenset(("job", "instance"))
"""The labels that it adds to everything."""

DEPLOY = Path(__file__).parents[2] / "deploy"
