"""Kinds of commands: which there are, and which a node takes.

A kind is registered by name. What a node is allowed are such names, or `prefix.*` for all that begin with
`prefix.`. Both are matched exactly: `wipe` does not allow `disk.wipe`, and `disk.*` does not allow `disk`.
"""

from collections.abc import Collection, Iterable

from watchword.schemas.commands import KIND

BUILT_IN: frozenset[str] = frozenset(
    (
        "inventory.refresh",
        "logs.collect",
        "diag.ping",
        "diag.report",
        "disk.wipe",
        "deploy.image",
        "deploy.package",
        "boot.kexec",
        "agent.restart",
        "agent.update",
    )
)
"""The kinds that every deployment has; it registers its own in `deployment.kinds`."""


def registry(own: Iterable[str] = ()) -> frozenset[str]:
    """Return all registered kinds: the built-in ones, and a deployment's own."""
    return BUILT_IN.union(own)


def known_kind(kind: str, registered: Collection[str] = BUILT_IN) -> bool:
    """Tell whether a kind is registered, or is `prefix.*` and matches one that is."""
    if kind.endswith(".*"):
        prefix = kind[:-1]
        return bool(KIND.fullmatch(kind[:-2])) and any(k.startswith(prefix) for k in registered)
    return kind in registered


def permits(allowed: Collection[str] | None, kind: str) -> bool:
    """Tell whether what is allowed has this kind in it; None allows all, an empty list nothing."""
    if allowed is None:
        return True
    return kind in allowed or any(
        pattern.endswith(".*") and kind.startswith(pattern[:-1]) for pattern in allowed
    )


def kinds_problem(kinds: Iterable[str] | None, registered: Collection[str]) -> str | None:
    """Return what is wrong with a list of what nodes may be told, for whoever wrote it; None if nothing is."""
    for kind in kinds or ():
        if not known_kind(kind, registered):
            return f"kind: one of {', '.join(sorted(registered))}, or prefix.*, not {kind!r}"
    return None
