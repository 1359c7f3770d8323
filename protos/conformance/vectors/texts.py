"""Vectors of texts: what those of a plan may have, and which value an answer is."""

from typing import Any

from hearsay.plans.kinds import Categorical
from hearsay.plans.texts import check_text
from ldp import InvalidInput
from vectors.notation import double

Case = dict[str, Any]

_TEXTS = (
    # Letters and marks; NFC.
    *(
        "",
        "caf\u00e9",
        "cafe\u0301",
        "\u212b",
        "\u0958",
        "a\u0323\u0307",
        "a\u0307\u0323",
        "\uac00",
    ),
    # Unicode 14, noncharacters, what is newer.
    *("\u0378", "\ufdd0", "\ufdef", "\ufffe", "\U0001fffe", "\U0010ffff", "\ufff0", "\U0001fae0"),
    *("\U0001fae8", "\U0001fadf", "\u1c89", "\ua7cb", "\U00011f00", "\u20c0", "\u20c1", "\ufffd"),
    # Nothing to see.
    *("\x7f", "\xad", "\u200b", "\u2060", "\u2028", "\ue000", "\xa0", "\u3000", "\u3164", "\u115f"),
    *(
        "a\u200eb",
        "\ufeffa",
        "a\u034fb",
        "\u2800",
        "\U0001d159",
        "\ud83d",
        "a\ufe00",
        "a\U000e0100",
    ),
    # U+200C between letters that would join, and behind a virama.
    *("می\u200cخواهم", "خانه\u200cها", "نامه\u200cای", "بَ\u200cَب", "ܒ\u200cܒ", "𞤀\u200c𞤀"),
    *(
        "م\u200c",
        "\u200cم",
        "ر\u200cم",
        "م\u200cء",
        "م\u200c\u200cم",
        "م\u200c م",
        "م\u200cܒ",
        "a\u200cb",
    ),
    *("क्\u200cष", "க்\u200cஷ", "क\u200cष", "क्\u200c", "क्\u200cক", "क\u200c्ष", "\u094d\u200cष"),
    *("क़्\u200cष", "क्\u200cि", "カ\u200cカ", "ᠠ\u200cᠠ"),
    # U+200D behind a virama.
    *("ශ්\u200dරී", "ക്\u200dഷ", "ന്\u200d", "क्\u200dष", "क\u200dष", "क्\u200dि", "क्\u200dु", "م\u200dم"),
    # Emoji.
    *(
        "👨\u200d👩\u200d👧",
        "👩🏽\u200d⚕️",
        "👩\u200d⚕",
        "🏳️\u200d🌈",
        "🏴\u200d☠️",
        "❤️\u200d🔥",
        "🐻\u200d❄️",
    ),
    *(
        "👩🏿\u200d🤝\u200d👨🏻",
        "👩\u200d❤️\u200d💋\u200d👩",
        "🕵🏽\u200d♂️",
        "🧑\u200d🎄",
        "🫱🏻\u200d🫲🏿",
        "👁️\u200d🗨️",
    ),
    *(
        "👨\u200d👨",
        "👍\u200d👍",
        "👨\u200d",
        "\u200d👨",
        "👨\u200d👩\u200d👧\u200d",
        "a\u200d👩",
        "🐦\u200d⬛",
    ),
    *(
        "👨\u200d👩\u200d👧👨\u200d👧",
        "👨\u200d👩\u200d👧 \u200d",
        "👨\u200c👩",
        "👩\u200d👨\u200d👧",
    ),
    *("❤️", "⭐️", "👍️", "1️⃣", "#️⃣", "1️", "a️", "❤️️", "️❤", "😀️", "❤︎", "☝🏽", "🇫🇷"),
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
)

_NUMBERS = (
    *(3.0, -3.0, 0.0, -0.0, 3.5, 0.1, 1 / 3, 1e-6, 9.9e-7, 1e-7, 2.0**53, 2.0**62, 2.0**63, 1e21),
    *(float("inf"), float("nan"), 123456.789, -0.25, 4503599627370495.5),
)
_VALUES = (
    *("3", "-3", "0", "3.5", "0.1", "0.3333333333333333", "0.000001", "0.00000099", "1e-7"),
    *("9007199254740992", "4611686018427387904", "9223372036854775808", "1e21", "Infinity", "nan"),
    *("123456.789", "-0.25", "4503599627370495.5", "caf\u00e9", "\u0663", "\u1ea1\u0307"),
    *("می\u200cخواهم", "❤️", "1"),
)
_ANSWERS = (
    *("3", "3.0", "3 ", "\uff13", "\u0664", "\u0663", "caf\u00e9", "cafe\u0301", "CAFE\u0301"),
    *("a\u0323\u0307", "a\u0307\u0323", "می\u200cخواهم", "میخواهم", "❤️", "❤", "\ud83d", "", "1e-7"),
)

_ALIKE = (
    *(("می\u200cخواهم", "میخواهم"), ("❤️", "❤"), ("👨\u200d👩\u200d👧", "👨👩👧")),
    *(("क्\u200cष", "क्\u200dष"), ("b", "क्ष", "a", "क्\u200dष")),
)


def texts() -> dict[str, list[Case]]:
    """Return texts.json."""
    domain = Categorical(_VALUES)
    answers: list[tuple[Any, object]] = [(list(map(ord, text)), text) for text in _ANSWERS]
    answers += [(double(number), number) for number in _NUMBERS]
    return {
        "texts": [[list(map(ord, text)), _is_taken(text)] for text in _TEXTS],
        "answers": [
            {
                "values": [list(map(ord, value)) for value in _VALUES],
                "answers": [[shown, _place(domain, answer)] for shown, answer in answers],
            }
        ],
        "alike": [[list(map(ord, value)) for value in values] for values in _ALIKE],
    }


def _is_taken(text: str) -> bool:
    try:
        check_text("text", text)
    except InvalidInput:
        return False
    return True


def _place(domain: Categorical, answer: object) -> int | None:
    try:
        return domain.encode(answer)
    except InvalidInput:
        return None
