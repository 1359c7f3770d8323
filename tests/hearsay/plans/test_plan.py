"""A plan is checked by whoever builds it: the server is not trusted with privacy."""

import hashlib
import math
import os
import re
import struct
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from google.protobuf.internal import api_implementation
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from hearsay import InvalidInput
from hearsay.choices import Agreed, Choices
from hearsay.plans import plan
from hearsay.plans.kinds import Categorical, Numeric
from hearsay.recording.terms import Terms
from hearsay.v1 import plan_pb2
from hearsay_server.surveys import survey as surveys
from ldp import RAPPOR, KRRChain, Mechanism, OrderedExponential, SetBits, SetSelection, Waves
from ldp.testing import SeededCoins
from support import SURVEY

FROZEN = surveys.resolve(surveys.from_toml(SURVEY, "test.toml"))


def tampered(change: Callable[[plan_pb2.Plan], object]) -> bytes:
    message = plan_pb2.Plan.FromString(FROZEN)
    change(message)
    return message.SerializeToString(deterministic=True)


def test_the_revision_is_the_hash_of_the_frozen_bytes() -> None:
    assert plan.parse(FROZEN).revision == hashlib.sha256(FROZEN).digest()


def test_each_levels_mechanisms_add_up_to_at_most_its_epsilon() -> None:
    for level in plan.parse(FROZEN).levels.values():
        realised = [Fraction(m.realised_epsilon) for m in level.mechanisms.values()]
        assert sum(realised) <= Fraction(level.epsilon)
        assert sum(realised) >= Fraction(level.epsilon) * 999 / 1000


def test_integers_that_give_more_than_their_epsilon_are_refused() -> None:
    def weaken(message: plan_pb2.Plan) -> None:
        message.levels[0].mechanisms[0].parameters[1].values[0] //= 2

    with pytest.raises(InvalidInput, match="'strict', 'smokes': krr: the integers give epsilon"):
        plan.parse(tampered(weaken))


def test_mechanisms_that_add_up_to_more_than_their_level_are_refused() -> None:
    def lower(message: plan_pb2.Plan) -> None:
        message.levels[1].epsilon = 3.9

    with pytest.raises(InvalidInput, match=r"'open' promises epsilon 3\.9 .* add up to 4"):
        plan.parse(tampered(lower))


@pytest.mark.parametrize("epsilon", [math.nan, math.inf, -1.0])
def test_a_level_whose_epsilon_is_no_number_is_refused(epsilon: float) -> None:
    def confuse(message: plan_pb2.Plan) -> None:
        message.levels[0].epsilon = epsilon

    with pytest.raises(InvalidInput, match="'strict' promises epsilon"):
        plan.parse(tampered(confuse))


def test_a_mechanism_of_another_domain_is_refused() -> None:
    def swap(message: plan_pb2.Plan) -> None:
        mechanisms = message.levels[0].mechanisms
        mechanisms[0].CopyFrom(mechanisms[1])

    with pytest.raises(InvalidInput, match="'smokes': onebit does not fit categorical answers"):
        plan.parse(tampered(swap))


def replaced(mechanism: Mechanism) -> bytes:
    """The plan with another mechanism for 'smokes' at 'strict'."""

    def replace(message: plan_pb2.Plan) -> None:
        message.levels[0].mechanisms[0].CopyFrom(plan.mechanism_message(mechanism))

    return tampered(replace)


def test_any_mechanism_for_as_many_categories_fits() -> None:
    for mechanism in (OrderedExponential(3, 0.5), KRRChain.calibrate(3, 0.5, 1.0)):
        assert plan.parse(replaced(mechanism)).levels["strict"].mechanisms["smokes"] == mechanism


@pytest.mark.parametrize(
    "mechanism",
    [
        OrderedExponential(4, 0.5),
        RAPPOR.calibrate(0.5, 1.0),
        Waves.over(3, 0.5),
        SetBits(3, 0.5),
        SetSelection(3, 0.5, 1),
    ],
)
def test_another_number_of_categories_or_another_kind_does_not_fit(mechanism: Mechanism) -> None:
    with pytest.raises(InvalidInput, match=f"'smokes': {mechanism.name} does not fit"):
        plan.parse(replaced(mechanism))


