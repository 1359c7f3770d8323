"""axe-core finds no fault of contrast, names or structure on any page, light and dark."""

import os
from pathlib import Path
from typing import Any

import pytest
from every_page import ADMIN, ANALYST, NOBODY, Filled
from visiting import Browser

pytestmark = pytest.mark.slow

AXE = Path(__file__).parents[3] / "client/web/node_modules/axe-core/axe.min.js"

FAULTS = """async (only) => {
  const options = only ? {runOnly: only} : {};
  const found = await axe.run(document, {...options, resultTypes: ["violations"]});
  return found.violations.map((each) => `${each.id}: ${each.nodes.slice(0, 3).map(
    (node) => `${node.html.slice(0, 120)} (${node.failureSummary.slice(0, 200)})`).join("; ")}`);
}"""


@pytest.mark.parametrize("role", [NOBODY, ADMIN, ANALYST])
def test_axe_finds_no_fault_of_a_page_and_none_of_contrast_when_dark(
    filled: Filled, browser: Browser, role: str
) -> None:
    if not AXE.exists():
        assert not os.environ.get("CI"), "axe-core is not installed, and CI installs it"
        pytest.skip("axe-core is not installed: npm --prefix client/web ci")
    axe = AXE.read_text()
    faults: dict[str, Any] = {}
    for shown, page in filled.opened(browser, role, color_scheme="light"):
        page.evaluate(axe)
        if found := page.evaluate(FAULTS, None):
            faults[shown.name] = found
        page.emulate_media(color_scheme="dark")
        if found := page.evaluate(FAULTS, ["color-contrast"]):
            faults[f"{shown.name}, dark"] = found
        page.emulate_media(color_scheme="light")
    assert not faults, "\n".join(f"{name}: {found}" for name, found in faults.items())
