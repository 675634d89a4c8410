"""A draft comes from whoever may write to the database: it reaches the one folder that is made for it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.joins import keys
from watchword.handlers.errors import BadArgument, ConfigRefused
from watchword.handlers.explain.drafts import Draft
from watchword.streams.settings import load
from watchword.streams.wiring import explain


def drafted(draft: Draft) -> None:
    settings = load(environment={}).settings
    with explain.drafted(settings, keys()[0], [], draft):
        pass


@pytest.mark.parametrize(
    "anchors",
    [
        {"../../escaped": {"a.pem": b"x"}},
        {"tpm": {"../escaped.pem": b"x"}},
        {"tpm": {"a/../../escaped.pem": b"x"}},
        {"tpm": {"/tmp/escaped.pem": b"x"}},  # noqa: S108 - refused
        {"cloud-iid": {"a.pem": b"x"}},
    ],
)
def test_a_draft_writes_nowhere_else(
    anchors: Mapping[str, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker holds keys; a row of a table must not put files beside them."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "inner"))
    (tmp_path / "inner").mkdir()
    with pytest.raises(BadArgument):
        drafted(Draft(anchors=anchors))
    assert list(tmp_path.rglob("*escaped*")) == []
    assert list((tmp_path / "inner").iterdir()) == []


def test_a_drafts_files_are_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is wrong with a draft is said as of any configuration."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    drafted(Draft(anchors={"tpm": {"vendor/ca.pem": b"no certificate"}}))
    with pytest.raises(ConfigRefused, match=r"attestors\.tpm"):
        drafted(Draft(attestors={"tpm": {"no_such_setting": 1}}))
    with pytest.raises(ConfigRefused, match="no such kind"):
        drafted(Draft(attestors={"image": {"kinds": ["no.such"]}}))
    assert list(tmp_path.iterdir()) == []


def test_a_draft_that_is_no_draft_is_refused() -> None:
    """Bytes of a job that another release wrote."""
    for data in (b"", b"[]", b"{}", b'{"attestors": {}, "files": {"a": "?"}, "anchors": {}}'):
        with pytest.raises(BadArgument):
            Draft.decode(data)
    draft = Draft({"image": {}}, {"ca.pem": b"\x00"}, {"tpm": {"a": b"b"}})
    assert Draft.decode(draft.encode()) == draft
