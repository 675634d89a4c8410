"""Keeps the clouds' anchors fresh while a worker runs: the folder is looked at, Google's keys are fetched.

Addresses come from the configuration alone; nothing that a machine sends causes a fetch or names an
address. What was loaded last stays in force whatever happens here.
"""

import asyncio
import random
import signal
import ssl
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

import structlog
from prometheus_client import REGISTRY, CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric

from watchword.handlers.attestors.cloud_iid.anchors import AnchorFolder
from watchword.handlers.attestors.cloud_iid.jwks import read_key_set
from watchword.handlers.attestors.cloud_iid.manifest import MAX_FILE_BYTES
from watchword.handlers.errors import ConfigRefused

if TYPE_CHECKING:
    import httpx

_log = structlog.get_logger(__name__)

_FETCH_S = 10.0
_FIRST_RETRY_S = 1.0
_LAST_RETRY_S = 300.0
_OK = 200

RELOADS = Counter(
    "watchword_cloud_anchor_reloads", "Times that the anchor folder was loaded again.", ["outcome"]
)
FETCHES = Counter(
    "watchword_cloud_key_set_fetches", "Times that Google's keys were asked for.", ["outcome"]
)


class KeySetUnusable(Exception):
    """An address did not answer with a key set that has a key for us."""


class Fetch(Protocol):
    """Gets what is at an address."""

    async def __call__(self, url: str) -> bytes:
        """Return at most `MAX_FILE_BYTES` bytes; raises `KeySetUnusable`."""
        ...


async def fetch_https(url: str) -> bytes:
    """Implement `Fetch`: one request, no redirects, no proxy, a bounded answer in bounded time."""
    import httpx  # noqa: PLC0415 - most workers have no use for it

    try:
        async with (
            asyncio.timeout(_FETCH_S),
            httpx.AsyncClient(
                transport=httpx.AsyncHTTPTransport(verify=ssl.create_default_context()),
                trust_env=False,
                follow_redirects=False,
                headers={"User-Agent": "watchword-worker", "Accept-Encoding": "identity"},
            ) as client,
            client.stream("GET", url) as response,
        ):
            if response.status_code != _OK:
                message = f"answers {response.status_code}"
                raise KeySetUnusable(message)
            return await _read(response)
    except TimeoutError:
        message = f"does not answer within {_FETCH_S:g} s"
        raise KeySetUnusable(message) from None
    except httpx.HTTPError as error:
        raise KeySetUnusable(type(error).__name__) from None


async def _read(response: "httpx.Response") -> bytes:
    content = bytearray()
    async for part in response.aiter_raw():
        content += part
        if len(content) > MAX_FILE_BYTES:
            message = f"answers more than {MAX_FILE_BYTES} bytes"
            raise KeySetUnusable(message)
    return bytes(content)


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where Google's keys are fetched, and how often."""

    urls: tuple[str, ...] = ()
    refresh_s: float = 3600.0
    fetch: Fetch = fetch_https