def test_a_missing_mechanism_is_refused() -> None:
    def drop(message: plan_pb2.Plan) -> None:
        del message.levels[0].mechanisms[1]

    with pytest.raises(InvalidInput, match="has 1 mechanisms for 2 questions"):
        plan.parse(tampered(drop))


DELICATE = SURVEY.replace('mechanism = "krr"', "").replace(
    'values = ["no", "sometimes", "yes"]',
    'values = ["no", "sometimes", "yes"]\nsensitive = ["yes"]',
)


def delicate(change: Callable[[plan_pb2.Plan], object]) -> bytes:
    frozen = surveys.resolve(surveys.from_toml(DELICATE, "test.toml"))
    message = plan_pb2.Plan.FromString(frozen)
    change(message)
    return message.SerializeToString(deterministic=True)


def test_a_policy_that_protects_less_than_the_domain_declares_is_refused() -> None:
    def more(message: plan_pb2.Plan) -> None:  # "sometimes" is now declared sensitive as well
        message.survey.attributes[0].categorical.sensitive.append("sometimes")

    def all_of_them(message: plan_pb2.Plan) -> None:
        del message.survey.attributes[0].categorical.sensitive[:]

    def another(message: plan_pb2.Plan) -> None:
        message.survey.attributes[0].categorical.sensitive[0] = "no"

    assert plan.parse(delicate(lambda message: None)).attributes["smokes"].domain.ordinary
    for change in (more, all_of_them, another):
        with pytest.raises(InvalidInput, match="keeps another policy than its values declare"):
            plan.parse(delicate(change))


def test_a_mechanism_that_protects_more_than_declared_is_taken() -> None:
    def declare(message: plan_pb2.Plan) -> None:
        message.survey.attributes[0].categorical.sensitive.append("yes")

    assert plan.parse(tampered(declare))  # k-RR protects all values alike


def test_chances_that_are_no_budget_are_refused() -> None:
    def one_chance(message: plan_pb2.Plan) -> None:
        message.levels[0].chances.append(5)

    def half(message: plan_pb2.Plan) -> None:
        message.levels[0].chances.extend([1 << 62, 1 << 62])

    with pytest.raises(InvalidInput, match="'strict': a budget has one epsilon and one chance"):
        plan.parse(tampered(one_chance))
    with pytest.raises(InvalidInput, match=r"'strict': the chances must sum to a multiple of 2"):
        plan.parse(tampered(half))


def test_attributes_that_may_be_reported_together_are_added_up() -> None:
    sampled = SURVEY.replace('title = "A', 'budget = "sample"\ntitle = "A')
    message = plan_pb2.Plan.FromString(surveys.resolve(surveys.from_toml(sampled, "test.toml")))
    plan.parse(message.SerializeToString(deterministic=True))
    message.levels[1].chances[:] = [0, 0]  # always, both: twice the epsilon of the level
    with pytest.raises(InvalidInput, match=r"'open' promises epsilon 4 .* add up to 8"):
        plan.parse(message.SerializeToString(deterministic=True))


def test_a_mechanism_of_a_later_version_is_refused() -> None:
    def rename(message: plan_pb2.Plan) -> None:
        message.levels[0].mechanisms[0].name = "quantum"

    with pytest.raises(InvalidInput, match="unknown mechanism 'quantum'"):
        plan.parse(tampered(rename))


