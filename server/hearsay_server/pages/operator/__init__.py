"""The operator's pages."""

from starlette.responses import Response

from hearsay_server.pages.page import OPERATORS, Page
from hearsay_server.pages.visit import Visit


async def _overview(visit: Visit) -> Response:
    return visit.page("operator/overview.html")


PAGES = (Page("/operator", OPERATORS, _overview),)
