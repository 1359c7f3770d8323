"""Everything on a page can be reached and done by keyboard alone, in Chromium."""

from typing import Any

import pytest
from collected import register
from every_page import ADMIN, ANALYST, NOBODY, PLANNED, Filled
from visiting import Browser

pytestmark = pytest.mark.slow

CONTROLS = """() => {
  const all = "a[href], button, input, select, textarea, summary, [tabindex='0']";
  const found = [...document.querySelectorAll(all)].filter((each) =>
    !each.matches(":disabled") && each.type !== "hidden"
    && each.checkVisibility({visibilityProperty: true}));
  // Of radio buttons that belong together one is reached, and arrows lead to the others.
  window.missing = new Map(found.map((each) =>
    [each, each.type === "radio" ? [each.form, each.name] : null]));
  window.unseen = [];
  document.addEventListener("focusin", ({target}) => {
    const group = window.missing.get(target);
    for (const [each, other] of window.missing)
      if (each === target || (group && other && group.every((part, n) => part === other[n])))
        window.missing.delete(each);
    const style = getComputedStyle(target);
    if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2)
      window.unseen.push(target.outerHTML.slice(0, 120));
  });
  return window.missing.size;
}"""
FROM_THE_TOP = """() => {
  document.body.tabIndex = -1;
  document.body.focus();
  document.body.removeAttribute("tabindex");
}"""
LEFT = "() => [...window.missing.keys()].map((each) => each.outerHTML.slice(0, 120))"


@pytest.mark.parametrize("role", [NOBODY, ADMIN, ANALYST])
def test_the_tab_key_reaches_every_control_and_the_focus_is_seen(
    filled: Filled, browser: Browser, role: str
) -> None:
    faults: dict[str, Any] = {}
    for shown, page in filled.opened(browser, role, alike=False):
        page.evaluate(FROM_THE_TOP)
        for _ in range(page.evaluate(CONTROLS)):
            page.keyboard.press("Tab")
        if found := [*page.evaluate(LEFT), *page.evaluate("() => window.unseen")]:
            faults[shown.name] = found
    assert not faults, "\n".join(f"{name}: {found}" for name, found in faults.items())


def _tab_to(page: Any, selector: str, most: int = 60) -> None:
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("(one) => document.activeElement.matches(one)", selector):
            return
    raise AssertionError(f"the tab key does not reach {selector}")


def test_somebody_signs_in_closes_a_survey_and_signs_out(filled: Filled, browser: Browser) -> None:
    register(filled.sites[NOBODY].grpc, PLANNED, filled.tokens[ADMIN])
    page = browser.open(filled.sites[NOBODY], "/operator/surveys/planned/close")
    _tab_to(page, "#token")
    page.keyboard.type(filled.tokens[ADMIN])
    page.keyboard.press("Enter")
    page.wait_for_url("**/close")
    _tab_to(page, "#sure")
    page.keyboard.press("Space")
    _tab_to(page, "main button")
    page.keyboard.press("Enter")
    page.wait_for_url("**/operator/surveys/planned")
    assert "closed" in page.inner_text("main").lower()
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.matches('.skip')")
    _tab_to(page, ".top form button")
    page.keyboard.press("Enter")
    page.wait_for_selector("a[href='/sign-in']")


def test_somebody_chooses_a_level_and_tries_it(filled: Filled, browser: Browser) -> None:
    page = browser.open(filled.sites[NOBODY], "/asked/commute")
    page.wait_for_selector("html[data-tryable]")
    _tab_to(page, "#level")
    page.keyboard.press("ArrowLeft")
    assert page.is_visible("#level-strict")
    _tab_to(page, "#try-form [name=how]")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("#tried li")
    _tab_to(page, "#try-many")
    page.keyboard.press("Space")
    page.locator("#tried h3", has_text="100 people").wait_for()
