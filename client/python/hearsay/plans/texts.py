"""The texts of a survey: two that differ must look different to people."""

import re
import unicodedata
from collections.abc import Iterator

from hearsay.v1 import survey_pb2
from ldp import InvalidInput

_REFUSED_CATEGORIES = {
    "Cc": "a control character",
    "Cf": "a format character",
    "Co": "a private-use character",
    "Cs": "a surrogate",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
    "Zs": "a space other than U+0020",
}

_INVISIBLE = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2065, 0x2065),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1D159, 0x1D159),
    (0xE0000, 0xE0FFF),
)
"""Code points of other categories that show nothing by themselves: Default_Ignorable_Code_Point of
the Unicode character database, DerivedCoreProperties.txt, the empty pattern of Braille and the null
notehead."""

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
    for place, text in _texts(survey):
        check_text(place, text)


def _texts(survey: survey_pb2.Survey) -> Iterator[tuple[str, str]]:
    """Yield each text that an operator writes, after its place in the survey."""
    yield "name", survey.name
    yield "title", survey.title
    yield "budget", survey.budget
    for level in survey.levels:
        yield "levels", level
    yield "two_servers: helper", survey.two_servers.helper
    for position, attribute in enumerate(survey.attributes):
        place = f"attributes[{position}]"
        yield f"{place}: name", attribute.name
        yield f"{place}: title", attribute.title
        yield f"{place}: mechanism", attribute.mechanism
        for value in attribute.categorical.values:
            yield f"{place}: values", value
        for name in attribute.categorical.classes:
            yield f"{place}: classes", name
        for value in attribute.set.values:
            yield f"{place}: values", value
        for key in attribute.ratings.keys:
            yield f"{place}: keys", key
        yield f"{place}: alphabet", attribute.strings.alphabet
        for word in attribute.strings.candidates:
            yield f"{place}: candidates", word
        for name in attribute.categorical.maps:
            yield f"{place}: maps", name
    for position, each in enumerate(survey.properties):
        place = f"properties[{position}]"
        yield f"{place}: name", each.name
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
    for character in text:
        if character == " ":
            continue
        code = ord(character)
        kind = _REFUSED_CATEGORIES.get(unicodedata.category(character))
        if kind is None and any(first <= code <= last for first, last in _INVISIBLE):
            kind = "an invisible character"
        if kind is not None:
            raise InvalidInput(
                f"{place}: {text!r} contains U+{code:04X}, {kind}: "
                "expected characters that can be seen"
            )
    composed = unicodedata.normalize("NFC", text)
    if composed != text:
        pairs = zip(text, composed, strict=False)
        code = next((ord(mine) for mine, other in pairs if mine != other), ord(text[-1]))
        raise InvalidInput(
            f"{place}: {text!r} is not in Unicode's normal form NFC: U+{code:04X} is not expected, "
            "or not in this place"
        )
