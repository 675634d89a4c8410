"""For each alert, in the order of the rules: series under which it fires, and others under which it does not."""

from dataclasses import dataclass, field

from tests.support.exported import exported


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
