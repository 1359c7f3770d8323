"""Titles, values and labels that hold markup or turn the direction of text are text."""

from typing import Any

import pytest
from every_page import ADMIN, ANALYST, LABEL, MARKUP, NOBODY, Filled
from visiting import Browser

from hearsay_server.pages.words import shown as seen

pytestmark = pytest.mark.slow

FOREIGN = """() => [...document.querySelectorAll("main img, [onmouseover], [onerror],"
  + " main script:not([type='application/json']), head script:not([src^='/static/'])")]
  .map((each) => each.outerHTML)"""


def _hover(page: Any) -> None:
    for each in page.locator("main bdi").all()[:20]:
        if each.is_visible():
            each.hover(force=True)


@pytest.mark.parametrize(
    ("role", "path", "held"),
    [
        (NOBODY, "/asked", MARKUP),
        (NOBODY, "/asked/hostile", MARKUP),
        (ADMIN, "/operator", MARKUP),
        (ADMIN, "/operator/surveys/hostile", MARKUP),
        (ADMIN, "/operator/surveys/hostile/delete", MARKUP),
        (ADMIN, "/operator/tokens", seen(LABEL)),
        (ADMIN, "/operator/audit", seen(LABEL)),
        (ANALYST, "/analyst", MARKUP),
        (ANALYST, "/analyst/hostile", MARKUP),
        (ANALYST, "/analyst/hostile/estimate?attribute=what", MARKUP),
        (ANALYST, "/analyst/hostile/by?attribute=what&by=level", MARKUP),
        (ANALYST, "/analyst/hostile/estimate?attribute=%3Cscript%3Ealert(4)%3C/script%3E", ""),
    ],
)
def test_what_others_chose_is_text(
    filled: Filled, browser: Browser, role: str, path: str, held: str
) -> None:
    page = browser.open(filled.sites[role])
    said: list[str] = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    page.goto(filled.sites[role].origin + path)
    page.wait_for_load_state("networkidle")
    text = page.locator("main").text_content()
    assert held in text and not set(text) & set("\u202e\u2066\u0007\x1b")
    _hover(page)
    assert (said, page.evaluate(FOREIGN)) == ([], [])
    if not held:  # no attribute has this name
        browser.forget("status of 404")


def test_hostile_values_are_tried_as_text(filled: Filled, browser: Browser) -> None:
    page = browser.open(filled.sites[NOBODY], "/asked/hostile")
    page.wait_for_selector("html[data-tryable]")
    page.check("#try-form [name=what] >> nth=0")
    for button in ("text=See what would leave", "#try-many"):
        page.click(button)
        page.locator("#tried h3").first.wait_for()
        assert MARKUP in page.inner_text("#tried")
    assert page.evaluate(FOREIGN) == []
