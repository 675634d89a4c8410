"""Anchors of clouds change while a worker runs: files by a look or a signal, Google's keys by a fetch, nothing by a machine."""

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import generate_latest

from tests.support.cloud_desks import Clouds, key_set
from tests.support.metadata import Asked, Said, serving
from tests.support.waiting import until
from watchword.handlers.attestors.cloud_iid.anchors import AnchorFolder
from watchword.streams.worker.cloud_anchors import CloudAnchors, Fetch, KeySource, fetch_https

NEVER_S = 3600.0


@pytest.fixture
def clouds(tmp_path: Path) -> Clouds:
    return Clouds.at(tmp_path)


@asynccontextmanager
async def kept(
    anchors: AnchorFolder,
    *urls: str,
    look_s: float = 0.02,
    refresh_s: float = 0.05,
    fetch: Fetch = fetch_https,
) -> AsyncGenerator[tuple[CloudAnchors, CollectorRegistry]]:
    made = CloudAnchors(anchors, look_s=look_s, keys=KeySource(urls, refresh_s, fetch))
    registry = CollectorRegistry()
    async with made.kept(registry):
        yield made, registry


def has_region(anchors: AnchorFolder, region: str) -> bool:
    return (region, "rsa2048") in anchors.current.aws


def add_region(clouds: Clouds, region: str) -> None:
    clouds.folder.add(clouds.aws.certificate, provider="aws", region=region, purpose="rsa2048")


@pytest.mark.case("B03")
@pytest.mark.case("B09")
async def test_a_new_manifest_is_loaded_without_a_restart(clouds: Clouds) -> None:
    """A region that a cloud opens today must not wait for a release, nor for a night without joins."""
    anchors = clouds.anchors()
    async with kept(anchors):
        add_region(clouds, "ap-southeast-7")
        clouds.folder.write()
        await until(lambda: has_region(anchors, "ap-southeast-7"), "the region is there")


async def test_a_signal_has_the_folder_loaded_at_once(clouds: Clouds) -> None:
    """`systemctl reload`, also where a file was exchanged and the manifest was not."""
    anchors = clouds.anchors()
    async with kept(anchors, look_s=NEVER_S):
        add_region(clouds, "ap-southeast-7")
        clouds.folder.write()
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: has_region(anchors, "ap-southeast-7"), "the region is there")


async def test_a_manifest_that_cannot_be_read_changes_nothing(clouds: Clouds) -> None:
    """A half-written file locks no cloud out, and the next good one counts again."""
    anchors = clouds.anchors()
    before = anchors.current
    manifest = clouds.folder.path / "anchors.json"
    refused = _refused()
    async with kept(anchors):
        manifest.write_text('{"anchors": [')
        await until(lambda: _refused() > refused, "it was tried")
        assert anchors.current is before
        add_region(clouds, "ap-southeast-7")
        clouds.folder.write()
        await until(lambda: has_region(anchors, "ap-southeast-7"), "the region is there")


def _refused() -> float:
    return (
        REGISTRY.get_sample_value("watchword_cloud_anchor_reloads_total", {"outcome": "refused"})
        or 0.0
    )


async def test_googles_keys_come_from_the_configured_address_and_turn() -> None:
    """Google changes its keys every few weeks; an old one must go as a new one comes."""
    published = [key_set("k7")]
    anchors = AnchorFolder(None)

    def answer(asked: Asked) -> Said:
        assert asked.path == "/oauth2/v3/certs"
        return Said(200, published[0])

    async with serving(answer) as google:
        url = f"{google.address}/oauth2/v3/certs"
        async with kept(anchors, url) as (keeper, _):
            assert keeper.problem() is not None
            await until(lambda: set(anchors.google_keys) == {"k7"}, "they are fetched")
            assert keeper.problem() is None
            published[0] = key_set("k8", "k9")
            await until(lambda: set(anchors.google_keys) == {"k8", "k9"}, "they have turned")


