"""The page before registration."""

import json
import re
from html import unescape

import pytest
from visiting import Answer, Browser, Site

from support import SURVEY

Guarded = tuple[Site, dict[str, str]]

TABLE = "id,How?,age\n" + "".join(f"{n},{'ab'[n % 2]},{n % 40}\n" for n in range(200))
_BOUNDARY = "a-boundary-of-parts"


def plan(
    site: Site, text: str = "", users: str = "1000", file: tuple[str, bytes] = ("", b"")
) -> Answer:
    """Post the planner's form as a browser does."""
    parts = [
        f'name="text"\r\n\r\n{text}'.encode(),
        f'name="users"\r\n\r\n{users}'.encode(),
        f'name="file"; filename="{file[0]}"\r\ncontent-type: text/csv\r\n\r\n'.encode() + file[1],
    ]
    between = f"--{_BOUNDARY}\r\ncontent-disposition: form-data; ".encode()
    body = b"".join(between + part + b"\r\n" for part in parts) + f"--{_BOUNDARY}--\r\n".encode()
    headers = {
        "origin": site.origin,
        "content-type": f"multipart/form-data; boundary={_BOUNDARY}",
    }
    return site.ask("/planner", body, headers | ({"cookie": site.cookie} if site.cookie else {}))


def test_a_survey_is_planned(site: Site) -> None:
    answer = plan(site, SURVEY)
    html = answer.body.decode()
    assert answer.status == 200, html
    for told in (
        "every value from every other, by epsilon",
        "The smallest share that will be visible",
        "30,000 people",
        "epsilon 0.5",
        'budget = "auto" would make errors',
    ):
        assert told in unescape(html)
