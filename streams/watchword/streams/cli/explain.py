"""`watchword explain`: how a stored request is judged, step by step, and what a draft would change."""

import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, cast
from uuid import UUID

from cyclopts import Parameter

from watchword.handlers.errors import BadArgument, Unavailable
from watchword.handlers.explain.drafts import MOST_BYTES, Draft, Files
from watchword.handlers.operators import explanations
from watchword.handlers.operators.explanations import Question
from watchword.handlers.reasons import find_reason
from watchword.schemas.remedies import REMEDIES
from watchword.streams.cli.acting import ACTING, Acting, operating
from watchword.streams.cli.durations import duration, moment
from watchword.streams.cli.output import Output, say, show_one, show_rows, text

_DIGEST_DIGITS = 64
_WITH_ANCHORS = ("cloud-iid", "tpm")
_COLUMNS = ("sent_at", "attestor", "request_sha256", "recorded", "in_force", "draft", "check")

_MARKS = {
    "passed": "ok",
    "failed": "NO",
    "waits": "waits",
    "unknown": "?",
    "not-reached": "-",
}


async def explain(  # noqa: PLR0913 - each is an option
    request: Annotated[
        str | None,
        Parameter(
            help="A request's id, the SHA-256 of its bytes, topic:partition:offset, or a file with its bytes."
        ),
    ] = None,
    /,
    *,
    now: Annotated[
        bool, Parameter(help="Judge it now, and not at its own time.", negative="")
    ] = False,
    policy: Annotated[
        Path | None,
        Parameter(
            help="A draft: a TOML file whose [attestors] tables stand in the place of the workers'."
        ),
    ] = None,
    anchors: Annotated[
        Path | None,
        Parameter(
            help="A folder of anchors in the place of the workers' own: with folders `cloud-iid` and `tpm` in it."
        ),
    ] = None,
    since: Annotated[
        str | None,
        Parameter(
            help="List the requests since then that would end otherwise, by a draft or, without one, than is"
            " recorded: RFC 3339, or so long ago: 24h."
        ),
    ] = None,
    until: Annotated[
        str | None, Parameter(help="With --since: only those that came before then.")
    ] = None,
    limit: Annotated[
        int, Parameter(help="How many requests --since looks at, at most 2000.")
    ] = 1000,
    within: Annotated[
        str, Parameter(name="--timeout", help="How long to wait for a worker's answer.")
    ] = "60s",
    options: Acting = ACTING,
) -> int:
    """Judge a request again, in a worker and read-only; exit 1 if it comes to something else than is recorded.

    With --since and no draft: exit 1 if any does. Nothing is issued and nothing is written but the audit row. A request is kept on its topic for a day; of an older
    one give the bytes.
    """
    question = _question(request, since=since, until=until, limit=limit, now=now)
    draft = _draft(policy, anchors)
    question = replace(question, draft=draft)
    seconds = duration(within).total_seconds()
    async with operating(options) as (settings, database):
        job = await explanations.ask(database, options.actor(settings), question)
        found = await explanations.answer_to(database, job, within_s=seconds)
    if question.since is not None:
        return show_changed(found, options.form, is_draft=draft is not None)
    if options.form == "table":
        sys.stdout.write("".join(f"{line}\n" for line in lines_of(found)))
    else:
        show_one(found, options.form)
    return 1 if found["agrees"] is False and draft is None and not now else 0


def _question(
    request: str | None, *, since: str | None, until: str | None, limit: int, now: bool
) -> Question:
    if (request is None) == (since is None):
        message = "name a request, or say --since"
        raise BadArgument(message)
    if until is not None and since is None:
        message = "--until goes with --since"
        raise BadArgument(message)
    if since is not None:
        today = datetime.now(UTC)
        ends = None if until is None else moment(until, today)
        return Question(since=moment(since, today), until=ends, limit=limit)
    named = request or ""
    if len(named) == _DIGEST_DIGITS and all(c in "0123456789abcdef" for c in named.lower()):
        return Question(sha256=named.lower(), now=now)
    if (place := _place(named)) is not None:
        return Question(place=place, now=now)
    try:
        return Question(request_id=str(UUID(named)), now=now)
    except ValueError:
        pass
    try:
        return Question(request=Path(named).read_bytes(), now=now)
    except OSError as error:
        message = f"{named[:200]}: no request's id, SHA-256 or place, and no file that can be read ({error.strerror})"
        raise BadArgument(message) from error


def _place(named: str) -> tuple[str, int, int] | None:
    topic, _, numbers = named.partition(":")
    partition, _, offset = numbers.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        return None
    return topic, int(partition), int(offset)


