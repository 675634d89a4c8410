"""What a keeper counts."""

from typing import get_args

from prometheus_client import Counter, Gauge

from watchword.schemas.events import AlertKind

ACTIVE = Gauge("watchword_keeper_active", "1 if this keeper has the lease, 0 if it stands by")
LAST_ROUND = Gauge(
    "watchword_keeper_last_round_timestamp_seconds", "When this keeper last did its work"
)
SUMMARIES = Counter("watchword_keeper_summaries", "Summaries of refusals written to the journal")
SUPPRESSED = Counter(
    "watchword_keeper_suppressed_refusals", "Refusals that were told by a summary only"
)
RECORDED = Counter(
    "watchword_refusals_recorded",
    "Refusals of the whole deployment, as the keeper has counted them",
    ["attestor", "reason"],
)
ALERTS = Counter(
    "watchword_alerts", "Alerts over refusals that were written to the journal", ["kind"]
)
WAITING = Gauge("watchword_waiting_joins", "Joins that wait for an operator")
OLDEST_WAITING = Gauge(
    "watchword_oldest_waiting_join_seconds",
    "How long the oldest of them has waited; 0 if none does",
)
for _kind in get_args(AlertKind):  # a series that begins with its first alert has no increase
    ALERTS.labels(_kind)
EXPIRED = Counter("watchword_keeper_expired_joins", "Joins that waited until their time was over")
EXPIRED_COMMANDS = Counter(
    "watchword_keeper_expired_commands", "Commands that no node finished in time"
)
OPEN_COMMANDS = Gauge(
    "watchword_commands_open",
    "Commands that wait for their node (queued), or for what it says of them (dispatched)",
    ["state"],
)
PRUNED = Counter("watchword_keeper_pruned_rows", "Rows deleted for their age", ["table"])
PARTITIONS_MADE = Counter("watchword_keeper_partitions_made", "Partitions made ahead")
PARTITIONS_DROPPED = Counter("watchword_keeper_partitions_dropped", "Partitions past retention")
EXPIRING = Gauge(
    "watchword_certificates_expiring",
    "Adopting and active nodes whose certificate ends within so many days, or has ended",
    ["days"],
)
DAYS_AHEAD = Gauge(
    "watchword_partition_days_ahead", "For how many days there are partitions, of the poorest table"
)
