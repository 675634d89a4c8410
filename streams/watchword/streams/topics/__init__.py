"""Bringing Kafka's topics to what `schemas.topics` says."""
