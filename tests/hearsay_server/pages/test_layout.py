"""Every page fits a telephone, a tablet and a desk, in Chromium, and runs without an error."""

from typing import Any

import pytest
from every_page import ADMIN, ANALYST, NOBODY, Filled
from visiting import Browser

pytestmark = pytest.mark.slow

CUT = """() => {
  const wide = document.documentElement.clientWidth;
  const found = [];
  const told = (each) => `${each.tagName} "${each.textContent.trim().slice(0, 40)}"`;
  if (document.documentElement.scrollWidth > wide)
    found.push(`the page scrolls to ${document.documentElement.scrollWidth} of ${wide}`);
  const scrolls = (each) => {
    for (let box = each; box && box !== document.body; box = box.parentElement)
      if (["auto", "scroll"].includes(getComputedStyle(box).overflowX)) return true;
    return false;
  };
  for (const each of document.body.querySelectorAll("*")) {
    const text = [...each.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
    const box = each.getBoundingClientRect();
    if (!text || !box.width || !box.height) continue;
    if (each.closest(".skip, .unseen, caption, script")) continue;
    const svg = each.closest("svg");
    if (svg) {
      const whole = svg.getBoundingClientRect();
      if (box.left < whole.left - 1 || box.right > whole.right + 1 || box.top < whole.top - 1
          || box.bottom > whole.bottom + 1) found.push(`outside its chart: ${told(each)}`);
    } else if ((box.left < -1 || box.right > wide + 1) && !scrolls(each))
      found.push(`outside the page: ${told(each)}`);
    else if (["hidden", "clip"].includes(getComputedStyle(each).overflowX)
             && each.scrollWidth > each.clientWidth + 1) found.push(`cut: ${told(each)}`);
  }
  return found;
}"""


@pytest.mark.parametrize("width", [390, 800, 1280])
@pytest.mark.parametrize("role", [NOBODY, ADMIN, ANALYST])
def test_nothing_is_cut_and_the_page_does_not_scroll_sideways(
    filled: Filled, browser: Browser, role: str, width: int
) -> None:
    cut: dict[str, Any] = {}
    for shown, page in filled.opened(browser, role, width):
        if found := page.evaluate(CUT):
            cut[shown.name] = found
    assert cut == {}