@given(st.binary(max_size=200))
def test_random_bytes_are_no_plan(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        plan.parse(data)


@given(st.integers(0, len(FROZEN) - 1), st.integers(1, 255))
def test_a_plan_with_one_byte_changed_never_exceeds_its_promise(place: int, flip: int) -> None:
    data = bytearray(FROZEN)
    data[place] ^= flip
    try:
        changed = plan.parse(bytes(data))
    except InvalidInput:
        return
    for level in changed.levels.values():
        total = sum(Fraction(m.realised_epsilon) for m in level.mechanisms.values())
        assert total <= Fraction(level.epsilon)


def test_a_category_may_be_spelled_by_an_integer() -> None:
    rating = Categorical(("1", "2", "3"))
    assert [rating.encode(answer) for answer in ("1", 2, "3")] == [0, 1, 2]


@pytest.mark.parametrize("answer", ["secret", 4, 1.5, True, b"1", np.int64(7)])
def test_an_answer_outside_the_domain_is_refused_without_being_repeated(answer: object) -> None:
    kind = type(answer).__name__
    with pytest.raises(InvalidInput, match=f"^must be one of 1, 2, got another {kind}$"):
        Categorical(("1", "2")).encode(answer)


def test_numbers_are_placed_between_minus_one_and_one() -> None:
    age = Numeric(20, 60, clamp=False)
    assert [age.encode(x) for x in (20, np.float32(40), np.int64(60))] == [-1, 0, 1]


@pytest.mark.parametrize("answer", [61, 19.999, math.nan, math.inf, "40", True, [40]])
def test_a_number_that_does_not_fit_is_refused(answer: object) -> None:
    with pytest.raises(InvalidInput, match=r"^must (be|lie)"):
        Numeric(20, 60, clamp=False).encode(answer)


SECRET = "HIV-positive"


@pytest.mark.parametrize(
    "answer",
    [
        np.str_(SECRET),
        np.bytes_(b"40"),
        np.True_,
        np.array([1.0, 2.0]),
        np.datetime64("2026-01-01"),
        10**400,
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("1e999"),
        1j,
        None,
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_what_only_looks_like_a_number_is_refused_without_being_repeated(answer: object) -> None:
    with pytest.raises(InvalidInput, match=r"^must (be|fit)") as error:
        Numeric(20, 60, clamp=True).encode(answer)
    assert SECRET not in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize("answer", [Fraction(81, 2), Decimal("40.5"), np.float32(40.5), 40.5])
def test_every_kind_of_number_is_taken(answer: object) -> None:
    assert Numeric(20, 60, clamp=False).encode(answer) == pytest.approx(0.025)


@pytest.mark.parametrize(
    "answer",
    [10**5000, -(10**5000), np.True_, 1e-7, None],
    ids=lambda answer: type(answer).__name__,
)
def test_a_category_that_cannot_be_spelled_is_refused(answer: object) -> None:
    with pytest.raises(InvalidInput, match=r"^must be one of 1, 2, got another"):
        Categorical(("1", "2")).encode(answer)


def test_a_large_domain_is_built_and_searched_at_once() -> None:
    names = tuple(f"town {number}" for number in range(200_000))
    begin = time.process_time()
    towns = Categorical(names)
    for name in names:
        towns.encode(name)
    assert time.process_time() - begin < 20  # 0.2 s; a search per answer would take hours


def test_attributes_and_levels_have_names_of_their_own() -> None:
    def rename_attribute(message: plan_pb2.Plan) -> None:
        message.survey.attributes[1].name = "smokes"

    def rename_level(message: plan_pb2.Plan) -> None:
        message.levels[1].name = "strict"

    with pytest.raises(InvalidInput, match="needs attributes, each with a name of its own"):
        plan.parse(tampered(rename_attribute))
    with pytest.raises(InvalidInput, match="needs levels, each with a name of its own"):
        plan.parse(tampered(rename_level))


def test_a_parameter_that_comes_twice_is_refused() -> None:
    def double(message: plan_pb2.Plan) -> None:
        parameters = message.levels[0].mechanisms[0].parameters
        parameters.append(parameters[0])

    with pytest.raises(InvalidInput, match="'strict', 'smokes': a parameter comes twice"):
        plan.parse(tampered(double))


def test_a_clamped_number_moves_to_the_nearer_end() -> None:
    age = Numeric(20, 60, clamp=True)
    assert [age.encode(x) for x in (1e300, -5)] == [1, -1]
    with pytest.raises(InvalidInput, match="must be finite"):
        age.encode(math.nan)


AGE = Numeric(17, 42, clamp=False, step=1)


@pytest.mark.parametrize(
    ("answer", "point"),
    [(17, 0), (17.999, 0), (18, 1), (30.5, 13), (Decimal("30.5"), 13), (41.99, 24), (42, 25)],
)
def test_with_a_step_a_number_counts_as_the_last_point_below_it(answer: object, point: int) -> None:
    assert AGE.encode(answer) == 2 * point / 25 - 1


@pytest.mark.parametrize(
    "answer", [16.999, 42.5, 43, math.nan, math.inf, -math.inf, "40", True, None, Decimal("NaN")]
)
def test_a_step_changes_nothing_in_what_is_refused(answer: object) -> None:
    plain = Numeric(17, 42, clamp=False)
    with pytest.raises(InvalidInput) as without:
        plain.encode(answer)
    with pytest.raises(InvalidInput) as refused:
        AGE.encode(answer)
    assert str(refused.value) == str(without.value)


def test_with_a_step_a_clamped_number_moves_to_the_point_at_the_nearer_end() -> None:
    age = Numeric(17, 42, clamp=True, step=1)
    assert [age.encode(x) for x in (-1e300, 16, 42.5, 1e300, 1e308)] == [-1, -1, 1, 1, 1]
    with pytest.raises(InvalidInput, match="must be finite"):
        age.encode(math.nan)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_number_is_encoded_as_a_point_of_the_range(number: float) -> None:
    minutes = Numeric(0.0, 1.3, clamp=True, step=0.1)
    assert minutes.points is not None
    places = {minutes.points.place(index) for index in range(14)}
    assert minutes.encode(number) in places


def test_a_domain_with_a_step_says_so() -> None:
    assert str(AGE) == "17 to 42 in steps of 1"
    assert str(Numeric(17, 42, clamp=False)) == "17 to 42"


def test_what_takes_the_place_of_an_answer_is_a_point_too() -> None:
    text = SURVEY.replace("high = 60", "high = 60\nstep = 8")
    stepped = plan.parse(surveys.resolve(surveys.from_toml(text, "test.toml")))
    choices = Choices(level="open")
    terms = Terms.of(stepped, choices, Agreed("health", 4.0), frozenset())
    coins = SeededCoins(1)
    drawn = [terms.anything("age", coins) for _ in range(600)]
    places = np.linspace(-1, 1, 6)
    counts = [sum(abs(value - place) < 1e-12 for value in drawn) for place in places]
    assert sum(counts) == 600
    assert all(60 < count < 145 for count in counts)  # 100 each, with an error of 9


RICH = """
name = "rich"
title = "Café, 東京, हिन्दी, 🙂"
period = "P1D"
budget = "sample"
default_level = "strict"
[levels]
strict = 1.0
open = 4.0
alike = 1.0
[[attributes]]
name = "mood"
title = "Größe"
memo = 2
[attributes.categorical]
values = ["no", "naïve", "是"]
[[attributes]]
name = "health"
weight = 3
[attributes.categorical]
values = ["well", "ill", "no answer"]
[attributes.categorical.classes.soft]
values = ["no answer"]
scale = 0.25
[attributes.categorical.classes.hard]
values = ["ill"]
scale = 0.5
[[attributes]]
name = "affair"
[attributes.categorical]
values = ["no", "yes"]
sensitive = ["yes"]
[[attributes]]
name = "age"
cap = 2
[attributes.numeric]
low = -20
high = 60
clamp = true
"""
"""A survey that has all that a survey may have."""

ALL = surveys.resolve(surveys.from_toml(RICH, "test.toml"))


def changed(change: Callable[[plan_pb2.Plan], object]) -> bytes:
    message = plan_pb2.Plan.FromString(ALL)
    change(message)
    return message.SerializeToString(deterministic=True)


def write(message: plan_pb2.Plan, place: str, text: str) -> None:
    """Put a text into a survey, everywhere where the plan repeats it."""
    survey = message.survey
    mood, health = survey.attributes[0], survey.attributes[1].categorical
    match place:
        case "name":
            survey.name = text
        case "title":
            survey.title = text
        case "budget":
            survey.budget = text
        case "levels":
            survey.levels[text] = survey.levels.pop("open")
            message.levels[2].name = text
        case "attributes[0]: name":
            mood.name = text
        case "attributes[0]: title":
            mood.title = text
        case "attributes[0]: mechanism":
            mood.mechanism = text
        case "attributes[0]: values":
            mood.categorical.values[1] = text
        case "attributes[1]: classes":
            health.classes[text].CopyFrom(health.classes.pop("soft"))
        case _:
            raise AssertionError(place)


PLACES = [
    "name",
    "title",
    "budget",
    "levels",
    "attributes[0]: name",
    "attributes[0]: title",
    "attributes[0]: mechanism",
    "attributes[0]: values",
    "attributes[1]: classes",
]


@pytest.mark.parametrize("place", PLACES)
def test_every_text_of_a_survey_is_searched_for_what_cannot_be_seen(place: str) -> None:
    assert plan.parse(changed(lambda message: write(message, place, "zoo")))
    for text in ("zo\u200bo", "zo\u0308o\u0301"):
        with pytest.raises(InvalidInput, match=f"^{re.escape(place)}: 'zo"):
            plan.parse(changed(lambda message, text=text: write(message, place, text)))


@pytest.mark.parametrize(
    ("character", "code"),
    [
        ("\0", "U+0000, a control character"),
        ("\n", "U+000A, a control character"),
        ("\x7f", "U+007F, a control character"),
        ("\x85", "U+0085, a control character"),
        ("\xad", "U+00AD, a format character"),
        ("\u200b", "U+200B, a format character"),
        ("\u202e", "U+202E, a format character"),
        ("\ufeff", "U+FEFF, a format character"),
        ("\U000e0041", "U+E0041, a format character"),
        ("\ue000", "U+E000, a private-use character"),
        ("\U0010fffd", "U+10FFFD, a private-use character"),
        ("\u2028", "U+2028, a line separator"),
        ("\u2029", "U+2029, a paragraph separator"),
        ("\xa0", "U+00A0, a space other than U+0020"),
        ("\u2003", "U+2003, a space other than U+0020"),
        ("\u3000", "U+3000, a space other than U+0020"),
        ("\u034f", "U+034F, an invisible character"),
        ("\u2800", "U+2800, an invisible character"),
        ("\U0001d159", "U+1D159, an invisible character"),
        ("\u3164", "U+3164, an invisible character"),
        ("\ufe0f", "U+FE0F, an invisible character"),
        ("\U000e01ef", "U+E01EF, an invisible character"),
    ],
)
def test_the_error_names_the_character_that_cannot_be_seen(character: str, code: str) -> None:
    def spoil(message: plan_pb2.Plan) -> None:
        message.survey.title += character

    with pytest.raises(InvalidInput, match=f"^title: .* contains {re.escape(code)}[:,]"):
        plan.parse(changed(spoil))


@pytest.mark.parametrize("text", [" zoo", "zoo ", " ", "a  zoo", "a\u0308  zoo"])
@pytest.mark.parametrize("place", PLACES)
def test_spaces_that_nobody_sees_are_refused(place: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{re.escape(place)}: '.*' has a space at its begin"):
        plan.parse(changed(lambda message: write(message, place, text)))


def test_single_spaces_between_words_are_taken() -> None:
    title = "How was the day, \u00e9t\u00e9 or not?"
    assert plan.parse(changed(lambda message: write(message, "title", title))).title == title


@pytest.mark.parametrize(
    "code",
    [0x115F, 0x1160, 0x17B4, 0x17B5, 0x180F, 0x2065, 0xFE00, 0xFFA0, 0xFFF0, 0xFFF8, 0xE0FFF],
)
def test_characters_that_unicode_calls_ignorable_are_refused(code: int) -> None:
    with pytest.raises(InvalidInput, match=rf"^title: .* U\+{code:04X}, an? "):
        plan.parse(changed(lambda message: write(message, "title", f"A {chr(code)} title")))


@pytest.mark.parametrize(
    ("text", "code"), [("Cafe\u0301", "U+0065"), ("\u212b", "U+212B"), ("क\u0958", "U+0958")]
)
def test_a_text_that_can_be_written_in_another_way_is_refused(text: str, code: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^title: .* NFC: {re.escape(code)} is not expected"):
        plan.parse(changed(lambda message: write(message, "title", text)))


@given(st.text(max_size=8))
def test_no_two_texts_that_are_taken_have_the_same_normal_form(text: str) -> None:
    """As bytes that a server sends, which no survey file has been through."""
    try:
        taken = plan.parse(changed(lambda message: write(message, "title", text)))
    except InvalidInput:
        return
    assert taken.title == unicodedata.normalize("NFC", text)
    assert not {unicodedata.category(c) for c in text} & {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}


UNKNOWN = bytes([127 << 3 & 0x7F | 0x80, 127 >> 4, 1])
"""Field 127, a varint of 1: no message has it."""

PARTS: dict[str, Callable[[plan_pb2.Plan], Message]] = {
    "plan": lambda message: message,
    "survey": lambda message: message.survey,
    "attribute": lambda message: message.survey.attributes[3],
    "categorical": lambda message: message.survey.attributes[0].categorical,
    "class": lambda message: message.survey.attributes[1].categorical.classes["hard"],
    "numeric": lambda message: message.survey.attributes[3].numeric,
    "level": lambda message: message.levels[2],
    "mechanism": lambda message: message.levels[0].mechanisms[1],
    "parameter": lambda message: message.levels[0].mechanisms[1].parameters[0],
}


@pytest.mark.parametrize("part", PARTS)
def test_a_field_that_is_not_known_is_refused_wherever_it_is(part: str) -> None:
    data = changed(lambda message: PARTS[part](message).MergeFromString(UNKNOWN))
    assert len(data) > len(ALL)
    with pytest.raises(InvalidInput, match="has fields that this version of hearsay does not know"):
        plan.parse(data)


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80, *varint(value >> 7)]) if value >> 7 else bytes([value])


def other_bytes() -> dict[str, bytes]:
    message = plan_pb2.Plan.FromString(FROZEN)
    survey = message.survey.SerializeToString(deterministic=True)
    levels = FROZEN.removeprefix(field(1, survey))
    loose, strict = (
        field(4, field(1, name) + b"\x11" + struct.pack("<d", epsilon))
        for name, epsilon in ((b"open", 4.0), (b"strict", 1.0))
    )
    assert loose + strict in survey
    return {
        "a field after a later one": levels + field(1, survey),
        "a message in two parts": field(1, survey) + field(1, b"") + levels,
        "a field twice": field(1, field(2, b"other") + survey) + levels,
        "a default written out": field(1, survey + field(6, b"")) + levels,
        "a map in another order": FROZEN.replace(loose + strict, strict + loose),
        "a key twice": field(1, field(4, field(1, b"open")) + survey) + levels,
        "a long varint": b"\x0a" + bytes([len(survey) & 0x7F | 0x80, len(survey) >> 7 | 0x80, 0])
        + survey + levels,
    }  # fmt: skip


@pytest.mark.parametrize("how", other_bytes())
def test_a_plan_is_taken_in_one_writing_only(how: str) -> None:
    data = other_bytes()[how]
    assert data != FROZEN
    assert plan.message(data) == plan.message(FROZEN)
    with pytest.raises(InvalidInput, match="bytes are not the canonical serialisation"):
        plan.parse(data)


def test_parameters_in_another_order_are_refused() -> None:
    def turn(message: plan_pb2.Plan) -> None:
        parameters = message.levels[0].mechanisms[0].parameters
        parameters.reverse()

    with pytest.raises(InvalidInput, match=r"'strict', 'smokes': krr: .* sorted by name"):
        plan.parse(tampered(turn))


OTHER = "python" if api_implementation.Type() == "upb" else "upb"

AS_THE_OTHER = """
import sys
from google.protobuf.internal import api_implementation
from hearsay import InvalidInput
from hearsay.plans import plan
from hearsay_server.surveys import survey as surveys

assert api_implementation.Type() == "{other}"
for toml in {surveys!r}:
    print(surveys.resolve(surveys.from_toml(toml, "test.toml")).hex())
for data in {refused!r}:
    try:
        print(plan.parse(data).revision.hex())
    except InvalidInput as error:
        print(error)
"""


@pytest.mark.slow
def test_both_implementations_of_protobuf_write_and_refuse_the_same_plans() -> None:
    refused = [
        *other_bytes().values(),
        *(changed(lambda message, part=part: part(message).MergeFromString(UNKNOWN))
          for part in PARTS.values()),
        changed(lambda message: write(message, "title", "zo\u200bo")),
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-"],  # an argument must not be as long as these plans
        input=AS_THE_OTHER.format(other=OTHER, surveys=[SURVEY, RICH], refused=refused),
        env={**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": OTHER},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    frozen, loose, *errors = done.stdout.splitlines()
    assert (frozen, loose) == (FROZEN.hex(), ALL.hex())
    assert len(errors) == len(refused)
    for data, error in zip(refused, errors, strict=True):
        with pytest.raises(InvalidInput) as mine:
            plan.parse(data)
        assert error == str(mine.value)


def test_an_attributes_cap_holds_at_every_level() -> None:
    def lower(message: plan_pb2.Plan) -> None:
        message.survey.attributes[1].cap = 1.5

    assert [level.mechanisms["age"].epsilon for level in plan.parse(FROZEN).levels.values()] == [
        0.5,
        2,
    ]
    with pytest.raises(
        InvalidInput, match=r"'open', 'age': hybrid has epsilon 2, more than .* cap of 1\.5$"
    ):
        plan.parse(tampered(lower))


@pytest.mark.parametrize("cap", [0.0, -1.0, math.nan])
def test_a_cap_that_allows_nothing_is_kept(cap: float) -> None:
    def forbid(message: plan_pb2.Plan) -> None:
        message.survey.attributes[0].cap = cap

    with pytest.raises(InvalidInput, match=r"'strict', 'smokes': krr has epsilon .* cap of"):
        plan.parse(tampered(forbid))


def test_the_levels_are_those_that_the_survey_declares() -> None:
    def declare_less(message: plan_pb2.Plan) -> None:
        message.survey.levels["open"] = 3.0

    def declare_another(message: plan_pb2.Plan) -> None:
        message.survey.levels["lax"] = 8.0

    def rename(message: plan_pb2.Plan) -> None:
        message.levels[1].name = "lax"

    def turn(message: plan_pb2.Plan) -> None:
        message.levels.reverse()

    for change, levels in (
        (declare_less, r"strict = 1\.0, open = 3\.0, the plan has strict = 1\.0, open = 4\.0"),
        (declare_another, r"strict = 1\.0, open = 4\.0, lax = 8\.0, the plan has"),
        (rename, r"open = 4\.0, the plan has strict = 1\.0, lax = 4\.0"),
        (turn, r"open = 4\.0, the plan has open = 4\.0, strict = 1\.0"),
    ):
        with pytest.raises(InvalidInput, match=f"^levels: the survey declares .*{levels}"):
            plan.parse(tampered(change))


def test_the_default_level_is_one_of_the_levels() -> None:
    def choose(name: str) -> bytes:
        return tampered(lambda message: setattr(message.survey, "default_level", name))

    assert plan.parse(FROZEN).default_level == ""
    assert plan.parse(choose("open")).default_level == "open"
    with pytest.raises(
        InvalidInput, match=r"^default_level: expected one of strict, open, got 'x'"
    ):
        plan.parse(choose("x"))
