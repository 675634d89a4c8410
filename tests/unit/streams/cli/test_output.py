"""What commands print: JSON for programs, tables that no text of a machine can break."""

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from watchword.streams.cli.output import show_one, show_rows

NODE = UUID("01a22979-a0f9-73cb-8927-bcd853564286")
ROW = {
    "node_id": NODE,
    "joined_at": datetime(2026, 1, 2, 3, 4, 5, 678_999, tzinfo=UTC),
    "csr_sha256": b"\x01\x02",
    "site": None,
    "allowed_kinds": ["disk.wipe"],
}


def test_json_has_a_version_and_stable_names(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs outlive releases."""
    show_rows([ROW], ("node_id",), "json")

    assert json.loads(capsys.readouterr().out) == {
        "schemaVersion": 1,
        "items": [
            {
                "nodeId": str(NODE),
                "joinedAt": "2026-01-02T03:04:05.678Z",
                "csrSha256": "0102",
                "site": None,
                "allowedKinds": ["disk.wipe"],
            }
        ],
    }


def test_jsonl_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """What `jq` and `grep` take."""
    show_rows([ROW, ROW], ("node_id",), "jsonl")

    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["schemaVersion"] for line in lines] == [1, 1]


@pytest.mark.parametrize("form", ["table", "json", "jsonl"])
def test_no_text_moves_the_cursor_of_a_terminal(
    capsys: pytest.CaptureFixture[str], form: str
) -> None:
    """A machine chooses its own name; it must not rewrite what an operator reads."""
    hostile = "\x1b[2Jok\r\nroot \u202e\x9b31m"
    show_rows([{"name": hostile}], ("name",), form)  # type: ignore[arg-type]
    show_one({"name": hostile}, form)  # type: ignore[arg-type]

    printed = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in printed)
