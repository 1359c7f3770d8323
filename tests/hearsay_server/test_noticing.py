"""What `hearsay survey init` says of cells that people or programs write in their own way."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hearsay.plans.plan
from hearsay_server.surveys import drafting, explain, fitting, guessing, noticing, people
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.guessing import Guess
from ldp import InvalidInput


def table(cells: list[str]) -> people.People:
    """Return a table of these cells beside a choice of other values."""
    quoted = ('"' + cell.replace('"', '""') + '"' for cell in cells)
    lines = [f"{cell},{'xyz'[row % 3]}" for row, cell in enumerate(quoted)]
    return people.parse("\n".join(["asked,other", *lines]), "data.csv")


def misfits(read: people.People, draft: guessing.Draft) -> set[str]:
    """Return the cells that `survey check` refuses by a draft, which `explain` takes, too."""
    # Splitting takes a tenth of the time of comparing budgets.
    text = drafting.toml(draft).replace('budget = "auto"', 'budget = "split"')
    survey = surveys.from_toml(text, "data.toml")
    plan = hearsay.plans.plan.parse(surveys.resolve(survey))
    explain.explain(survey, "data.toml", 1000)
    return {m.value for column in fitting.fit(plan, read).columns for m in column.misfits}


def guessed(cells: list[str]) -> Guess:
    """Return what cells are taken for; the draft's own check takes all that no note names."""
    read = table(cells)
    draft = guessing.guess(read, "data")
    found = draft.guesses[0]
    assert all(repr(cell) in " ".join(found.noted) for cell in misfits(read, draft))
    return found


AGES = [str(18 + n % 63) for n in range(300)]
WAGES = [str(5 * n + 900 + n % 7) for n in range(400)]


@pytest.mark.parametrize(
    ("cells", "codes"),
    [
        ([*AGES, *["99", "-99"] * 15], "'99', '-99' may be"),
        ([*AGES, *["999"] * 15], "'999' may be"),
        ([*AGES, "-9"], "'-9' may be"),
        ([*AGES, *["97", "98", "99"] * 5], "'97', '98', '99' may be"),
        ([*AGES, *["9999.0"] * 5, "500"], "'9999.0' may be"),
        ([*WAGES, *["99999", "-8"] * 5], "'99999', '-8' may be"),
        ([*"12345" * 20, *"9" * 5], "'9' may be"),
        ([*"12345" * 20, *["99"] * 5], "'99' may be"),
        ([*"01" * 20, *["-1"] * 5], "'-1' may be"),
        (["food=4;staff=2", "food=99;staff=1", "staff=3"] * 9, "'99' may be"),
        (["yes", "no", "-99", "NA", "#N/A"] * 9, "among the values: '-99', 'NA', '#N/A'; remove"),
    ],
    ids=range(11),
)
def test_codes_for_missing_are_named(cells: list[str], codes: str) -> None:
    assert codes in " ".join(guessed(cells).noted)


@pytest.mark.parametrize(
    "cells",
    [
        AGES,
        [str(18 + n % 83) for n in range(300)],
        WAGES,
        [*"123456789" * 20],
        [str(n % 11) for n in range(300)],
        [str(n % 40 - 20) for n in range(300)],
        [*"1237" * 20],
        [f"{n / 7 - 20:.2f}" for n in range(300)],
        [str(n * 1000) for n in range(99)] + ["9999"],
        ["1"] * 20 + ["99"] * 20,
    ],
    ids=range(10),
)
def test_numbers_among_others_are_no_codes(cells: list[str]) -> None:
    assert not any("may be codes" in note for note in guessed(cells).noted)


@pytest.mark.parametrize(
    ("cells", "alike"),
    [
        (["Yes", "yes", "YES ", "No", "no"], ["'Yes', 'yes', 'YES' differ", "'No', 'no' differ"]),
        (["New York", "NewYork", "Rome"], ["'New York', 'NewYork' differ"]),
        (["\uff21", "A", "b"], ["'\uff21', 'A' differ"]),
        (["a\u0663", "a3", "b"], ["'a\u0663', 'a3' differ"]),
        (["straße", "STRASSE", "b"], ["'straße', 'STRASSE' differ"]),
        (["Mail;maps", "mail"], ["'Mail', 'mail' differ"]),
        (["Food=1;food=2", "food=3"], ["'Food', 'food' differ"]),
    ],
    ids=range(7),
)
def test_values_that_look_like_one_are_named(cells: list[str], alike: list[str]) -> None:
    noted = " ".join(guessed(cells * 9).noted)
    assert all(each in noted for each in alike)


@pytest.mark.parametrize(
    "digits",
    ["\u0661\u0662\u0663\u0664\u0665", "\uff11\uff12\uff13", "\u0966\u0967\u0968", "1\u06623"],
)
def test_a_scale_in_digits_of_another_script_has_the_values_of_the_cells(digits: str) -> None:
    found = guessed([*digits] * 9)
    assert found.keys == {"values": [*digits]}
    assert "gives another value than the text" in found.noted[0]


