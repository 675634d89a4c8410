"""What a person sees of events while `watchword dev` runs."""

import pytest

from watchword.streams.dev.stage import Stage


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        ({"type": "node.joined", "tenant": "acme", "pool": "gpu", "nodeId": "n1"}, "acme/gpu node n1"),
        ({"type": "node.evicted", "tenant": "acme", "nodeId": "n1"}, "n1 tenant acme"),
        ({"type": "security.join.refused", "refusal": "join:unseal", "severity": "high", "tenant": "root"}, "join:unseal (high) tenant root"),
        ({"type": "security.join.alert", "refusal": None, "kind": "many-reasons", "severity": "high", "tenant": "root"}, "many-reasons (high) tenant root"),
    ],
)  # fmt: skip
def test_an_event_is_shown_by_what_it_has(
    event: dict[str, object], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever tries it for the first time should not read the word None."""
    Stage().event(event)

    line = capsys.readouterr().out.strip()
    assert line.endswith(shown)
    assert line.split()[1] == event["type"]
