"""What nodes were told: every command has its row and its events once, and what was done is known to be done."""

from tests.faults.judge.answers import Outcomes
from tests.faults.judge.documents import Unreadable, read_jws
from tests.faults.judge.findings import Findings
from tests.faults.judge.ledger import COMMANDS, Commands, Ledger
from tests.faults.judge.tables import Tables

_EVENTS = """
SELECT c.id::text AS id, c.node_id::text AS node, c.state,
    count(j.seq) FILTER (WHERE j.type = 'node.command.enqueued') AS enqueued,
    count(j.seq) FILTER (WHERE j.type = 'node.command.dispatched') AS dispatched,
    count(j.seq) FILTER (WHERE j.type = 'node.command.finished') AS finished
FROM node_commands c LEFT JOIN (SELECT seq, type, convert_from(value, 'UTF8')::jsonb ->> 'commandId' AS command
    FROM journal WHERE type LIKE 'node.command.%') j ON j.command = c.id::text
GROUP BY 1, 2, 3
"""


async def check_commands(
    ledger: Ledger,
    outcomes: Outcomes,
    known: Commands,
    signing: bytes,
    tables: Tables,
    findings: Findings,
) -> int:
    """Compare commands with what operators and machines know; return how many there are."""
    rows = {row["id"]: row for row in await tables.rows(_EVENTS)}
    for command, node in known.sent.items():
        if command not in rows:
            findings.lost("command without its row", f"{command} of {node}")
    for command, row in rows.items():
        was = (row["enqueued"], row["dispatched"], row["finished"])
        expected = (1, int(row["state"] != "queued"), int(row["state"] == "done"))
        if was != expected:
            findings.wrong("events of a command", f"{command} {row['state']}: {was}")
    for command, node in known.heard.items():
        if command not in rows or rows[command]["node"] != node:
            findings.wrong("command that another node was handed", f"{command} by {node}")
        elif rows[command]["state"] not in ("dispatched", "done"):
            findings.wrong("command that was handed out", f"{command}: {rows[command]['state']}")
    for command in sorted(known.reported):
        if rows[command]["state"] != "done":
            findings.lost("word that a command was done", f"{command}: {rows[command]['state']}")
    for digest, answers in outcomes.answers.items():
        for answer in answers:
            for token in answer.payload[COMMANDS]["items"] if answer.outcome == COMMANDS else ():
                try:
                    said = read_jws(token.encode(), signing, "watchword-command")
                except Unreadable as error:
                    findings.wrong("command that does not verify", str(error))
                else:
                    if said["nodeId"] != ledger.asked[digest].node:
                        findings.wrong("command for another node", said["id"])
    return len(rows)