def test_ages_in_digits_of_another_script_are_numbers() -> None:
    digits = str.maketrans("0123456789", "".join(map(chr, range(0x0660, 0x066A))))
    found = guessed([age.translate(digits) for age in AGES])
    assert (found.kind, found.keys["low"], found.keys["high"]) == ("numeric", 15.0, 80.0)


def test_an_accent_of_its_own_is_joined_with_its_letter_and_told() -> None:
    found = guessed(["caf\u00e9", "cafe\u0301", "bar"] * 9)
    assert found.keys == {"values": ["bar", "caf\u00e9"]}
    assert "'caf\u00e9': some cells have an accent as a character of its own" in found.noted[0]
    items = guessed(["caf\u00e9;bar", "cafe\u0301"] * 9)
    assert items.keys["values"] == ["bar", "caf\u00e9"]


@pytest.mark.parametrize(
    "cells",
    [
        [f"{n % 9},5" for n in range(99)],
        [f"{n % 60},{n % 7}" for n in range(300)],
        [f"{n % 60},5" if n % 3 else str(n % 60) for n in range(300)],
        [f"{n % 60} %" for n in range(300)],
        [f"€ {n % 60 * 1000:,}" for n in range(300)],
        [f"{n % 60}\u202f000,50\u00a0€" for n in range(300)],
        [f"${n % 9}" for n in range(99)],
    ],
    ids=range(7),
)
def test_numbers_that_are_written_for_people_are_named(cells: list[str]) -> None:
    found = guessed(cells)
    said = found.why if not found.kind else " ".join(found.noted)
    assert "to ask for a number, write it with a decimal point" in said


LARGEST = "1.7976931348623157e308"


@pytest.mark.parametrize(
    "cells",
    [
        ["1.5", "2.5", LARGEST, f"-{LARGEST}"],
        [LARGEST, f"-{LARGEST}", "0"],
        [LARGEST, "1e308", "1.1e308"],
        ["1e300", "-1e300", "2e299"],
        ["5e-324", "1e-323", "1.5e-323"],
        ["1e-300", "2e-300", "3e-300"],
        ["100000000000000000", "100000000000000016", "100000000000000048"],
        ["1.0000000000000002", "1", "1.0000000000000004"],
        ["900000000000000", "900000000000001", "900000000000039"],
        ["food=1;staff=" + "9" * 400, "food=2"],
        ["1" * 400, "2", "3", "4"],
        ["inf", "-inf", "nan", *(["1.5", "2.5", "3.5"] * 20)],
        ["-0", "1", "2"],
    ],
    ids=range(13),
)
def test_the_ends_of_floats_are_asked_for_or_left_out_with_words(cells: list[str]) -> None:
    found = guessed(cells * 9)
    assert found.kind or "make what is no answer blank" in found.why or "finite" in found.why


CELL = st.one_of(
    st.sampled_from([
        *("", " ", "NA", "yes", "Yes", "YES", "-9", "99", "-99", "999", "1.0", "-0", "01", "1_0"),
        *("3,5", "1 %", "€5", "inf", "nan", "1e999", LARGEST, f"-{LARGEST}", "5e-324", "+1"),
        *("\u0663", "\uff13", "cafe\u0301", "caf\u00e9", "\ufb01", "a=\u0663", "a=1e5", "a=1;A=2"),
        *("mail;Mail", "mail ; maps", ";", "=", "true", "TRUE", "2024-01-01", "a\nb", "\ufeffx"),
    ]),
    st.integers(-3, 12).map(str),
    st.floats(allow_nan=False).map(repr),
    st.text(max_size=3),
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(CELL, min_size=1, max_size=9), st.integers(1, 5), st.integers(0, 99))
def test_the_check_takes_each_cell_that_the_draft_does_not_name(
    cells: list[str], times: int, seed: int
) -> None:
    mixed = cells * times
    random.Random(seed).shuffle(mixed)
    try:
        read = table(mixed)
        draft = guessing.guess(read, "data")
    except (InvalidInput, UnicodeEncodeError):  # lone surrogates are no text
        return
    noted = " ".join(draft.guesses[0].noted)
    assert all(repr(cell) in noted or " more" in noted for cell in misfits(read, draft))


def test_long_values_with_heaps_of_marks_cost_no_time() -> None:
    heap = "a" + 4000 * ("\u0301\u0323" * 14 + "\uff9e")  # which NFKC orders as one row of marks
    assert not [*noticing.of_alike([heap, heap.upper(), *"abc"])]


def test_numbers_as_python_alone_writes_them_are_texts() -> None:
    assert guessed(["1_000", "2_000", "30_0"] * 20).kind == "categorical"


def test_a_list_of_values_is_cut_short() -> None:
    assert noticing.listed([*"abcdefg"]) == "'a', 'b', 'c', 'd', 'e' and 2 more"