def _draft(policy: Path | None, anchors: Path | None) -> Draft | None:
    """Return what is drafted, with the files that the policy names and that are here."""
    if policy is None and anchors is None:
        return None
    tables: dict[str, Any] = {}
    files: Files = {}
    if policy is not None:
        try:
            read = tomllib.loads(policy.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            message = f"{policy}: {error}"
            raise BadArgument(message) from error
        found = read.get("attestors")
        if not isinstance(found, dict):
            message = f"{policy}: has no table [attestors]"
            raise BadArgument(message)
        tables = cast("dict[str, Any]", found)
        if more := sorted(read.keys() - {"attestors"}):
            say(f"{policy}: only [attestors] counts; left out: {', '.join(more)}")
        files = _files_of(tables, policy.parent)
    folders = {} if anchors is None else _anchors(anchors)
    return Draft(tables, files, folders)


def _files_of(tables: Mapping[str, Any], beside: Path) -> Files:
    """Return the CA bundles that rules name and that are here; others are the workers' own."""
    found: Files = {}
    section = tables.get("x509pop")
    rules = cast("dict[str, Any]", section).get("rules") if isinstance(section, dict) else None
    for rule in cast("list[object]", rules) if isinstance(rules, list) else ():
        named = (
            cast("dict[str, Any]", rule).get("authorities_file") if isinstance(rule, dict) else None
        )
        if isinstance(named, str) and (path := beside / named).is_file():
            found[named] = path.read_bytes()
    return found


def _anchors(folder: Path) -> dict[str, Files]:
    found: dict[str, Files] = {}
    for name in _WITH_ANCHORS:
        inside = folder / name
        if inside.is_dir():
            found[name] = _files_in(inside)
    if not found:
        message = f"{folder}: has neither a folder cloud-iid nor a folder tpm"
        raise BadArgument(message)
    return found


def _files_in(folder: Path) -> Files:
    found: Files = {}
    size = 0
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            size += path.stat().st_size
            if size > MOST_BYTES:
                message = f"{folder}: more than {MOST_BYTES} bytes"
                raise BadArgument(message)
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


# What is shown


def show_changed(found: Mapping[str, Any], form: Output, *, is_draft: bool) -> int:
    """Show the requests that would end otherwise; return the exit status.

    Raises:
        Unavailable: the answer does not say with what they were compared.
    """
    if not is_draft and found.get("compared_with") != "recorded":
        message = "the worker that answered is of an earlier release, which needs a draft"
        raise Unavailable(message)
    changed = found["changed"]
    show_rows(changed, _COLUMNS, form)
    more = ", and there are more: --limit or --until" if found["has_more"] else ""
    than = "" if is_draft else " than is recorded"
    say(f"{len(changed)} of {found['looked_at']} requests would end otherwise{than}{more}")
    return 1 if changed and not is_draft else 0


def lines_of(found: Mapping[str, Any]) -> Iterable[str]:
    """Yield an explanation for a person."""
    asked, judged, recorded = found["request"], found["judged"], found["recorded"]
    named = asked.get("request_id") or "unreadable"
    yield f"request   {text(named)}  {text(asked.get('kind'))} by {text(asked.get('attestor'))} as {text(asked.get('role'))}"
    yield f"          sha256 {text(asked['request_sha256'], limit=None)}"
    if asked.get("topic"):
        yield f"          {asked['topic']}:{asked['partition']}:{asked['offset']}"
    if recorded is None:
        yield "recorded  nothing: it was not judged, was challenged, or is long forgotten"
    else:
        yield f"recorded  {_said(recorded)}  {text(recorded['at'])}" + (
            f"  node {recorded['node_id']}" if recorded.get("node_id") else ""
        )
    by = " by the draft" if found.get("draft") else ""
    yield f"judged{by}  at {text(judged['at'])}, {text(judged['world'], limit=None)}"
    agrees = {True: "  (as recorded)", False: "  (NOT as recorded)", None: ""}[found["agrees"]]
    yield f"verdict   {_said(found['verdict'])}{agrees}"
    yield ""
    for step in found["steps"]:
        yield from _step(step)
    for note in found["notes"]:
        yield ""
        yield f"note      {text(note, limit=None)}"
    yield from _meaning(found["verdict"]["reason"])


def _step(step: Mapping[str, Any]) -> Iterable[str]:
    mark = _MARKS.get(step["status"], "?")
    indent = "  " if step["attestor"] else ""
    whose = f"{step['attestor']}: " if step["attestor"] else ""
    yield f"{indent}{step['number']:<5} {mark:<5} {text(whose + step['what'], limit=None)}"
    facts = [
        f"{name.replace('_', ' ')} {text(value, limit=80)}" for name, value in step["facts"].items()
    ]
    if facts and step["status"] != "not-reached":
        yield f"{indent}            {', '.join(facts)}"


def _said(verdict: Mapping[str, Any]) -> str:
    reason = f" {verdict['reason']}" if verdict["reason"] else ""
    return text(f"{verdict['outcome']}{reason}", limit=None)


def _meaning(reason: str | None) -> Iterable[str]:
    attestor, _, name = (reason or "").partition(":")
    known = find_reason(attestor, name) if name else None
    if known is not None:
        yield ""
        yield f"means     {known.sentence}"
        if known.code in REMEDIES:
            yield f"to do     {REMEDIES[known.code]}"
