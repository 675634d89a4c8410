"""PostgreSQL's journal to Kafka: at least once, in order for each key, from any number of relays."""

from watchword.streams.relay.options import RelayOptions
from watchword.streams.relay.process import run_relay

__all__ = ["RelayOptions", "run_relay"]
