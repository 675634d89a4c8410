"""The way in for machines: HTTP in front of Kafka, without a key and without a database."""

from watchword.streams.gateway.options import GatewayOptions, Limits, Timings, TlsFiles
from watchword.streams.gateway.process import Gateway, run_gateway

__all__ = ["Gateway", "GatewayOptions", "Limits", "Timings", "TlsFiles", "run_gateway"]
