"""The pinned jars of Kafka."""

import hashlib
from pathlib import Path

import pytest

from watchword.streams.dev.errors import RuntimeChanged
from watchword.streams.dev.kafka_runtime import Jar, check, class_path, pinned_jars, read_lock

_ENTRY = """
[[dependencies]]
groupId = "org.example"
artifactId = "thing"
version = "1.0"
sha256 = "{sha256}"
"""


def _jar(content: bytes, name: str = "thing") -> Jar:
    return Jar("org.example", name, "1.0", hashlib.sha256(content).hexdigest())


def test_the_lock_pins_the_broker_and_the_client_of_the_same_version() -> None:
    versions = {jar.name: jar.version for jar in pinned_jars()}
    assert versions["kafka_2.13"] == versions["kafka-clients"] == versions["kafka-server"]


def test_no_two_pinned_jars_share_a_file() -> None:
    names = [jar.file_name for jar in pinned_jars()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dependencies = []",
        "dependencies = 1",
        "not toml",
        _ENTRY.format(sha256=""),
        _ENTRY.format(sha256="A" * 64),
        _ENTRY.format(sha256="a" * 64).replace("thing", "../thing"),
        _ENTRY.format(sha256="a" * 64).replace("version", "edition"),
    ],
)
def test_a_lock_without_a_hash_for_every_jar_is_refused(text: str) -> None:
    with pytest.raises(RuntimeChanged):
        read_lock(text)


def test_a_changed_jar_is_refused_by_name(tmp_path: Path) -> None:
    jar = _jar(b"right")
    file = tmp_path / jar.file_name
    file.write_bytes(b"right")
    check(file, jar)
    file.write_bytes(b"wrong")
    with pytest.raises(RuntimeChanged, match=r"thing-1\.0\.jar"):
        check(file, jar)


def test_the_class_path_holds_the_pinned_jars_and_nothing_else_of_the_folder(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "jars"
    folder.mkdir()
    jars = [_jar(b"one", "one"), _jar(b"two", "two")]
    for jar, content in zip(jars, (b"one", b"two"), strict=True):
        (folder / jar.file_name).write_bytes(content)
    (folder / "stranger.jar").write_bytes(b"evil")

    assert class_path(tmp_path, jars) == f"{folder}/one-1.0.jar:{folder}/two-1.0.jar"
