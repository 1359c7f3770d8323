"""The texts of a survey: two that differ must look different to people."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

from hearsay.plans.joiners import misplaced, unseen, without_joiners
from hearsay.v1 import survey_pb2
from ldp import InvalidInput

_REFUSED = {
    "Cc": "a control character",
    "Cf": "a format character",
    "Cn": "a code point that is not assigned in Unicode 14",
    "Co": "a private-use character",
    "Cs": "a surrogate",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
    "Zs": "a space other than U+0020",
}

_MOST_MARKS = 30
"""The most combining marks in a row, those of Unicode's Stream-Safe Text Format (UAX #15): no word
needs more, and the time to normalise them grows with their square."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


def check_name(place: str, name: str) -> None:
    """Raise `InvalidInput` for what is no name of a survey, a level, an attribute or a training."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f'{place}: expected a lower-case letter, then letters, digits or "_", '
            f"at most 64 in all, got {name!r}"
        )


def check_texts(survey: survey_pb2.Survey) -> None:
    """Raise `InvalidInput`, naming the place, for text that another text can look exactly like."""
    for place, name in _names(survey):
        check_text(place, name)
        if name != without_joiners(name):
            raise InvalidInput(
                f"{place}: {name!r} contains an invisible character, which no name may have"
            )
    for place, text in _words(survey):
        check_text(place, text)


def _names(survey: survey_pb2.Survey) -> Iterator[tuple[str, str]]:
    """Yield each name that an operator writes, and each alphabet, after its place in the survey."""
    yield "name", survey.name
    yield "budget", survey.budget
    for level in survey.levels:
        yield "levels", level
    yield "two_servers: helper", survey.two_servers.helper
    for position, attribute in enumerate(survey.attributes):
        place = f"attributes[{position}]"
        yield f"{place}: name", attribute.name
        yield f"{place}: mechanism", attribute.mechanism
        yield f"{place}: alphabet", attribute.strings.alphabet
        for name in attribute.categorical.maps:
            yield f"{place}: maps", name
    for position, each in enumerate(survey.properties):
        yield f"properties[{position}]: name", each.name


def _words(survey: survey_pb2.Survey) -> Iterator[tuple[str, str]]:
    """Yield each title, value, key and candidate, after its place in the survey."""
    yield "title", survey.title
    for position, attribute in enumerate(survey.attributes):
        place = f"attributes[{position}]"
        yield f"{place}: title", attribute.title
        for value in attribute.categorical.values:
            yield f"{place}: values", value
        for name in attribute.categorical.classes:
            yield f"{place}: classes", name
        for value in attribute.set.values:
            yield f"{place}: values", value
        for key in attribute.ratings.keys:
            yield f"{place}: keys", key
        for word in attribute.strings.candidates:
            yield f"{place}: candidates", word
    for position, each in enumerate(survey.properties):
        place = f"properties[{position}]"
        yield f"{place}: title", each.title
        for value in each.values:
            yield f"{place}: values", value


def check_text(place: str, text: str) -> None:
    """Raise `InvalidInput` for text that another text can look exactly like."""
    if text.startswith(" ") or text.endswith(" ") or "  " in text:
        raise InvalidInput(
            f"{place}: {text!r} has a space at its beginning or end, or two in a row: "
            "expected single spaces between words"
        )
    if text.isascii() and text.isprintable():
        return
    found = unseen().search(text)
    if found is not None:
        raise InvalidInput(
            f"{place}: {text!r} contains U+{ord(found[0]):04X}, {_why(found[0])}: "
            "expected characters that can be seen"
        )
    if _is_heaped(text):
        raise InvalidInput(
            f"{place}: {text[:40]!r}... has more than {_MOST_MARKS} combining marks in a row"
        )
    composed = normal(text)
    if composed != text:
        pairs = zip(text, composed, strict=False)
        code = next((ord(mine) for mine, other in pairs if mine != other), ord(text[-1]))
        raise InvalidInput(
            f"{place}: {text!r} is not in Unicode's normal form NFC: U+{code:04X} is not expected, "
            "or not in this place"
        )
    at = misplaced(text)
    if at is not None:
        raise InvalidInput(
            f"{place}: {text!r} contains U+{ord(text[at]):04X}, an invisible character, where "
            "it changes nothing: expected characters that can be seen"
        )


def check_differ(what: str, names: Sequence[str]) -> None:
    """Raise `InvalidInput`, naming one, where two names are the same, or but for joiners."""
    if len(set(names)) < len(names):
        (twice, _), *_ = Counter(names).most_common(1)
        raise InvalidInput(f"{what} must differ, got {twice!r} twice")
    seen = list(map(without_joiners, names))
    if len(set(seen)) < len(seen):
        (twice, _), *_ = Counter(seen).most_common(1)
        alike = [name for name in names if without_joiners(name) == twice]
        raise InvalidInput(
            f"{what} must look different, got {alike[0]!r} and {alike[1]!r}, which differ by "
            "invisible characters alone"
        )


def _why(character: str) -> str:
    """Say why no text may have a character."""
    unseen = "an invisible character, or one that is newer than Unicode 14"
    return _REFUSED.get(unicodedata.category(character), unseen)


def normal(text: str) -> str:
    """Return a text as plans have it, in Unicode's normal form NFC, for comparison with one.

    It is the same by every version of Unicode from 14 on, as plans have characters of Unicode 14
    alone. A text with more than 30 combining marks in a row is returned as it is: no plan has one.
    """
    return text if _is_heaped(text) else unicodedata.normalize("NFC", text)


def _is_heaped(text: str) -> bool:
    """Whether a text has more combining marks in a row than any word."""
    if text.isascii():
        return False
    marks = 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character)[0] == "M" else 0
        if marks > _MOST_MARKS:
            return True
    return False
