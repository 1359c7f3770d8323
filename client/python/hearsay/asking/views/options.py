"""Options of views, with one name each in commands, addresses and forms."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, urlencode

from hearsay.asking.margins import parsed_margins
from hearsay.asking.selection import Selection
from hearsay.asking.texts import listed, selected
from ldp.errors import InvalidInput

LONGEST = 4000
"""Characters of all options of an address."""


@dataclass(frozen=True)
class Option:
    """An option of a view: its name in the address, and how a form asks for it.

    `kind` is "text", "number", "whole" (a whole number), "pair" (two numbers), "flag", "choice"
    (one of `choices`), or what of the survey there is to choose: "levels", "periods", "period",
    "two periods", "maps", "other" (another attribute), "by", "values" or "parts" (two of the
    reports, which a form suggests). A "table" is the text of a CSV, several times for several, and
    "words" a text with a word in each line: a form has fields for them, and a command takes files.
    `kinds` are the kinds of attributes that have the option, all without any.
    """

    name: str
    label: str
    kind: str = "text"
    choices: tuple[str, ...] = ()
    hint: str = ""
    needed: bool = False
    """Whether there is no question without it: the survey may suggest one (`Survey.completed`)."""
    says: str = ""
    """What a command's help says of it, where that is more than the label."""
    kinds: tuple[str, ...] = ()


FILES = ("table", "words")
"""Kinds of options whose value is a text of several lines."""


class Missing(InvalidInput):
    """An option that a view needs is not given yet."""


class Given:
    """The options of an address, read one by one; empty fields of a form are not given."""

    def __init__(self, pairs: Sequence[tuple[str, str]], known: Sequence[Option]) -> None:
        """Raise `InvalidInput` for an option that the view does not have."""
        names = ["attribute", *(option.name for option in known)]
        if unknown := [name for name, _ in pairs if name not in names]:
            raise InvalidInput(f"this view has no option {unknown[0]!r}, only {', '.join(names)}")
        self._given: dict[str, list[str]] = {}
        texts = {option.name for option in known if option.kind in FILES}
        for name, value in pairs:
            if name in texts:  # a form has CR LF
                value = value.replace("\r\n", "\n").strip("\ufeff\n")
            if value or name == "map":
                self._given.setdefault(name, []).append(value)
        order = {name: number for number, name in enumerate(names)}
        self._given = dict(sorted(self._given.items(), key=lambda item: order[item[0]]))

    @property
    def values(self) -> Mapping[str, Sequence[str]]:
        """All that is given, by name, in the order of the view's options."""
        return self._given

    @property
    def query(self) -> str:
        """The options as an address has them, "" without any."""
        pairs = [(name, value) for name, values in self._given.items() for value in values]
        return f"?{urlencode(pairs, quote_via=quote)}" if pairs else ""

    @property
    def attribute(self) -> str:
        """The attribute that is asked about."""
        return self.needed("attribute", "an attribute of the survey")

    def many(self, name: str) -> list[str]:
        """Return all values of an option."""
        return self._given.get(name, [])

    def one(self, name: str) -> str:
        """Return the only value of an option, "" without one."""
        values = self.many(name)
        if len(values) > 1:
            raise InvalidInput(f"give {name} once, got it {len(values)} times")
        return values[0] if values else ""

    def needed(self, name: str, what: str) -> str:
        """Return the only value of an option; raise `Missing` where it is not given."""
        found = self.one(name)
        if not found:
            raise Missing(f"{name} is needed: {what}")
        return found

    def flag(self, name: str) -> bool:
        """Tell whether a flag is given, whose value is 1; raise `InvalidInput` for another one."""
        text = self.one(name)
        if text not in ("", "1"):
            raise InvalidInput(f"{name} is 1, or is left out, got {text!r}")
        return bool(text)

    def number(self, name: str) -> float | None:
        """Return a number, None without one."""
        text = self.one(name)
        return _number(name, text) if text else None

    def whole(self, name: str) -> int | None:
        """Return a whole number, None without one."""
        text = self.one(name)
        return whole(name, text) if text else None

    def numbers(self, name: str) -> list[float]:
        """Return all numbers of an option."""
        return [_number(name, text) for text in self.many(name)]

    def pair(self, name: str) -> tuple[float, float] | None:
        """Return two numbers, None without any."""
        found = self.numbers(name)
        if len(found) not in (0, 2):
            raise InvalidInput(f"{name} takes two numbers, got {len(found)}")
        return (found[0], found[1]) if found else None

    def listed(self, name: str) -> list[str]:
        """Return the values of a list such as A,B; quotes keep a comma within a value."""
        return listed(name, self.one(name))

    def lines(self, name: str) -> list[str]:
        """Return the lines of a text, without the empty ones; raise `InvalidInput` for no others.

        Without the option, none.
        """
        text = self.one(name)
        found = [line.strip() for line in text.splitlines() if line.strip()]
        if text and not found:
            raise InvalidInput(f"{name} are words, one a line, got none")
        return found

    def selection(self) -> Selection:
        """Return which reports are asked about, with no key that restricts nothing."""
        chosen = selected(
            self.many("level"),
            self.many("period"),
            self.one("from"),
            self.one("to"),
            self.many("map"),
            self.many("where"),
        )
        found = {name: value for name, value in chosen.items() if value}
        return cast(Selection, found)

    def weights(self) -> dict[str, Any]:
        """Return the margins that answers are weighted to, and what goes with them."""
        texts = self.many("margins")
        least = self.whole("least")
        if least is not None and (least < 2 or not texts):
            raise InvalidInput(f"least is a number >= 2, with margins, got {least}")
        if not texts:
            return {}
        named = [(f"margins {number}", text) for number, text in enumerate(texts, 1)]
        found: dict[str, Any] = {"margins": parsed_margins(named)}
        return found if least is None else found | {"least": least}

    def stated(self, **names: str) -> dict[str, Any]:
        """Return the options that are given, by their names in `Analyst`; each names its kind."""
        found: dict[str, Any] = {}
        for name, kind in names.items():
            value = getattr(self, kind)(name)
            if value is not None and value is not False and value != "":  # 0 is given
                found[name] = value
        return found


