"""What the gateway counts. Labels are names from our own code: never an address, a digest or a path."""

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter(
    "watchword_gateway_requests_total", "HTTP requests by route and status", ["route", "status"]
)
REJECTED = Counter(
    "watchword_gateway_rejected_total", "Requests that ended with a problem", ["reason"]
)
CONNECTIONS = Gauge("watchword_gateway_connections", "Open connections")
CONNECTIONS_REFUSED = Counter(
    "watchword_gateway_connections_refused_total", "Connections closed at once", ["limit"]
)
CUT = Counter("watchword_gateway_connections_cut_total", "Connections that were too slow", ["part"])
WAITERS = Gauge("watchword_gateway_waiters", "Long polls that wait now")
ANSWERS = Gauge("watchword_gateway_cached_requests", "Requests whose answers are kept")
ANSWER_BYTES = Gauge("watchword_gateway_cached_bytes", "Bytes of answers that are kept")
ANSWERS_READ = Counter(
    "watchword_gateway_answers_read_total", "Records of join.responses", ["kind"]
)
PASSED_OVER = Counter(
    "watchword_gateway_passed_over_total", "Records that no Kafka client can parse", ["topic"]
)
SENT = Counter("watchword_gateway_sent_total", "Requests on their way to Kafka", ["result"])
WINDOW = Gauge(
    "watchword_gateway_send_window", "Requests that may be on their way to Kafka at once"
)
SEND_SECONDS = Histogram(
    "watchword_gateway_send_seconds",
    "From a good request to Kafka's acknowledgement",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
CHECK_SECONDS = Histogram(
    "watchword_gateway_check_seconds",
    "Checking a body: shape, key policy, possession",
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
)
TAIL_BEHIND = Gauge(
    "watchword_gateway_tail_behind_records", "Records of a topic that were not read yet", ["topic"]
)
