"""A survey with a page, for the tests of pages."""

import time

from serving import create
from visiting import Site

SURVEY = """
name = "{name}"
title = "How people come to work"
period = "P1D"
default_level = "standard"
[levels]
strict = 0.5
standard = 2.0
[[attributes]]
name = "late"
title = "Were <i>you</i> late?"
categorical = {{ values = ["no", "yes"] }}
[[attributes]]
name = "minutes"
numeric = {{ low = 0, high = 120, clamp = true }}
"""


def register(site: Site, name: str, page: str = "", token: str | None = None) -> None:
    """Register a survey, and wait until its page is there, if it has one."""
    create(site.grpc, SURVEY.format(name=name) + (f"[page]\n{page}\n" if page else ""), token)
    while page and site.get(f"/asked/{name}").status == 404:
        time.sleep(0.05)
