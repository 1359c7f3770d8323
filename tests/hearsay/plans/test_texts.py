"""What the texts of a plan may have: one table of Unicode 14, and joiners where they belong."""

import re
import unicodedata
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from hearsay import InvalidInput
from hearsay.plans import unicode14
from hearsay.plans.joiners import _emoji, unseen
from hearsay.plans.kinds import Categorical, Ratings, SetOf
from hearsay.plans.kinds.words import Strings
from hearsay.plans.properties import Properties, Property
from hearsay.plans.texts import check_differ, check_text, normal

ROOT = Path(__file__).resolve().parents[3]
NFC, NFD = "caf\u00e9", "cafe\u0301"
SINCE_14 = unicodedata.unidata_version != "14.0.0"


def test_both_sdks_ship_the_same_table() -> None:
    web = (ROOT / "client/web/src/plans/unicode14.ts").read_text(encoding="utf-8")
    found = dict(re.findall(r"export const ([A-Z]+) = `\\\n(.*?)`;", web, re.DOTALL))
    assert found == {name: getattr(unicode14, name) for name in vars(unicode14) if name.isupper()}
    assert set(found) == {"SEEN", "KINDS", "EMOJI", "PRESENTED"}


@pytest.mark.skipif(SINCE_14, reason="this Python has another version of Unicode than 14")
def test_the_table_has_what_unicode_14_assigns_and_can_be_seen() -> None:
    hidden = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
    ignorable = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x3164, 0xFFA0}
    ignorable |= {0x2800, 0x1D159, *range(0xFE00, 0xFE0F), *range(0xE0000, 0xE1000)}
    taken = {code for code in range(0x110000) if not unseen().match(chr(code))}
    assert taken == {0x20, 0x200C, 0x200D, 0xFE0F} | {
        code
        for code in range(0x110000)
        if unicodedata.category(chr(code)) not in hidden and code not in ignorable
    } - {0x2065}


def test_there_are_the_225_emoji_of_several_that_unicode_14_has() -> None:
    assert len(_emoji()) == 225
    for each in _emoji():
        check_text("title", each)
        with pytest.raises(InvalidInput, match=r"U\+200D, an invisible character, where"):
            check_text("title", f"{each}\u200d{each}")


@pytest.mark.parametrize("code", [0xFDD0, 0xFFFF, 0x1FFFE, 0x10FFFF, 0x0378, 0x1FAE8, 0x1C89])
def test_what_unicode_14_does_not_assign_is_refused(code: int) -> None:
    with pytest.raises(InvalidInput, match=rf"^title: .* U\+{code:04X}, "):
        check_text("title", f"A {chr(code)} title")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("می\u200cخواهم", "میخواهم"),
        ("\u2764\ufe0f", "\u2764"),
        ("👨\u200d👧", "👨👧"),
        ("क्\u200cष", "क्\u200dष"),
    ],
)
def test_two_names_that_differ_by_joiners_alone_are_refused(one: str, other: str) -> None:
    for make in (
        lambda: Categorical(("x", one, other)),
        lambda: SetOf((one, "x", other)),
        lambda: Ratings((one, other), 1, 5),
        lambda: Property("os", "", (one, other)),
        lambda: check_differ("values", (other, one)),
    ):
        with pytest.raises(InvalidInput, match=r"must look different, got .* invisible characters"):
            make()


def test_answers_are_compared_in_normal_form() -> None:
    assert normal(NFD) == NFC
    assert Categorical(("x", NFC)).encode(NFD) == 1
    assert SetOf(("x", NFC)).encode([NFD, NFC]) == (1,)
    ((key, _),) = Ratings(("x", NFC), 1, 5).encode({NFD: 3})
    assert key == 1
    with pytest.raises(InvalidInput, match="once at most"):
        Ratings(("x", NFC), 1, 5).encode({NFD: 3, NFC: 3})
    declared = Properties((Property("city", "", (NFC, "x")),))
    assert declared.checked({"city": NFD}) == (NFC,)
    assert declared.undeclared({"city": NFD}) == []
    declared.check("city", NFD)
    assert declared.groups({"city": [NFD]}) == declared.groups({"city": [NFC]})


@pytest.mark.parametrize(
    "three",
    [
        *(3, 3.0, np.int8(3), np.uint64(3), np.float16(3), np.float32(3), np.float64(3)),
        *(Decimal("3.00"), Decimal(3), Fraction(3)),
    ],
)
def test_a_whole_number_stands_for_the_value_that_spells_it(three: object) -> None:
    domain = Categorical(("1", "2", "3", "4", "5"))
    assert domain.encode(three) == 2
    assert SetOf(domain.values).encode([three]) == (2,)
    assert [key for key, _ in Ratings(domain.values, 1, 5).encode({three: 1})] == [2]


@pytest.mark.parametrize(
    ("number", "value"),
    [(0.5, "0.5"), (np.float32(0.1), "0.1"), (Decimal("-12.250"), "-12.25"), (-0.0, "0")],
)
def test_other_numbers_stand_for_their_shortest_digits(number: object, value: str) -> None:
    assert Categorical(("x", value)).encode(number) == 1


@pytest.mark.parametrize(
    "answer",
    [
        *(True, np.True_, np.timedelta64(3), np.timedelta64("NaT"), "3.0", "3 "),
        *("\u0663", "\uff13", 3.1, 3j, float("nan"), float("inf")),
        *(b"3", Decimal("nan"), Decimal("snan"), Decimal("1e999999"), 10**400, None),
    ],
    ids=repr,
)
def test_what_spells_no_value_is_outside_the_domain(answer: object) -> None:
    with pytest.raises(InvalidInput, match="must be one of 1, 2, 3, got another"):
        Categorical(("1", "2", "3")).encode(answer)


def test_digits_of_another_script_are_a_value_of_their_own() -> None:
    domain = Categorical(("3", "\u0663"))
    assert [domain.encode(each) for each in ("3", "\u0663", 3)] == [0, 1, 0]


HEAP = "a" + "\u0301\u0327" * (1 << 18)
"""Marks that take minutes to bring into their order."""


@pytest.mark.parametrize("mark", ["\u0301\u0327", "\u0f73"])
def test_a_heap_of_marks_is_refused_before_it_is_normalised(mark: str) -> None:
    check_text("title", "\u00e1" + "\u0301" * 30)
    with pytest.raises(InvalidInput, match="more than 30 combining marks in a row"):
        check_text("title", "a" + mark * 500_000)


def test_an_answer_that_is_a_heap_of_marks_is_outside_the_domain_at_once() -> None:
    for domain in (Categorical(("a", "b")), Strings("abc", 5)):
        with pytest.raises(InvalidInput):
            domain.encode(HEAP)