BAD: dict[str, Said] = {
    "an error": Said(500, b"secret words of a stranger"),
    "a redirect": Said(302, key_set("evil"), {"Location": "http://127.0.0.1:1/"}),
    "a page": Said(200, b"<html>"),
    "no key": Said(200, b'{"keys": []}'),
    "no key for us": Said(200, b'{"keys": [{"kty": "EC", "kid": "x"}]}'),
    "an endless answer": Said(200, b"{" * 300_000),
    "deep": Said(200, b"[" * 200_000),
}


@pytest.mark.parametrize("name", BAD)
async def test_what_was_fetched_last_stays_in_force(name: str) -> None:
    """An hour of Google's, or of a proxy in front of it, must refuse nobody."""
    said = [Said(200, key_set("k7"))]
    anchors = AnchorFolder(None)
    async with serving(lambda _: said[0]) as google, kept(anchors, google.address) as (keeper, _):
        await until(lambda: bool(anchors.google_keys), "they are fetched")
        said[0] = BAD[name]
        seen = len(google.asked)
        await until(lambda: len(google.asked) > seen + 1, "it was asked, and asked again")
        assert set(anchors.google_keys) == {"k7"}
        assert keeper.problem() is None
        said[0] = Said(200, key_set("k8"))
        await until(lambda: set(anchors.google_keys) == {"k8"}, "it is better", within_s=30)


async def test_without_a_first_answer_nothing_is_consumed(clouds: Clouds) -> None:
    """A token refused for want of keys is refused for good; so its worker waits, unless a file has keys."""
    async with serving(lambda _: Said(503)) as google:
        async with kept(AnchorFolder(None), google.address) as (keeper, _):
            await until(lambda: len(google.asked) > 1, "it was asked twice", within_s=30)
            assert keeper.problem() == "Google's keys have not been fetched yet"
        async with kept(clouds.anchors(), google.address) as (keeper, _):
            assert keeper.problem() is None


async def test_an_operators_file_wins_over_an_address(clouds: Clouds) -> None:
    """And of two addresses that disagree on a key neither is believed."""
    anchors = clouds.anchors()
    mine = anchors.google_keys["k1"]
    theirs = AnchorFolder(None)
    forged = key_set("k9").replace(b'"k9"', b'"k1"')
    async with serving(lambda _: Said(200, forged)) as google, kept(anchors, google.address):
        await until(lambda: bool(google.asked), "it was asked")
        await until(lambda: anchors.status(datetime.now(UTC))[-1].source == google.address, "taken")
        assert anchors.google_keys["k1"] == mine
    async with (
        serving(lambda _: Said(200, forged)) as one,
        serving(lambda _: Said(200, key_set("k1", "k2"))) as other,
        kept(theirs, one.address, other.address),
    ):
        await until(lambda: set(theirs.google_keys) == {"k2"}, "k1 is nobody's")


@pytest.mark.case("B02")
async def test_metrics_say_how_long_each_anchor_lasts_and_when_it_was_used(clouds: Clouds) -> None:
    """Twelve regions ended on one day elsewhere, and no gauge had said so."""
    anchors = clouds.anchors()
    async with (
        serving(lambda _: Said(200, key_set("k7"))) as google,
        kept(anchors, google.address) as (_, registry),
    ):
        await until(lambda: "k7" in anchors.google_keys, "they are fetched")
        at = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
        anchors.used(anchors.current.anchors[0], at)
        anchors.used_key("k7", at)
        text = generate_latest(registry).decode()
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    first = 'partition="aws",provider="aws",purpose="rsa2048",region="eu-west-1",source="0.pem"'
    fetched = f'partition="gcp",provider="gcp",purpose="jwks",region="",source="{google.address}"'

    def value(name: str, labels: str) -> float:
        wanted = set(labels.split(","))
        (line,) = (
            n
            for n in found
            if n.startswith(f"{name}{{") and set(n[len(name) + 1 : -1].split(",")) == wanted
        )
        return float(found[line])

    assert value("watchword_cloud_anchor_days_left", first) in (29, 30)
    used = "watchword_cloud_anchor_last_used_timestamp_seconds"
    assert value(used, first) == value(used, fetched) == at.timestamp()
    source = f'source="{google.address}"'
    assert value("watchword_cloud_key_set_fetched_timestamp_seconds", source) > 0
    assert found["watchword_cloud_anchors_left_out"] == "0.0"
