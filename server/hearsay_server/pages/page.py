"""A page: its address, who may see it, and the function that answers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.responses import Response

from hearsay_server.pages.visit import Visit
from hearsay_server.serving.auth import ANALYSTS, OPERATORS, PLANNERS

PUBLIC = ""
"""Everybody may see the page."""

AWAY = "the database cannot be used now, as where its disk is full"
"""What is wrong where a page fails by no fault of its own."""

__all__ = ["ANALYSTS", "AWAY", "OPERATORS", "PLANNERS", "PUBLIC", "Page"]


@dataclass(frozen=True)
class Page:
    """What is at an address, for GET, or with `posts` for POST.

    `who` is `OPERATORS`, `ANALYSTS`, `PLANNERS` or `PUBLIC`; `largest` bounds a posted body. What
    `asks` alone changes nothing: programs may post to it, which come without a browser's headers.
    """

    address: str
    who: str
    answer: Callable[[Visit], Awaitable[Response]]
    posts: bool = False
    largest: int = 64 << 10
    asks: bool = False
