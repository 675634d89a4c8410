"""The rows of the table by name. A new one is a module here, and a line below."""

from collections.abc import Awaitable, Callable

from tests.benchmarks.bench import Bench
from tests.benchmarks.results import Measure
from tests.benchmarks.rows.attestors import discovery, image, x509pop
from tests.benchmarks.rows.clouds import cloud_aws, cloud_azure, cloud_gcp
from tests.benchmarks.rows.join_token import join_token, join_token_hot
from tests.benchmarks.rows.refusal_mix import refusal_mix
from tests.benchmarks.rows.refusal_storm import refusal_storm
from tests.benchmarks.rows.relay import relay
from tests.benchmarks.rows.renewal import renewal
from tests.benchmarks.rows.tpm import tpm

Row = Callable[[Bench], Awaitable[list[Measure]]]

ROWS: dict[str, Row] = {
    "join-token": join_token,
    "join-token-hot": join_token_hot,
    "relay": relay,
    "refusal-storm": refusal_storm,
    "refusal-mix": refusal_mix,
    "image": image,
    "discovery": discovery,
    "x509pop": x509pop,
    "renewal": renewal,
    "cloud-aws": cloud_aws,
    "cloud-gcp": cloud_gcp,
    "cloud-azure": cloud_azure,
    "tpm": tpm,
}
"""In the order of the run: later rows are compared with the rate of joins."""
