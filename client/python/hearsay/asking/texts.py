"""Options of questions as text, from the command line or an address: what they select."""

import csv
from collections.abc import Sequence

from hearsay.asking.selection import Selection
from hearsay.plans.properties import PANEL
from ldp.errors import InvalidInput


def selected(
    level: Sequence[str] | None,
    period: Sequence[str] | None,
    first: str,
    last: str,
    maps: Sequence[str] | None = None,
    where: Sequence[str] | None = None,
) -> Selection:
    """Return the selection that these options make."""
    values = values_by_property(where or ())
    return Selection(
        levels=level or (),
        periods=period or (),
        first_period=first,
        last_period=last,
        maps=maps or (),
        panels=_panels(values.pop(PANEL, [])),
        where=values,
    )


def values_by_property(where: Sequence[str]) -> dict[str, list[str]]:
    """Return the values that `--where` names, by property; quotes keep a comma within a value.

    Raises `InvalidInput` where it does not read like platform=ios.
    """
    found: dict[str, list[str]] = {}
    for each in where:
        name, given, values = each.partition("=")
        if not name or not given:
            raise InvalidInput(f"where must read like platform=ios or version=1,2, got {each!r}")
        found.setdefault(name, []).extend(listed("where", values) if values else [""])
    return found


def _panels(values: Sequence[str]) -> list[int]:
    wrong = [each for each in values if not (each.isascii() and each.isdigit() and len(each) < 10)]
    if wrong:
        raise InvalidInput(f"a panel is a number from 1 on, got {wrong[0]!r}")
    return [int(value) for value in values]


def listed(name: str, text: str) -> list[str]:
    """Return the values of a list such as A,B; quotes keep a comma within a value.

    Raises `InvalidInput`, after the option's name, for a text of several lines.
    """
    try:
        return next(csv.reader([text])) if text else []
    except (csv.Error, StopIteration):
        raise InvalidInput(f"{name} must read like A,B, got {text!r}") from None


def sets_of(sums: Sequence[str]) -> list[list[str]]:
    """Return the values of each `--sum`."""
    return [listed("sum", text) for text in sums]


def parts(compare: str, chosen: Selection) -> tuple[Selection, Selection]:
    """Return the two selections that `--compare` names, each restricted by the other options."""
    kind, given, names = compare.partition("=")
    named = listed("compare", names) if kind and given else []
    # An empty name stands for those who chose no map, or whose app gave no value.
    if len(named) != 2 or (kind in ("level", "period") and not all(named)):
        raise InvalidInput(
            "compare must read like level=A,B or map=A,B or platform=A,B or period=A,B or "
            f"period=A..B,C..D, got {compare!r}"
        )
    if kind != "period":
        where = chosen.get("where", {})
        twice = {"level": chosen.get("levels"), "map": chosen.get("maps")}.get(kind, kind in where)
        if twice:
            option = kind if kind in ("level", "map") else "where"
            raise InvalidInput(f"give --compare {kind}=A,B or --{option}, not both")
        one, other = (
            Selection(**{**chosen, "levels": [name]})
            if kind == "level"
            else Selection(**{**chosen, "maps": [name]})
            if kind == "map"
            else Selection(**{**chosen, "where": {**where, kind: [name]}})
            for name in named
        )
        return one, other
    if chosen.get("periods") or chosen.get("first_period") or chosen.get("last_period"):
        raise InvalidInput("give --compare period=A,B or --period, --from and --to, not both")
    found = []
    for name in named:
        first, dots, last = name.partition("..")
        ends = {"first_period": first, "last_period": last} if dots else {"periods": [first]}
        found.append(Selection(**{**chosen, **ends}))  # type: ignore[typeddict-item]
    one, other = found
    return one, other
