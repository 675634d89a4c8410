"""Attestors: which there are, what they did in the last hour, and the anchors that this process can read."""

from starlette.responses import Response

from watchword.handlers.operators.overview import attestor_rates
from watchword.streams.console.api.whole import OfTenant
from watchword.streams.console.site import Door
from watchword.streams.console.visit import Visit


async def show(visit: Visit) -> Response:
    """The page."""
    given = OfTenant.model_validate(visit.query)
    tenant = visit.access.narrowed(given.tenant)
    rates = await attestor_rates(visit.office.database, tenant)
    installed = list(visit.office.attestors())
    known = {row["id"] for row in installed}
    elsewhere = [name for name in rates if name not in known and name not in {"join", "renew"}]
    return visit.page(
        "attestors.html",
        title="Attestors",
        rows=installed,
        rates=rates,
        elsewhere=elsewhere,
        expiries=visit.office.expiries() if visit.access.is_root else None,
    )


DOORS = (Door("GET", "/attestors", show),)
