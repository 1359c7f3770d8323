"""What the documentation says of the mechanisms is what is there."""

import importlib.util
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from hearsay_server import catalogue
from ldp import mechanisms
from ldp.mechanisms import _IN_PLANS

DOCS = Path(__file__).resolve().parent.parent / "docs"


def rows(page: str) -> dict[str, list[str]]:
    """The cells after the name, of table rows that begin with a name in backticks."""
    found = {}
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        first, *rest = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and first.strip("`") in _IN_PLANS:
            assert first.strip("`") not in found
            found[first.strip("`")] = rest
    return found


@pytest.mark.parametrize("page", ["wire.md", "mechanisms.md"])
def test_every_mechanism_of_a_plan_is_there_with_its_integers(page: str) -> None:
    documented = {name: cells[0].split(", ") for name, cells in rows(page).items()}
    built = {
        name: [f.name for f in fields(getattr(mechanisms, kind)) if f.name != "epsilon"]
        for name, kind in _IN_PLANS.items()
    }
    assert documented == built


def test_every_name_of_a_survey_is_there_with_its_mechanism() -> None:
    made = {name: make(8, 1.0).name for name, make in catalogue.CATEGORICAL.items()}
    made |= {name: make(1.0).name for name, make in catalogue.NUMERIC.items()}
    del made["auto"]
    documented = {
        name: plan_name
        for plan_name, cells in rows("mechanisms.md").items()
        for name in cells[1].partition(" (")[0].split(", ")
        if name
    }
    assert documented == made


def test_the_table_of_choices_is_what_choose_predicts() -> None:
    text = (DOCS / "mechanisms.md").read_text(encoding="utf-8")
    kept = text.partition("<!-- choice -->\n")[2].partition("\n<!-- end -->")[0]
    assert kept == script().table(), "run `python docs/mechanisms.py`"


def script() -> ModuleType:
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("draw_mechanisms", DOCS / "mechanisms.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