class CloudAnchors:
    """The background work of one worker, and its metrics."""

    def __init__(self, anchors: AnchorFolder, *, look_s: float, keys: KeySource) -> None:
        """Do nothing yet."""
        self._anchors = anchors
        self._look_s = look_s
        self._keys = keys
        self._fetched: dict[str, datetime] = {}
        self._poked = asyncio.Event()

    def problem(self) -> str | None:
        """Return why cloud identities cannot be judged yet: a refusal for want of keys would be for good."""
        if self._keys.urls and not self._anchors.google_keys:
            return "Google's keys have not been fetched yet"
        return None

    def poke(self) -> None:
        """Have the folder loaded again now, whether it looks changed or not."""
        self._poked.set()

    @asynccontextmanager
    async def kept(self, registry: CollectorRegistry = REGISTRY) -> AsyncGenerator[None]:
        """Look, fetch and tell inside the block; SIGHUP pokes where signals can be had."""
        with _on_hangup(self.poke), _registered(self, registry):
            tasks = [asyncio.create_task(self._look())]
            tasks += [asyncio.create_task(self._refresh(url)) for url in self._keys.urls]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    async def _look(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._look_s):
                    await self._poked.wait()
            except TimeoutError:
                pass
            if self._poked.is_set() or self._anchors.is_changed():
                self._poked.clear()
                await self._reload()

    async def _reload(self) -> None:
        try:
            # Hundreds of certificates: joins go on meanwhile, by the old ones.
            found = await asyncio.to_thread(self._anchors.reload)
        except ConfigRefused as error:
            RELOADS.labels("refused").inc()
            _log.error("cloud anchors are not loaded again", problems=error.problems)
        except Exception:  # noqa: BLE001 - one bad hour must not end the looking
            RELOADS.labels("refused").inc()
            _log.exception("cloud anchors are not loaded again")
        else:
            RELOADS.labels("loaded").inc()
            _log.info(
                "cloud anchors loaded",
                anchors=len(found.anchors),
                keys=len(found.keys),
                left_out=len(found.problems),
            )

    async def _refresh(self, url: str) -> None:
        retry_s = _FIRST_RETRY_S
        while True:
            if await self._fetch(url):
                rest_s, retry_s = self._keys.refresh_s, _FIRST_RETRY_S
            else:
                rest_s, retry_s = retry_s, min(retry_s * 2, _LAST_RETRY_S, self._keys.refresh_s)
            # Spread: a fleet of workers that was started together does not ask together for ever.
            await asyncio.sleep(rest_s * random.uniform(0.75, 1.0))  # noqa: S311 - no secret

    async def _fetch(self, url: str) -> bool:
        try:
            keys, faults = read_key_set(await self._keys.fetch(url))
            if not keys:
                message = "no key that can be used"
                raise KeySetUnusable(message)  # noqa: TRY301 - told like the others
        except KeySetUnusable as error:
            said = str(error)
        except ValueError:
            said = "no key set"
        except Exception as error:  # noqa: BLE001 - one bad hour must not end the refreshing
            said = type(error).__name__
        else:
            for fault in faults:
                _log.warning("key of Google's left out", url=url, fault=fault)
            self._anchors.put_keys(url, keys)
            self._fetched[url] = datetime.now(UTC)
            FETCHES.labels("fetched").inc()
            return True
        FETCHES.labels("failed").inc()
        _log.warning("Google's keys cannot be fetched", url=url, why=said)
        return False

    def describe(self) -> Iterable[Metric]:
        """Name no metrics beforehand: what there is depends on the folder."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return gauges of each anchor. Labels come from the operator's manifest and addresses."""
        names = ["provider", "partition", "region", "purpose", "source"]
        left = GaugeMetricFamily(
            "watchword_cloud_anchor_days_left",
            "Days until an anchor's certificate ends; below 0 it has.",
            labels=names,
        )
        used = GaugeMetricFamily(
            "watchword_cloud_anchor_last_used_timestamp_seconds",
            "When an anchor last verified something; 0 if not since the start.",
            labels=names,
        )
        for status in self._anchors.status(datetime.now(UTC)):
            labels = [
                status.provider,
                status.partition,
                status.region,
                status.purpose,
                status.source,
            ]
            if status.days_left is not None:
                left.add_metric(labels, status.days_left)
            used.add_metric(labels, status.last_used.timestamp() if status.last_used else 0)
        fetched = GaugeMetricFamily(
            "watchword_cloud_key_set_fetched_timestamp_seconds",
            "When Google's keys were last fetched from an address; 0 if never.",
            labels=["source"],
        )
        for url in self._keys.urls:
            at = self._fetched.get(url)
            fetched.add_metric([url], at.timestamp() if at else 0)
        out = GaugeMetricFamily(
            "watchword_cloud_anchors_left_out",
            "Files and entries of the anchor folder that cannot be used.",
            value=len(self._anchors.current.problems),
        )
        return left, used, fetched, out


@contextmanager
def _registered(anchors: CloudAnchors, registry: CollectorRegistry) -> Generator[None]:
    registry.register(anchors)
    try:
        yield
    finally:
        registry.unregister(anchors)


@contextmanager
def _on_hangup(poke: Callable[[], None]) -> Generator[None]:
    """Have SIGHUP poke, inside the block and where signals can be had: the main thread."""
    loop = asyncio.get_running_loop()
    is_main = threading.current_thread() is threading.main_thread()
    if is_main:
        loop.add_signal_handler(signal.SIGHUP, poke)
    try:
        yield
    finally:
        if is_main:
            loop.remove_signal_handler(signal.SIGHUP)
