"""Each page says all that it has to say in a browser that runs no JavaScript."""

from typing import Any

import pytest
from every_page import ADMIN, ANALYST, NOBODY, Filled
from visiting import Browser

pytestmark = pytest.mark.slow

TABLES = "() => [...document.querySelectorAll('main table:not(#tried *)')].map((t) => t.innerText)"
PICTURES = "() => [...document.images].map((each) => each.complete && each.naturalWidth)"


@pytest.mark.parametrize("role", [NOBODY, ADMIN, ANALYST])
def test_a_page_has_its_tables_pictures_and_forms_without_scripts(
    filled: Filled, browser: Browser, role: str
) -> None:
    site = filled.sites[role]
    plain = browser.open(site, "/", java_script_enabled=False)
    for shown, whole in filled.opened(browser, role, alike=False):
        if shown.act is not None:
            continue
        plain.goto(site.origin + filled.path(shown))
        assert plain.locator("h1").count() == 1, shown
        tables: Any = plain.evaluate(TABLES)
        if not shown.path.startswith("/operator"):  # whose figures are of now
            assert tables == whole.evaluate(TABLES), shown
        charts = whole.locator("figure.chart[data-numbers] svg").count()
        pictures = plain.evaluate(PICTURES)
        # What the crowd says is public, and a public picture would cost a process to draw.
        assert all(pictures) and bool(pictures) == bool(charts and shown.role), shown
    assert plain.get_by_role("link", name="Hearsay").is_visible()


def test_forms_work_without_scripts(filled: Filled, browser: Browser) -> None:
    page = browser.open(filled.sites[ADMIN], "/operator/tokens", java_script_enabled=False)
    page.fill("#label", "a tablet")
    page.click("main button")
    assert page.inner_text("#secret").strip()
    page.goto(filled.sites[ADMIN].origin + "/planner")
    page.fill("#text", "no TOML")
    page.click("main button")
    assert page.locator("[role=alert]").is_visible()
    browser.forget("status of 400")
    page = browser.open(
        filled.sites[ANALYST],
        "/analyst/commute/estimate?attribute=how",
        java_script_enabled=False,
    )
    page.click("form.ask summary")
    page.fill("form.ask [name=confidence]", "0.8")
    page.click("form.ask button")
    assert "80% interval" in page.inner_text("main")
