"""PKCS #10 requests: taken are those that prove possession of a key that we accept."""

from binascii import a2b_base64
from collections.abc import Iterator, Sequence

from tests.vectors.judging import Entry, Result, accepts, refuses
from watchword.handlers.crypto.csr import check_possession, load_csr


def requests(entries: Sequence[Entry]) -> Iterator[Result]:
    """Judge each as a gateway and a worker do."""
    for entry in entries:
        judge = accepts if entry.expect == "accept" else refuses
        yield judge(entry, _take, _der(entry.data()))


def _take(data: bytes) -> None:
    check_possession(load_csr(data))


def _der(data: bytes) -> bytes:
    if b"-----BEGIN" not in data:
        return data
    _, armoured = data.split(b"REQUEST-----", 1)
    return a2b_base64(armoured.split(b"-----END", 1)[0])
