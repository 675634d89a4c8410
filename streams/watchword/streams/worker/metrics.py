"""The worker's metrics. No label takes its values from a request."""

from prometheus_client import Counter, Gauge, Histogram

RECEIVED = Counter("watchword_worker_records_received", "Records taken from join.requests.")
REPEATS = Counter("watchword_worker_records_repeated", "Records delivered again and dropped.")
SKIPS = Counter(
    "watchword_worker_offsets_skipped", "Gaps in what was delivered; each ends the process."
)
LOST = Counter(
    "watchword_worker_records_lost", "Offsets that retention removed before they were judged."
)
TRUNCATIONS = Counter(
    "watchword_worker_log_truncations", "Partitions whose log ended below the committed offset."
)
UNREADABLE = Counter(
    "watchword_worker_records_unreadable",
    "Records that Kafka's client cannot parse, by what is wrong with them.",
    ["fault"],
)
HELD = Gauge("watchword_worker_records_held", "Records in memory that are not answered yet.")
HELD_BYTES = Gauge("watchword_worker_held_bytes", "Their bytes.")
LAG = Gauge(
    "watchword_worker_lag_records",
    "Records of this worker's partitions that are not answered, as far as the last fetches tell.",
)
PARTITIONS = Gauge("watchword_worker_partitions", "Partitions that this worker holds.")
REBALANCES = Counter("watchword_worker_rebalances", "Assignments received from the group.")
CONSUMERS_REPLACED = Counter(
    "watchword_worker_consumers_replaced", "Consumers given up after an error."
)

BATCH_SIZE = Histogram(
    "watchword_worker_batch_records",
    "Records of one batch.",
    buckets=(1, 2, 4, 8, 16, 32, 64),
)
BATCH_SECONDS = Histogram(
    "watchword_worker_batch_seconds",
    "Time from taking a batch until all its answers are acknowledged.",
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300),
)
IN_FLIGHT = Gauge("watchword_worker_batches_in_flight", "Batches being judged or answered.")

SENT = Counter("watchword_worker_records_sent", "Acknowledged answers and dead letters.", ["kind"])
UNSENDABLE = Counter(
    "watchword_worker_records_unsendable",
    "Answers and dead letters that Kafka refuses for their size.",
    ["kind"],
)
for _kind in ("answer", "dead-letter"):  # a series that begins with its first count has no rate
    SENT.labels(_kind)
    UNSENDABLE.labels(_kind)
PRODUCERS_REPLACED = Counter(
    "watchword_worker_producers_replaced", "Producers given up after an error or a deadline."
)

COMMITS = Counter("watchword_worker_commits", "Offset commits that Kafka accepted.")
COMMITS_DROPPED = Counter(
    "watchword_worker_commits_dropped", "Offset commits that failed, mostly after a rebalance."
)
DRAIN_SECONDS = Gauge("watchword_worker_drain_seconds", "Time since draining began.")