def whole(name: str, text: str) -> int:
    """Return the whole number that a text says; raise `InvalidInput` for another one."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise InvalidInput(f"{name} must be a whole number from 0 to 999,999,999, got {text!r}")
    return int(text)


def _number(name: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InvalidInput(f"{name} must be a number, got {text!r}")
    return found


LEVEL = Option("level", "Levels", "levels", says="Only reports of this level")
PERIOD = Option("period", "Periods", "periods", says="Only reports of this period")
FROM = Option("from", "From period", "period", says="Only this period and later ones")
TO = Option("to", "To period", "period", says="Only this period and earlier ones")
MAP = Option("map", "Maps", "maps", says='Only people who chose this map, "" for none')
WHERE = Option(
    "where",
    "Where",
    hint="platform=ios; panel=1",
    says="Only devices with one of these values of a public property, PROPERTY=A,B ('' for none "
    "given), or of these panels, panel=1,2",
)
SELECTION = (LEVEL, PERIOD, FROM, TO, MAP, WHERE)

CONFIDENCE = Option(
    "confidence", "Confidence", "number", hint="0.95", says="Of the intervals; 0.95 without it"
)
SIMULTANEOUS = Option("simultaneous", "Intervals for all values at once", "flag")
METHOD = Option(
    "method",
    "Pool levels by",
    "choice",
    ("mle", "gls", "inverse_variance", "scalar"),
    says="How levels are pooled, as if their people answered alike",
)
TOP = Option("top", "Only so many rows, of the largest estimates", "whole")
STEP = Option("step", "Step of the numbers", "number", hint="1 for whole numbers")
INTERVALS = (CONFIDENCE, SIMULTANEOUS)

WEIGHTS = (
    Option(
        "margins",
        "Weight to known shares: CSV of public properties and share, one table in each field",
        "table",
        hint="platform,share\nios,0.31\nandroid,0.69",
        says="Weight public groups to known shares, a CSV of properties and share",
    ),
    Option(
        "least",
        "Join values of them with fewer people",
        "whole",
        hint="10",
        says="Of --margins: join values with fewer people, 2 at least; 10 without it",
    ),
)
"""Of a survey with public properties: known shares of the population."""
