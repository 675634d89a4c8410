"""`watchword purge`: what privacy asks. Counts first, and a confirmation that repeats them."""

from typing import Annotated

from cyclopts import Parameter

from watchword.handlers.attestor import Subject
from watchword.handlers.errors import BadArgument
from watchword.handlers.operators import purges
from watchword.handlers.operators.nodes import node_id
from watchword.handlers.operators.purges import Wanted
from watchword.streams.cli.acting import ACTING, Acting, operating
from watchword.streams.cli.confirming import confirm
from watchword.streams.cli.digests import typed_digest
from watchword.streams.cli.durations import duration
from watchword.streams.cli.output import say, show_one


async def purge(
    *nodes: Annotated[str, Parameter(help="Ids of nodes that are gone; or none, and filters.")],
    subject: Annotated[
        str | None,
        Parameter(help="KIND=VALUE that was proven of a machine, such as ek=… or machine=…."),
    ] = None,
    digest: Annotated[
        str | None,
        Parameter(help="SHA-256 of a subject, of a public key or of a hardware key's name, hex."),
    ] = None,
    tenant: Annotated[str | None, Parameter(help="Every node of this tenant that is gone.")] = None,
    older_than: Annotated[
        str | None, Parameter(help="Only nodes that have been gone for so long, such as 90d.")
    ] = None,
    dry_run: Annotated[bool, Parameter(help="Count, and change nothing.", negative="")] = False,
    yes: Annotated[bool, Parameter(help="Ask nothing.", negative="")] = False,
    options: Acting = ACTING,
) -> None:
    """Take away what is known of machines whose nodes were retired or deleted: names, claims, certificates, addresses.

    What keeps a machine from coming back twice stays, as digests: docs/guides/privacy.md says what. Needs --why.
    """
    wanted = Wanted(
        nodes=[node_id(one) for one in nodes],
        subject=_subject(subject),
        digest=typed_digest(digest),
        tenant=tenant,
        older_than=None if older_than is None else duration(older_than),
    )
    if not dry_run and not options.why.strip():
        message = "--why: say why, for the next operator; or --dry-run"
        raise BadArgument(message)
    async with operating(options) as (settings, database):
        found = await purges.find(database, wanted)
        counts = {"nodes": len(found.nodes), **found.counts}
        if dry_run:
            show_one({**counts, "purged": False}, options.form)
            return
        if not yes:
            for name, count in counts.items():
                say(f"{name.replace('_', ' ')}: {count}")
            confirm("purge", len(found.nodes), "node")
        done = await purges.purge(database, options.actor(settings), found.nodes)
    show_one({**done, "purged": True}, options.form)


def _subject(text: str | None) -> Subject | None:
    if text is None:
        return None
    kind, equals, value = text.partition("=")
    if not (kind and equals and value):
        message = "--subject KIND=VALUE, as `watchword nodes show` has them"
        raise BadArgument(message)
    return Subject(kind, value)
