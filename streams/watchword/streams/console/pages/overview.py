"""How it is going: what waits, what joined and was refused in the last hour, what is about to expire."""

from datetime import timedelta
from typing import Any

from starlette.responses import Response

from watchword.handlers.operators.overview import show_machinery
from watchword.streams.console.api.whole import OfTenant
from watchword.streams.console.site import Door
from watchword.streams.console.visit import Visit

_SOON = timedelta(days=30)
_BAR, _HEIGHT = 20, 60


async def show(visit: Visit) -> Response:
    """The page."""
    given = OfTenant.model_validate(visit.query)
    counts = await visit.desk.show_overview(given.tenant)
    is_root = visit.access.is_root and given.tenant is None
    now = counts["now"]
    return visit.page(
        "overview.html",
        title="Overview",
        counts=counts,
        tenant=given.tenant,
        oldest_s=_age(now, counts["oldest_waiting"]),
        joined=bars(counts["joined_by_5_minutes"]),
        refused=bars(counts["refused_by_5_minutes"]),
        machinery=await show_machinery(visit.office.database) if is_root else None,
        lag=await visit.office.lag() if is_root else None,
        expiries=[
            (one, (one.not_after - now).total_seconds())
            for one in (visit.office.expiries() if is_root else ())
            if one.not_after < now + _SOON
        ],
    )


def bars(counts: list[int]) -> list[dict[str, Any]]:
    """Return rectangles of a small chart, which has a place of 20 by 60 for each."""
    greatest = max(*counts, 1)
    found: list[dict[str, Any]] = []
    for nth, count in enumerate(counts):
        height = max(round(_HEIGHT * count / greatest), 1 if count else 0)
        found.append({"x": nth * _BAR + 2, "y": _HEIGHT - height, "height": height, "count": count})
    return found


def _age(now: Any, then: Any) -> float | None:  # noqa: ANN401 - times or none
    return None if then is None else (now - then).total_seconds()


DOORS = (Door("GET", "/", show),)
