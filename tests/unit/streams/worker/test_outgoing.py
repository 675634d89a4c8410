"""What dead letters say."""

from watchword.handlers.join.records import Answer, Incoming
from watchword.streams.worker.options import WorkerTopics
from watchword.streams.worker.outgoing import Kind, answer_of, dead_letter_of
from watchword.streams.worker.unreadable import Extent, Fault, Unreadable

TOPICS = WorkerTopics.prefixed("here.")
INCOMING = Incoming(
    b"not json",
    "here.join.requests",
    partition=3,
    offset=77,
    key=b"k",
    headers=(("traceparent", b"00-"), ("watchword-reason", b"none"), ("empty", None)),
)


def test_a_dead_letter_has_the_bytes_unchanged_and_says_where_from_and_why() -> None:
    letter = dead_letter_of(INCOMING, "undecodable", TOPICS)
    assert (letter.topic, letter.key, letter.value) == ("here.join.requests.dlq", b"k", b"not json")
    assert letter.headers == (
        ("watchword-reason", b"undecodable"),
        ("watchword-topic", b"here.join.requests"),
        ("watchword-partition", b"3"),
        ("watchword-offset", b"77"),
        ("watchword-content", b"value"),
        ("original.traceparent", b"00-"),
        ("original.watchword-reason", b"none"),
        ("original.empty", None),
    )


def test_a_tombstone_becomes_an_empty_value_that_says_so() -> None:
    """Kafka's client sends no record that has neither key nor value."""
    letter = dead_letter_of(Incoming(None, "t", 0, 0), "undecodable", TOPICS)
    assert (letter.key, letter.value) == (None, b"")
    assert ("watchword-content", b"nothing") in letter.headers


def test_a_dead_letter_of_an_unreadable_record_names_the_fault_and_what_its_bytes_are() -> None:
    found = Unreadable.of(Fault.RECORD, b"raw", Extent.RECORD)
    letter = dead_letter_of(Incoming(None, "t", 0, 5, key=None), "poison", TOPICS, found)
    assert letter.value == b"raw"
    assert type(letter.value) is bytes
    assert ("watchword-fault", b"record") in letter.headers
    assert ("watchword-content", b"record") in letter.headers


def test_a_dead_letter_that_is_too_large_still_tells_where_the_record_is() -> None:
    smaller = dead_letter_of(INCOMING, "undecodable", TOPICS).without_content()
    assert smaller is not None
    assert (smaller.key, smaller.value) == (None, b"")
    assert ("watchword-offset", b"77") in smaller.headers
    assert ("watchword-content", b"nothing") in smaller.headers
    assert ("watchword-content", b"value") not in smaller.headers
    assert not any(name.startswith("original.") for name, _ in smaller.headers)
    assert smaller.without_content() is None


def test_an_answer_has_no_header() -> None:
    """Nothing of the inside goes to machines, no context of a trace of ours either."""
    answer = answer_of(Answer(key=b"k", value=b"signed", outcome="joined"), TOPICS)
    assert answer.headers == ()


def test_an_answer_is_nothing_without_its_content() -> None:
    answer = answer_of(Answer(key=b"k", value=b"signed", outcome="joined"), TOPICS)
    assert (answer.kind, answer.topic) == (Kind.ANSWER, "here.join.responses")
    assert answer.without_content() is None
