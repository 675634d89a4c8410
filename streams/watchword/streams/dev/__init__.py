"""Embedded Apache Kafka and PostgreSQL for one machine: `watchword dev` and the tests.

Nothing here is for production: the servers listen on loopback only, without TLS.
"""
