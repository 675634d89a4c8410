"""What a relay counts. Pending rows and their age are of all shards: take the maximum over relays."""

from prometheus_client import Counter, Gauge, Histogram

PUBLISHED = Counter(
    "watchword_relay_published", "Events acknowledged by Kafka, resends included", ["topic"]
)
WAVES = Counter("watchword_relay_waves", "Waves sent, by how they ended", ["result"])
REJECTED = Counter("watchword_relay_rejections", "Refusals of single records by Kafka", ["error"])
REPLACED = Counter("watchword_relay_producers_replaced", "Producers thrown away after an error")
FENCED = Counter("watchword_relay_fenced", "Cursor moves refused because the lease was lost")
SHARDS = Gauge("watchword_relay_shards", "Shards that this relay holds")
BLOCKED = Gauge(
    "watchword_relay_blocked_shards", "Shards that wait for a rejected row to be accepted or parked"
)
PENDING = Gauge(
    "watchword_relay_pending_events",
    "Committed events that are not published, at most 1,000 counted in each shard",
)
OLDEST = Gauge(
    "watchword_relay_oldest_unpublished_seconds", "Age of the oldest event that is not published"
)
LAG = Histogram(
    "watchword_relay_lag_seconds",
    "From the recording of the oldest event of a wave to its acknowledgement",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600),
)
