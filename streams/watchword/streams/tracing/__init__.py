"""OpenTelemetry, and nothing else of ours that knows it: spans for gateway, worker, relay and agent.

What is followed is said by protocols (`join.tracing`, `gateway.tracing`, `worker.tracing`, `relay.tracing`, `agent.tracing`); this
package implements them, and is imported only by processes that trace.
"""
