"""Tests of what all kinds of attributes have, and of the tables that have an entry for each."""

import ast
import runpy
from dataclasses import fields
from pathlib import Path

import pytest

from hearsay.plans.kinds import KINDS, ByKind, Categorical, Kind

ROOT = Path(__file__).parents[3]
MEASURE = runpy.run_path(str(ROOT / "tests/measuring/kinds.py"))

MOST_SITES = 25
"""Places outside the room of the kinds that tell a kind: lower it with each that goes."""


def test_each_kind_has_a_place_in_every_table() -> None:
    assert [kind.name for kind in KINDS] == [field.name for field in fields(ByKind)]
    assert all(issubclass(kind, Kind) for kind in KINDS)


def test_a_table_gives_each_kind_its_own_entry() -> None:
    names = [field.name for field in fields(ByKind)]
    table = ByKind(**{name: name for name in names})
    assert [table[kind] for kind in KINDS] == names
    assert table[Categorical(("yes", "no"))] == "category"


def test_a_table_that_lacks_a_kind_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="grid"):
        ByKind(category=1, number=1, bins=1, set=1, ratings=1, words=1)  # type: ignore[call-arg]


def test_a_table_may_have_one_entry_for_the_other_kinds() -> None:
    table = ByKind.otherwise("refused", number="mean")
    assert [table[kind] for kind in KINDS] == ["refused", "mean", *["refused"] * 5]
    with pytest.raises(TypeError, match="numbers"):
        ByKind.otherwise("refused", numbers="mean")


def test_no_table_lacks_a_kind() -> None:
    """Rooms that are imported late are read here, too."""
    names = {field.name for field in fields(ByKind)}
    for folder in MEASURE["SOURCES"]:
        for file in (ROOT / folder).rglob("*.py"):
            text = file.read_text()
            for node in ast.walk(ast.parse(text if "ByKind(" in text else "")):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ByKind":
                    assert {keyword.arg for keyword in node.keywords} == names, file


@pytest.mark.parametrize(
    ("imported", "code", "places"),
    [
        ("from hearsay.plans.kinds import Binned", "isinstance(d, Binned)", 1),
        ("from hearsay.plans import kinds", "isinstance(d, kinds.Binned)", 1),
        ("from hearsay.plans import kinds as domains", "isinstance(d, domains.Binned)", 1),
        ("from hearsay.plans.kinds import SetOf, Grid", "{SetOf: 1, Grid: 2}.get(type(d), 3)", 1),
        ("from hearsay.plans.kinds import SetOf", "type(d) is SetOf", 1),
        ("from ldp.core.mechanism import Categorical", "isinstance(m, Categorical)", 0),
        (
            "from hearsay.plans import kinds\nfrom ldp.core.mechanism import Categorical",
            "isinstance(m, Categorical)",
            0,
        ),
    ],
)
def test_a_place_is_found_by_the_class_of_a_kind(imported: str, code: str, places: int) -> None:
    assert len(list(MEASURE["_sites"](ast.parse(f"{imported}\n{code}")))) == places


def test_no_more_places_tell_a_kind_than_before() -> None:
    found = MEASURE["sites"]()
    assert len(found) <= MOST_SITES, "\n".join(found)
