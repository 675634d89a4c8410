"""Puts a worker together."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY

from watchword.handlers.attestors.join_token.verifier import JoinTokenAttestor
from watchword.handlers.crypto.keyfiles import load_worker_keys
from watchword.handlers.crypto.worker_keys import WorkerKeys
from watchword.handlers.definition import brings_sql, is_attestor
from watchword.handlers.errors import ConfigRefused
from watchword.handlers.join.policy import JoinPolicy
from watchword.handlers.metered import metered
from watchword.handlers.service import JoinClock, JoinEvents, JoinSeams, create_join_service
from watchword.handlers.store.connection import Database
from watchword.handlers.store.joins import PostgresJoinStore
from watchword.handlers.store.slots import SlotLimits
from watchword.schemas.ids import AttestorId
from watchword.schemas.topics import JOIN_REQUESTS
from watchword.streams import failpoints
from watchword.streams.settings import Settings
from watchword.streams.signer.client import SocketSigner
from watchword.streams.tracing.opening import tracing_of
from watchword.streams.wiring.attestors import enabled_attestors, join_policy
from watchword.streams.wiring.cloud_iid import tending
from watchword.streams.wiring.connections import database_url, kafka_connection
from watchword.streams.wiring.database_watch import watching
from watchword.streams.wiring.explain import drafted, explainer
from watchword.streams.worker.explain_desk import Desk, attended
from watchword.streams.worker.join_metrics import JoinMetrics
from watchword.streams.worker.key_watch import KeyWatch, watching_keys
from watchword.streams.worker.options import Judging, WorkerLimits, WorkerOptions
from watchword.streams.worker.request_log import RequestLog
from watchword.streams.worker.run import run_worker

if TYPE_CHECKING:
    from watchword.streams.tracing.spans import Spans
    from watchword.streams.tracing.worker import WorkerTracing


def run(settings: Settings) -> int:
    """Run a worker until SIGTERM or SIGINT; return its exit status.

    Everything that can be wrong with the configuration is found here, before anything is consumed.

    Raises:
        ConfigRefused: with every problem of the step that failed.
        OSError: the health listener's address is taken.
    """
    options = worker_options(settings)
    database_url(settings)
    keys = load_worker_keys(settings.keys.directory)
    wanted = settings.deployment.trust_domain
    if wanted is not None and wanted != keys.trust_domain:
        raise ConfigRefused(
            [f"deployment.trust_domain: {wanted}, but the keys are for {keys.trust_domain}"]
        )
    attestors = enabled_attestors(settings, trust_domain=keys.trust_domain)
    policy = join_policy(settings)
    with tracing_of(settings.tracing, "worker", settings.worker.name) as spans:
        return run_worker(options, partial(judging, settings, keys, attestors, policy, spans))


def worker_options(settings: Settings) -> WorkerOptions:
    """Return what the worker's process is told."""
    worker = settings.worker
    return WorkerOptions(
        kafka=kafka_connection(settings),
        name=worker.name,
        group=worker.group_id,
        limits=WorkerLimits(
            batch_records=worker.batch_requests,
            batch_bytes=worker.batch_bytes,
            batches_in_flight=worker.batches_in_flight,
            session_timeout_s=worker.session_timeout_s,
            drain_s=worker.drain_s,
            stall_s=worker.stall_s,
            memory_bytes=worker.memory_bytes,
            clock_skew_s=worker.clock_skew_s,
        ),
        health_host=settings.health.host,
        health_port=worker.health_port,
    )


@asynccontextmanager
async def judging(
    settings: Settings,
    keys: WorkerKeys,
    attestors: list[object],
    policy: JoinPolicy,
    spans: "Spans | None" = None,
) -> AsyncGenerator[Judging]:
    """Open the join service inside the event loop; close it in reverse order. With `spans` it is traced."""
    url = database_url(settings)
    refusals, deployment = settings.refusals, settings.deployment
    every = attestors
    if not any(getattr(one, "id", None) == "join-token" for one in attestors):
        every = [JoinTokenAttestor(), *attestors]
    async with AsyncExitStack() as stack:
        database = Database(url, application_name=f"watchword-worker {settings.worker.name}"[:63])
        stack.push_async_callback(database.close)
        limits = SlotLimits(refusals.limit, refusals.attestor_limit, refusals.window_s)
        store = PostgresJoinStore(database, limits)
        stack.push_async_callback(store.close)
        signer = SocketSigner(settings.signer.socket)
        stack.push_async_callback(signer.close)
        tracing = _tracing(spans, settings, every)
        metrics = JoinMetrics(every)
        crypto = keys.join_crypto(signer if tracing is None else tracing.signing(signer))
        service = create_join_service(
            store,
            JoinClock(
                lifetime=timedelta(seconds=deployment.certificate_lifetime_s),
                renew_fraction=deployment.renew_fraction,
                verify_seconds=deployment.verify_timeout_s,
                retry_after_seconds=deployment.approval_retry_after_s,
                approval_ttl=timedelta(seconds=deployment.approval_ttl_s),
            ),
            JoinEvents(settings.worker.name, f"/watchword/{deployment.cluster}/verifier"),
            crypto,
            [metered(one, REGISTRY) for one in every if is_attestor(one)],
            JoinSeams(
                policy,
                metrics if tracing is None else tracing.observing(metrics),
                lambda: failpoints.hit("before-commit"),
                evicts_on_theft=deployment.on_key_conflict == "evict",
                waiting_per_tenant=deployment.waiting_per_tenant,
                waiting_per_site=deployment.waiting_per_site,
                tracing=tracing,
            ),
        )
        with_sql = [AttestorId(a.id) for a in attestors if brings_sql(a)]  # type: ignore[attr-defined]  # looked at
        watch = await stack.enter_async_context(watching(database, url, with_sql))
        looking = KeyWatch(
            settings.keys.directory, keys, crypto, database, holder=settings.worker.name
        )
        await stack.enter_async_context(watching_keys(looking))
        clouds = await stack.enter_async_context(tending(settings, attestors))
        desk = Desk(
            database,
            settings.worker.name,
            RequestLog(kafka_connection(settings), JOIN_REQUESTS),
            explainer(settings, crypto, attestors, policy),
            partial(drafted, settings, crypto, attestors),
        )
        await stack.enter_async_context(attended(desk))
        yield Judging(service, lambda: watch.problem() or clouds(), watch.clock_skew, tracing)


def _tracing(
    spans: "Spans | None", settings: Settings, attestors: list[object]
) -> "WorkerTracing | None":
    if spans is None:
        return None
    from watchword.streams.tracing.worker import WorkerTracing  # noqa: PLC0415 - needs the extra

    return WorkerTracing(spans, group=settings.worker.group_id, attestors=attestors)
